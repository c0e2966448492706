//! Scheduling, marking, deleting and purging.

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{Registration, ScheduledTimer, TimerKey, Timestamp};
use punctual_ports::{DeleteOutcome, FiredTimer, MarkOutcome, PortError, SaveOutcome, SaveTimer};

use super::state::{Row, State};

impl State {
    pub(super) fn save(&mut self, requested: SaveTimer, now: Timestamp) -> SaveOutcome {
        let now = self.clock.or(now);
        let existing = self.existing(&requested.key);
        let due_at = requested.due_at;
        let decision = requested.origin.decide(existing, due_at, now);
        if let Some(registered_at) = decision.registered_at() {
            self.tombstones.remove(&requested.key);
            self.put(Row::scheduled(ScheduledTimer {
                key: requested.key,
                correlation_id: requested.correlation_id,
                registration: Registration {
                    registered_at,
                    due_at,
                },
                data: requested.data,
            }));
        }
        decision.into()
    }

    pub(super) fn mark_fired(&mut self, fired: &FiredTimer) -> Result<MarkOutcome, PortError> {
        fired.check()?;
        let key = &fired.firing_id.key;
        let outcome = self.existing(key).mark(fired.firing_id.registration);
        if outcome == MarkOutcome::Marked
            && let Some(mut row) = self.take(key)
        {
            row.reach(fired.reached_at);
            self.put(row);
        }
        Ok(outcome)
    }

    pub(super) fn delete(&mut self, key: &TimerKey, now: Timestamp) -> DeleteOutcome {
        let now = self.clock.or(now);
        let are_known = self.claims_known.at(now);
        let is_firing = || {
            self.rows.get(key).is_some_and(|row| {
                let is_leased = row.lease.is_some_and(|lease| lease.until > now);
                is_leased || (!are_known && row.ready_at() <= now)
            })
        };
        let outcome = self.existing(key).delete(is_firing);
        if outcome == DeleteOutcome::Deleted {
            self.remove(key, Some(now));
        }
        outcome
    }

    /// Removes a timer, and leaves a tombstone if it was deleted.
    pub(super) fn remove(&mut self, key: &TimerKey, deleted_at: Option<Timestamp>) {
        let row = self.take(key);
        if let Some(at) = deleted_at {
            let registration = row.map(|row| row.timer.registration);
            let at = registration.map_or(at, |registration| deletion_time(registration, at));
            self.tombstones.insert(key.clone(), at);
        }
    }

    pub(super) fn purge(&mut self, before: Timestamp, limit: usize) -> usize {
        let old: Vec<TimerKey> = self
            .reached
            .iter()
            .take_while(|(reached_at, _)| *reached_at < before)
            .take(limit)
            .map(|(_, key)| key.clone())
            .collect();
        for key in &old {
            self.take(key);
        }
        let forgotten: Vec<TimerKey> = self
            .tombstones
            .iter()
            .filter(|(_, deleted_at)| **deleted_at < before)
            .take(limit - old.len())
            .map(|(key, _)| key.clone())
            .collect();
        for key in &forgotten {
            self.tombstones.remove(key);
        }
        old.len() + forgotten.len()
    }
}
