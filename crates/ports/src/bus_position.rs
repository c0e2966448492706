//! The position up to which a broker acknowledged messages, stored where the broker cannot lose it.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use uuid::Uuid;

use crate::PortError;

/// The last message that a broker's stream has acknowledged.
///
/// A broker restored from an older backup lacks that message, and then the messages acknowledged after
/// the backup have to be published again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusPosition {
    /// The stream's name.
    pub stream: String,
    /// When the stream was created, as the broker formats it; distinguishes streams of the same name.
    pub stream_created_at: String,
    /// The highest acknowledged sequence.
    pub last_sequence: u64,
    /// The deduplication id of the message with that sequence.
    pub last_message_id: String,
    /// When it was acknowledged.
    pub acknowledged_at: Timestamp,
    /// Every acknowledged message published before this instant has a sequence of at most
    /// `last_sequence`. Later ones are in doubt after a crash.
    pub covers_until: Timestamp,
}

impl BusPosition {
    /// The position that a new instance starts from, given those of all instances: the highest sequence of
    /// the stream that was acknowledged last, and what is in doubt for any of them.
    pub fn merged(positions: impl IntoIterator<Item = Self>) -> Option<Self> {
        let positions: Vec<Self> = positions.into_iter().collect();
        let covers_until = positions.iter().map(|it| it.covers_until).min()?;
        let last = positions.iter().max_by_key(|it| it.acknowledged_at)?;
        let of_last = |it: &&Self| it.stream_created_at == last.stream_created_at;
        let highest = positions.iter().filter(of_last);
        let highest = highest.max_by_key(|it| (it.last_sequence, it.acknowledged_at))?;
        Some(Self {
            covers_until,
            ..highest.clone()
        })
    }
}

/// Stores the position of each stream.
///
/// # Contract
/// - A position is durable when `save` returns, and is read back unchanged.
/// - There is one position per stream name and instance; `save` replaces that of its own instance
///   unconditionally, and no other.
/// - `load` returns the position that its instance has saved. An instance that has saved none gets those of
///   all instances as one ([`BusPosition::merged`]): what is in doubt for an instance that has crashed is in
///   doubt for the next one.
/// - The position of an instance that has ended counts until another instance, which has loaded it with the
///   others, has saved one of its own. If a store cannot tell whether an instance has ended, its position
///   counts on.
/// - What a broker has lost is published again by one instance at a time: `own_republication` is true for one
///   instance until `lease` after its last such call, by the store's clock if it has one, and false for the
///   others meanwhile. It spares duplicates and guards nothing: each instance recovers from the losses that it
///   has detected, since only it knows what it has in flight, and one that is refused tries again later.
/// - A stream without a position is `None`, not an error.
/// - `owner` returns the id of the database, which tells it from every other: `new` from the first call on, of
///   whichever instance, and the same ever after. A store without such an id answers `None`.
/// - Sequences up to 2^63 - 1 can be stored. A greater one may be `Rejected`, which leaves the position
///   before it.
#[async_trait]
pub trait BusPositionPort: Send + Sync {
    /// Reads the position of a stream.
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError>;

    /// Stores a position in place of the one that this instance saved before.
    async fn save(&self, position: BusPosition) -> Result<(), PortError>;

    /// The id of the database, by which others tell what belongs to it.
    async fn owner(&self, _new: Uuid) -> Result<Option<Uuid>, PortError> {
        Ok(None)
    }

    /// Takes or keeps the republication of a stream's messages; false if another instance has it. Where only
    /// one instance fires, it always has it.
    async fn own_republication(
        &self,
        _stream: String,
        _now: Timestamp,
        _lease: Duration,
    ) -> Result<bool, PortError> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(created: &str, sequence: u64, acknowledged: i64, covers: i64) -> BusPosition {
        BusPosition {
            stream: "EVENTS".to_owned(),
            stream_created_at: created.to_owned(),
            last_sequence: sequence,
            last_message_id: format!("message {sequence}"),
            acknowledged_at: Timestamp::from_millis(acknowledged).unwrap(),
            covers_until: Timestamp::from_millis(covers).unwrap(),
        }
    }

    #[test]
    fn the_highest_sequence_and_the_smallest_doubt_of_all_instances_are_merged() {
        let one = position("a", 9, 500, 400);
        let other = position("a", 7, 600, 300);
        let merged = BusPosition::merged([one.clone(), other]);
        assert_eq!(merged, Some(position("a", 9, 500, 300)));
        assert_eq!(BusPosition::merged([one.clone()]), Some(one));
        assert_eq!(BusPosition::merged([]), None);
    }

    #[test]
    fn a_sequence_of_a_stream_that_was_made_anew_since_does_not_count_but_its_doubt_does() {
        let (old, new) = (position("a", 900, 500, 400), position("b", 3, 600, 600));
        assert_eq!(
            BusPosition::merged([old, new]),
            Some(position("b", 3, 600, 400))
        );
    }
}
