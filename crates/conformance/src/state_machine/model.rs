//! The small model: what a store should hold, written as plainly as possible.

use std::collections::{BTreeMap, BTreeSet};

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{Existing, Registration, ScheduleDecision, TimerKey, Timestamp};
use punctual_ports::{
    Claim, ClaimOutcome, ClaimToken, DeleteOutcome, MarkOutcome, SaveOutcome, SaveTimer,
};

use crate::instances::LEASE_END_KNOWN_WITHIN;
use crate::store::LEASE;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) registration: Registration,
    pub(super) reached_at: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) retry_at: Option<Timestamp>,
    pub(super) claim: Option<Lease>,
}

/// A claim of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) token: ClaimToken,
    pub(super) until: Timestamp,
    /// The instance that made it, and when.
    pub(super) owner: u32,
    pub(super) made_at: Timestamp,
}

impl Row {
    fn ready_at(&self) -> Timestamp {
        let due_at = self.registration.due_at;
        self.retry_at
            .map_or(due_at, |retry_at| retry_at.max(due_at))
    }
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) rows: BTreeMap<TimerKey, Row>,
    pub(super) deleted: BTreeMap<TimerKey, Timestamp>,
    /// The ids of the dead letters. A firing that is dead-lettered again, after its row was purged and a
    /// redelivered command made it anew, has the id of the first and so is the same dead letter.
    pub(super) dead_letters: BTreeSet<String>,
}

impl Model {
    pub(super) fn save(&mut self, timer: &SaveTimer, now: Timestamp) -> SaveOutcome {
        let existing = match (self.rows.get(&timer.key), self.deleted.get(&timer.key)) {
            (Some(row), _) if row.reached_at.is_some() => Existing::Reached(row.registration),
            (Some(row), _) => Existing::Scheduled(row.registration),
            (None, Some(&deleted_at)) => Existing::Deleted { deleted_at },
            (None, None) => Existing::Nothing,
        };
        let (registered_at, outcome) = match timer.origin.decide(existing, timer.due_at, now) {
            ScheduleDecision::Create { registered_at } => (registered_at, SaveOutcome::Created),
            ScheduleDecision::Reschedule { registered_at } => {
                (registered_at, SaveOutcome::Rescheduled)
            }
            ScheduleDecision::Unchanged => return SaveOutcome::Unchanged,
            ScheduleDecision::Stale => return SaveOutcome::Stale,
            ScheduleDecision::AlreadyReached => return SaveOutcome::AlreadyReached,
        };
        let registration = Registration {
            registered_at,
            due_at: timer.due_at,
        };
        self.deleted.remove(&timer.key);
        self.rows.insert(
            timer.key.clone(),
            Row {
                registration,
                reached_at: None,
                attempts: 0,
                retry_at: None,
                claim: None,
            },
        );
        outcome
    }

    pub(super) fn delete(&mut self, key: &TimerKey, now: Timestamp) -> DeleteOutcome {
        let Some(row) = self.rows.get(key) else {
            return DeleteOutcome::NotFound;
        };
        if row.reached_at.is_some() {
            return DeleteOutcome::AlreadyReached;
        }
        if row.claim.is_some_and(|lease| lease.until > now) {
            return DeleteOutcome::Firing;
        }
        self.deleted
            .insert(key.clone(), deletion_time(row.registration, now));
        self.rows.remove(key);
        DeleteOutcome::Deleted
    }

    /// The timers that may be claimed, by when.
    pub(super) fn claimable(&self, now: Timestamp) -> Vec<(Timestamp, TimerKey)> {
        let free = |row: &Row| row.claim.is_none_or(|lease| lease.until <= now);
        let mut claimable: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| row.reached_at.is_none() && free(row))
            .map(|(key, row)| (row.ready_at(), key.clone()))
            .collect();
        claimable.sort();
        claimable
    }

    /// Takes over a claim that the store has given, after checking that it was right to.
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
        owner: u32,
        now: Timestamp,
    ) -> Result<(), String> {
        let Some(row) = self.rows.get_mut(&claim.timer.key) else {
            return Err(format!(
                "{:?} was claimed but does not exist",
                claim.timer.key
            ));
        };
        if row.reached_at.is_some() {
            return Err(format!(
                "{:?} was claimed after it was reached",
                claim.timer.key
            ));
        }
        if row.claim.is_some_and(|lease| lease.until > now) {
            return Err(format!("{:?} was claimed twice", claim.timer.key));
        }
        if row.ready_at() > now || row.registration.due_at > now {
            return Err(format!("{:?} was claimed early", claim.timer.key));
        }
        if (claim.timer.registration, claim.attempts) != (row.registration, row.attempts) {
            return Err(format!("{claim:?} is not the stored {row:?}"));
        }
        row.claim = Some(Lease {
            token: claim.token,
            until: now.saturating_add(LEASE),
            owner,
            made_at: now,
        });
        Ok(())
    }

    pub(super) fn mark(&mut self, claim: &Claim, reached_at: Timestamp) -> MarkOutcome {
        match self.rows.get_mut(&claim.timer.key) {
            None => MarkOutcome::NotFound,
            Some(row) if row.registration != claim.timer.registration => MarkOutcome::Moved,
            Some(row) if row.reached_at.is_some() => MarkOutcome::AlreadyReached,
            Some(row) => {
                row.reached_at = Some(reached_at);
                row.claim = None;
                row.retry_at = None;
                MarkOutcome::Marked
            }
        }
    }

    /// Changes a row if the claim is still its own.
    pub(super) fn settle(&mut self, claim: &Claim, change: impl FnOnce(&mut Row)) -> ClaimOutcome {
        match self.rows.get_mut(&claim.timer.key) {
            Some(row)
                if row.registration == claim.timer.registration
                    && row.claim.is_some_and(|lease| lease.token == claim.token) =>
            {
                change(row);
                ClaimOutcome::Applied
            }
            _ => ClaimOutcome::Lost,
        }
    }

    /// The same for a firing that failed, which is told apart from one of an older schedule.
    pub(super) fn settle_failed(
        &mut self,
        claim: &Claim,
        change: impl FnOnce(&mut Row),
    ) -> ClaimOutcome {
        match self.rows.get(&claim.timer.key) {
            Some(row) if row.registration != claim.timer.registration => ClaimOutcome::Moved,
            _ => self.settle(claim, change),
        }
    }

    /// Whether another worker may have claimed the timer since the claim's lease ended.
    pub(super) fn lease_has_ended(&self, claim: &Claim, now: Timestamp) -> bool {
        self.rows
            .get(&claim.timer.key)
            .and_then(|row| row.claim)
            .is_some_and(|lease| lease.token == claim.token && lease.until <= now)
    }

    /// Whether a lease has ended whose timer no worker has claimed again.
    pub(super) fn has_ended_leases(&self, now: Timestamp) -> bool {
        let mut claims = self.rows.values().filter_map(|row| row.claim);
        claims.any(|lease| lease.until <= now)
    }

    /// By when the end of another instance's lease has to be announced to an instance, at the latest. It
    /// need not know yet of a lease that was only just made.
    pub(super) fn foreign_lease_end(&self, instance: u32, now: Timestamp) -> Option<Timestamp> {
        let scheduled = self.rows.values().filter(|row| row.reached_at.is_none());
        let leases = scheduled.filter_map(|row| row.claim);
        let known = leases.filter(|lease| {
            let known_at = lease.made_at.saturating_add(LEASE_END_KNOWN_WITHIN);
            lease.owner != instance && lease.until > now && known_at <= now
        });
        let ends = known.map(|lease| lease.until.saturating_add(LEASE_END_KNOWN_WITHIN));
        ends.min()
    }

    /// What a purge may remove.
    pub(super) fn old(&self, before: Timestamp) -> usize {
        let reached = self.rows.values().filter_map(|row| row.reached_at);
        let all = reached.chain(self.deleted.values().copied());
        all.filter(|at| *at < before).count()
    }

    pub(super) fn crash(&mut self) {
        for row in self.rows.values_mut() {
            row.claim = None;
        }
    }
}
