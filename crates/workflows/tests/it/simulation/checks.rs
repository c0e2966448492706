//! The promises, checked after every action and at the end.

use std::collections::{BTreeMap, BTreeSet};

use punctual_adapters_memory::MemoryTimerStore;
use punctual_domain::{Registration, TimerEntry, TimerKey, Timestamp};
use punctual_ports::TimerPersistencePort;

use super::faults::Chaos;
use super::scenario::keys;
use crate::ledger::Ledger;

/// What the service has said to somebody who waited for the answer.
pub(super) enum Promise {
    /// Nothing that could be held against it.
    None,
    /// There is a timer that fires at this time.
    WillFire { due_at: Timestamp },
    /// There is no such timer; the number of its events by then.
    WillNotFire { seen: usize },
    /// A command is taken care of.
    IsKnown { sent_at: Timestamp },
}

pub(super) struct Checks {
    chaos: Chaos,
    rows: BTreeMap<TimerKey, TimerEntry>,
    may_go_back: BTreeSet<TimerKey>,
    may_vanish: BTreeSet<TimerKey>,
    cancelled: BTreeSet<TimerKey>,
    quiet: BTreeMap<TimerKey, usize>,
}

impl Checks {
    pub(super) const fn new(chaos: Chaos) -> Self {
        Self {
            chaos,
            rows: BTreeMap::new(),
            may_go_back: BTreeSet::new(),
            may_vanish: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            quiet: BTreeMap::new(),
        }
    }

    /// The next action replaces this timer.
    pub(super) fn may_go_back(&mut self, key: &TimerKey) {
        self.may_go_back.insert(key.clone());
    }

    /// The next action deletes this timer.
    pub(super) fn may_vanish(&mut self, key: &TimerKey) {
        self.may_vanish.insert(key.clone());
        self.cancelled.insert(key.clone());
    }

    /// Holds the service to its word, against the store's bare truth.
    pub(super) async fn said(
        &mut self,
        key: &TimerKey,
        promise: Promise,
        store: &MemoryTimerStore,
    ) -> Result<(), String> {
        let found = store.find(key.clone()).await.unwrap();
        let due_at = found
            .as_ref()
            .map(|entry| entry.timer().registration.due_at);
        self.quiet.remove(key);
        match promise {
            Promise::WillFire { due_at: promised } if due_at != Some(promised) => Err(format!(
                "{key} was acknowledged for {promised}, but is {found:?}"
            )),
            Promise::WillNotFire { .. } if found.is_some() => {
                Err(format!("{key} was deleted, but is {found:?}"))
            }
            Promise::WillNotFire { seen } => {
                self.quiet.insert(key.clone(), seen);
                Ok(())
            }
            Promise::IsKnown { sent_at } if found.is_none() && !self.cancelled.contains(key) => {
                Err(format!(
                    "the command of {sent_at} for {key} was accepted and is lost"
                ))
            }
            Promise::None | Promise::WillFire { .. } | Promise::IsKnown { .. } => Ok(()),
        }
    }

    /// Compares all rows with what they were.
    pub(super) async fn compare(
        &mut self,
        store: &MemoryTimerStore,
        ledger: &Ledger,
    ) -> Result<(), String> {
        for key in keys() {
            let now = store.find(key.clone()).await.unwrap();
            let before = self.rows.remove(&key);
            self.check_step(&key, before.as_ref(), now.as_ref())?;
            if let Some(TimerEntry::Reached { timer: reached, .. }) = &now
                && !ledger.has(&reached.timer().firing_id())
            {
                return Err(format!("{key} was marked, but nobody has seen its event"));
            }
            if let Some(seen) = self.quiet.get(&key)
                && self.chaos.is_none()
                && ledger.count(&key) > *seen
            {
                return Err(format!("{key} was deleted and has fired since"));
            }
            self.rows.extend(now.map(|entry| (key, entry)));
        }
        self.may_go_back.clear();
        self.may_vanish.clear();
        Ok(())
    }

    fn check_step(
        &self,
        key: &TimerKey,
        before: Option<&TimerEntry>,
        now: Option<&TimerEntry>,
    ) -> Result<(), String> {
        let Some(before) = before else {
            return Ok(());
        };
        let Some(now) = now else {
            if self.may_vanish.contains(key) && before.reached_at().is_none() {
                return Ok(());
            }
            return Err(format!("{before:?} has vanished"));
        };
        let (old, new) = (registration(before), registration(now));
        if new < old {
            return Err(format!(
                "the schedule of {key} went back from {old:?} to {new:?}"
            ));
        }
        let went_back = before.reached_at().is_some() && before != now;
        if went_back && !self.may_go_back.contains(key) {
            return Err(format!("{before:?} was final, and is now {now:?}"));
        }
        Ok(())
    }

    /// Whether no timer waits any more.
    pub(super) async fn all_fired(&self, store: &MemoryTimerStore) -> bool {
        for key in keys() {
            let found = store.find(key).await.unwrap();
            if matches!(found, Some(TimerEntry::Scheduled { .. })) {
                return false;
            }
        }
        true
    }

    /// All that was due has fired, none of it early.
    pub(super) async fn end(
        &self,
        store: &MemoryTimerStore,
        ledger: &Ledger,
        now: Timestamp,
    ) -> Result<(), String> {
        for key in keys() {
            if let Some(TimerEntry::Scheduled { timer, .. }) =
                store.find(key.clone()).await.unwrap()
                && timer.registration.due_at <= now
            {
                return Err(format!("{timer:?} is lost: it never fired"));
            }
        }
        for seen in ledger.seen() {
            let event = &seen.event;
            // An event on its way while the clock is set back arrives before its time.
            let may_seem_early = self.chaos.clock_changes > 0 && self.chaos.delays > 0;
            if event.reached_at < event.due_at || (!may_seem_early && seen.at < event.due_at) {
                return Err(format!("{} fired early, at {}", event.firing_id, seen.at));
            }
            if event.firing_id.registration.due_at != event.due_at
                || event.firing_id.key != event.key()
            {
                return Err(format!("{event:?} carries another firing's id"));
            }
        }
        let firings = ledger.firings();
        let repeated = firings.iter().find(|(_, times)| **times > 1);
        match repeated {
            Some((firing_id, times)) if self.chaos.is_none() => {
                Err(format!("{firing_id} fired {times} times without any fault"))
            }
            _ => Ok(()),
        }
    }
}

fn registration(entry: &TimerEntry) -> Registration {
    entry.timer().registration
}
