//! Scheduling, marking, deleting and purging.

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{Registration, ScheduleDecision, ScheduledTimer, TimerKey, Timestamp};
use punctual_ports::{DeleteOutcome, FiredTimer, MarkOutcome, PortError, SaveOutcome, SaveTimer};

use super::state::{Row, State};

impl State {
    pub(super) fn save(&mut self, requested: SaveTimer, now: Timestamp) -> SaveOutcome {
        let existing = self.existing(&requested.key);
        let (registered_at, outcome) =
            match requested.origin.decide(existing, requested.due_at, now) {
                ScheduleDecision::Create { registered_at } => (registered_at, SaveOutcome::Created),
                ScheduleDecision::Reschedule { registered_at } => {
                    (registered_at, SaveOutcome::Rescheduled)
                }
                ScheduleDecision::Unchanged => return SaveOutcome::Unchanged,
                ScheduleDecision::Stale => return SaveOutcome::Stale,
                ScheduleDecision::AlreadyReached => return SaveOutcome::AlreadyReached,
            };
        self.tombstones.remove(&requested.key);
        self.put(Row::scheduled(ScheduledTimer {
            key: requested.key,
            correlation_id: requested.correlation_id,
            registration: Registration {
                registered_at,
                due_at: requested.due_at,
            },
            data: requested.data,
        }));
        outcome
    }

    pub(super) fn mark_fired(&mut self, fired: &FiredTimer) -> Result<MarkOutcome, PortError> {
        fired.check()?;
        let Some(row) = self.rows.get(&fired.firing_id.key) else {
            return Ok(MarkOutcome::NotFound);
        };
        if row.timer.registration != fired.firing_id.registration {
            return Ok(MarkOutcome::Moved);
        }
        if row.reached_at.is_some() {
            return Ok(MarkOutcome::AlreadyReached);
        }
        let mut row = row.clone();
        row.reach(fired.reached_at);
        self.put(row);
        Ok(MarkOutcome::Marked)
    }

    pub(super) fn delete(&mut self, key: &TimerKey, now: Timestamp) -> DeleteOutcome {
        let Some(row) = self.rows.get(key) else {
            return DeleteOutcome::NotFound;
        };
        if row.reached_at.is_some() {
            return DeleteOutcome::AlreadyReached;
        }
        if row.lease.is_some_and(|lease| lease.until > now) {
            return DeleteOutcome::Firing;
        }
        let deleted_at = deletion_time(row.timer.registration, now);
        self.take(key);
        self.tombstones.insert(key.clone(), deleted_at);
        DeleteOutcome::Deleted
    }

    pub(super) fn remove_with_call(&mut self, key: &TimerKey, deleted_at: Option<Timestamp>) {
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
