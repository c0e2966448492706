//! The rows of the store and the indexes over them.
//!
//! Rows change only through [`State::put`] and [`State::take`], which keep all indexes in step, so
//! that no method can forget one.

use std::collections::{BTreeMap, BTreeSet};

use punctual_domain::{
    CorrelationId, Existing, Failures, ReachedTimer, ScheduledTimer, ServiceCallId, TenantId,
    TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{ClaimToken, DeadLetter, RecordOutcome, RemoveOutcome, StoredDeadLetter};

use super::instances::{ClaimsKnown, StoreClock};
use super::positions::Positions;

/// Lease on a row.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub(super) token: ClaimToken,
    /// By the store's clock, if it has one.
    pub(super) until: Timestamp,
    /// The instance that made the claim.
    pub(super) owner: u64,
}

#[derive(Clone)]
pub(super) struct Row {
    pub(super) timer: ScheduledTimer,
    pub(super) reached_at: Option<Timestamp>,
    pub(super) failures: Failures,
    pub(super) retry_at: Option<Timestamp>,
    pub(super) lease: Option<Lease>,
    /// The lease that the store has lost in a crash, until the timer is claimed again.
    pub(super) lost: Option<Lease>,
}

impl Row {
    pub(super) fn scheduled(timer: ScheduledTimer) -> Self {
        Self {
            timer,
            reached_at: None,
            failures: Failures::default(),
            retry_at: None,
            lease: None,
            lost: None,
        }
    }

    /// When it may be claimed: its due time, or its retry time after a failed firing, but never before its
    /// due time.
    pub(super) fn ready_at(&self) -> Timestamp {
        let due_at = self.timer.registration.due_at;
        self.retry_at
            .map_or(due_at, |retry_at| retry_at.max(due_at))
    }

    pub(super) fn reach(&mut self, reached_at: Timestamp) {
        self.reached_at = Some(reached_at);
        self.lease = None;
        self.lost = None;
        self.retry_at = None;
    }

    pub(super) fn entry(&self) -> TimerEntry {
        let failures = self.failures.clone();
        match self.reached() {
            None => TimerEntry::Scheduled {
                timer: self.timer.clone(),
                failures,
            },
            Some(timer) => TimerEntry::Reached { timer, failures },
        }
    }

    pub(super) fn reached(&self) -> Option<ReachedTimer> {
        let at = self.reached_at?;
        Some(ReachedTimer::restore(self.timer.clone(), at))
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) rows: BTreeMap<TimerKey, Row>,
    /// Tombstones, and when the timers were deleted.
    pub(super) tombstones: BTreeMap<TimerKey, Timestamp>,
    pub(super) dead_letters: DeadLetters,
    pub(super) positions: Positions,
    pub(super) clock: StoreClock,
    pub(super) claims_known: ClaimsKnown,
    /// Unclaimed scheduled rows, by when they may be claimed.
    pub(super) ready: BTreeSet<(Timestamp, TimerKey)>,
    /// The same by tenant, for sharing a claim between tenants.
    pub(super) ready_by_tenant: BTreeMap<TenantId, BTreeSet<(Timestamp, ServiceCallId)>>,
    /// Claimed rows, by when their lease expires.
    pub(super) leased: BTreeSet<(Timestamp, TimerKey)>,
    /// Reached rows, by when they were.
    pub(super) reached: BTreeSet<(Timestamp, TimerKey)>,
    pub(super) by_due: BTreeSet<(TenantId, Timestamp, ServiceCallId)>,
    pub(super) by_correlation: BTreeMap<CorrelationId, BTreeSet<TimerKey>>,
    /// The tenant that each instance served last when it had to share a claim.
    pub(super) last_served: BTreeMap<u64, TenantId>,
    pub(super) last_token: u64,
}

impl State {
    /// What is stored for a key, for the rules of scheduling.
    pub(super) fn existing(&self, key: &TimerKey) -> Existing {
        match self.rows.get(key) {
            Some(row) => Existing::timer(row.timer.registration, row.reached_at.is_some()),
            None => Existing::absent(self.tombstones.get(key).copied()),
        }
    }

    /// Takes a row out, to be put back changed, or not at all.
    pub(super) fn take(&mut self, key: &TimerKey) -> Option<Row> {
        let row = self.rows.remove(key)?;
        let (tenant, call) = (key.tenant_id.clone(), key.service_call_id);
        let due_at = row.timer.registration.due_at;
        self.by_due.remove(&(tenant, due_at, call));
        self.remove_correlated(row.timer.correlation_id, key);
        match (row.reached_at, row.lease) {
            (Some(at), _) => _ = self.reached.remove(&(at, key.clone())),
            (None, Some(lease)) => _ = self.leased.remove(&(lease.until, key.clone())),
            (None, None) => self.remove_ready(key, row.ready_at()),
        }
        Some(row)
    }

    /// Puts a row in, in place of any other with its key.
    pub(super) fn put(&mut self, row: Row) {
        let key = row.timer.key.clone();
        self.take(&key);
        let due_at = row.timer.registration.due_at;
        self.by_due
            .insert((key.tenant_id.clone(), due_at, key.service_call_id));
        self.by_correlation
            .entry(row.timer.correlation_id)
            .or_default()
            .insert(key.clone());
        match (row.reached_at, row.lease) {
            (Some(at), _) => _ = self.reached.insert((at, key.clone())),
            (None, Some(lease)) => _ = self.leased.insert((lease.until, key.clone())),
            (None, None) => {
                self.ready.insert((row.ready_at(), key.clone()));
                self.ready_by_tenant
                    .entry(key.tenant_id.clone())
                    .or_default()
                    .insert((row.ready_at(), key.service_call_id));
            }
        }
        self.rows.insert(key, row);
    }

    fn remove_correlated(&mut self, id: CorrelationId, key: &TimerKey) {
        if let Some(correlated) = self.by_correlation.get_mut(&id) {
            correlated.remove(key);
            if correlated.is_empty() {
                self.by_correlation.remove(&id);
            }
        }
    }

    fn remove_ready(&mut self, key: &TimerKey, at: Timestamp) {
        self.ready.remove(&(at, key.clone()));
        if let Some(of_tenant) = self.ready_by_tenant.get_mut(&key.tenant_id) {
            of_tenant.remove(&(at, key.service_call_id));
            if of_tenant.is_empty() {
                self.ready_by_tenant.remove(&key.tenant_id);
            }
        }
    }

    /// Ends all claims, which their owners do not know.
    pub(super) fn lose_claims(&mut self) {
        for row in self.rows.values_mut() {
            row.lost = row.lease.or(row.lost);
        }
        self.forget_claims();
        self.claims_known.lose();
    }

    /// Ends all claims.
    pub(super) fn forget_claims(&mut self) {
        self.end_leases_up_to(Timestamp::MAX);
    }

    /// Ends the claims whose lease expired.
    pub(super) fn end_leases_up_to(&mut self, now: Timestamp) {
        while let Some((until, key)) = self.leased.first().cloned() {
            if until > now {
                return;
            }
            if let Some(mut row) = self.take(&key) {
                row.lease = None;
                self.put(row);
            }
        }
    }
}

/// Dead letters in the order in which they came.
#[derive(Default)]
pub(super) struct DeadLetters {
    by_sequence: BTreeMap<u64, DeadLetter>,
    ids: BTreeSet<String>,
    last: u64,
}

impl DeadLetters {
    pub(super) fn record(&mut self, dead_letter: DeadLetter) -> RecordOutcome {
        if !self.ids.insert(dead_letter.id.clone()) {
            return RecordOutcome::AlreadyThere;
        }
        self.last += 1;
        self.by_sequence.insert(self.last, dead_letter);
        RecordOutcome::Recorded
    }

    pub(super) fn list(&self, after: Option<u64>, limit: usize) -> Vec<StoredDeadLetter> {
        let first = after.map_or(0, |sequence| sequence.saturating_add(1));
        self.by_sequence
            .range(first..)
            .take(limit)
            .map(|(&sequence, dead_letter)| StoredDeadLetter {
                sequence,
                dead_letter: dead_letter.clone(),
            })
            .collect()
    }

    pub(super) fn remove(&mut self, sequence: u64) -> RemoveOutcome {
        match self.by_sequence.remove(&sequence) {
            Some(dead_letter) => {
                self.ids.remove(&dead_letter.id);
                RemoveOutcome::Removed
            }
            None => RemoveOutcome::NotFound,
        }
    }
}
