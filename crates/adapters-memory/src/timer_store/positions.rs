//! The positions of brokers, of each instance, and what a new instance makes of them.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::BusPosition;
use uuid::Uuid;

use super::instances::Instance;

/// The acknowledged position of each stream, per instance.
#[derive(Default)]
pub(super) struct Positions {
    streams: BTreeMap<String, BTreeMap<u64, Saved>>,
    /// The instance that republishes the messages of a stream, and until when.
    owners: BTreeMap<String, (u64, Timestamp)>,
    /// The id of the store, once somebody has asked.
    id: Option<Uuid>,
}

struct Saved {
    position: BusPosition,
    /// Empty once the instance has ended.
    instance: Weak<u64>,
    /// The instance that has loaded this position with those of others, and takes it over when it saves.
    heir: Option<u64>,
}

impl Saved {
    fn has_ended(&self) -> bool {
        self.instance.strong_count() == 0
    }
}

impl Positions {
    /// Ends all instances, as a crash of the process does that has the store in its memory.
    pub(super) fn end_all(&mut self) {
        for saved in self.streams.values_mut().flat_map(BTreeMap::values_mut) {
            saved.instance = Weak::new();
        }
        self.owners.clear();
    }

    /// The id of the store: the first that it is given.
    pub(super) fn id(&mut self, new: Uuid) -> Uuid {
        *self.id.get_or_insert(new)
    }

    /// The position of an instance, or all of them merged if it has none.
    pub(super) fn load(&mut self, instance: &Instance, stream: &str) -> Option<BusPosition> {
        let of_stream = self.streams.get_mut(stream)?;
        let own = of_stream.get(&instance.number());
        if let Some(own) = own.filter(|saved| !saved.has_ended()) {
            return Some(own.position.clone());
        }
        for saved in of_stream.values_mut().filter(|saved| saved.has_ended()) {
            saved.heir = Some(instance.number());
        }
        BusPosition::merged(of_stream.values().map(|saved| saved.position.clone()))
    }

    /// Replaces the position of an instance, and those of ended instances that it has loaded.
    pub(super) fn save(&mut self, instance: &Instance, position: BusPosition) {
        let of_stream = self.streams.entry(position.stream.clone()).or_default();
        let number = instance.number();
        of_stream.retain(|_, saved| saved.heir != Some(number));
        let saved = Saved {
            position,
            instance: instance.watch(),
            heir: None,
        };
        of_stream.insert(number, saved);
    }

    /// Whether an instance republishes the messages of a stream from now on.
    pub(super) fn own(
        &mut self,
        instance: &Instance,
        stream: String,
        now: Timestamp,
        lease: Duration,
    ) -> bool {
        let owner = self.owners.get(&stream);
        if owner.is_some_and(|(owner, until)| *owner != instance.number() && *until > now) {
            return false;
        }
        let until = now.saturating_add(lease);
        self.owners.insert(stream, (instance.number(), until));
        true
    }
}
