//! All that is stored, in memory: the log replayed, and the leases of this process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use punctual::ports::schedule_order::deletion_time;
use punctual::ports::{
    BusPosition, Claim, ClaimBatch, ClaimOutcome, ClaimRef, ClaimToken, DeadLetter,
    DeadLetterClaim, DeleteOutcome, Existing, Failures, FiredTimer, MarkOutcome, PortError,
    ReachedTimer, RecordOutcome, Registration, RemoveOutcome, RetryLater, SaveOutcome, SaveTimer,
    ScheduledTimer, ServiceCallId, TenantId, TimerEntry, TimerKey, Timestamp,
};

use crate::log::Record;

pub(crate) struct Row {
    pub(crate) entry: TimerEntry,
    retry_at: Option<Timestamp>,
}

impl Row {
    /// When it may be claimed: never before its due time, and never again once it was reached.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        let due_at = self.entry.timer().registration.due_at;
        let ready_at = self
            .retry_at
            .map_or(due_at, |retry_at| retry_at.max(due_at));
        self.entry.reached_at().is_none().then_some(ready_at)
    }
}

struct Lease {
    token: ClaimToken,
    until: Timestamp,
}

type Ready = BTreeSet<(Timestamp, ServiceCallId)>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) timers: BTreeMap<TimerKey, Row>,
    pub(crate) tombstones: BTreeMap<TimerKey, Timestamp>,
    pub(crate) dead_letters: BTreeMap<u64, DeadLetter>,
    pub(crate) positions: BTreeMap<String, BusPosition>,
    last_sequence: u64,
    /// The scheduled timers that are not leased, by when they may be claimed.
    ready: BTreeMap<TenantId, Ready>,
    leases: BTreeMap<TimerKey, Lease>,
    last_token: u64,
    /// The tenant whose turn was the last.
    last_served: Option<TenantId>,
    /// The changes that are made here and not yet in the log.
    pub(crate) unsynced: Vec<u8>,
}

impl State {
    /// Makes a change: all of its records or, after a kill, none.
    fn change(&mut self, records: Vec<Record>) {
        serde_json::to_writer(&mut self.unsynced, &records).expect("records are JSON");
        self.unsynced.push(b'\n');
        records.into_iter().for_each(|record| self.apply(record));
    }

    /// What a record means, now and when the log is replayed.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Timer { entry, retry_at } => {
                let key = entry.timer().key.clone();
                self.forget(&key);
                self.timers.insert(key.clone(), Row { entry, retry_at });
                self.make_ready(&key);
            }
            Record::Deleted(tenant, call, deleted_at) => {
                let key = TimerKey::new(tenant, call);
                self.forget(&key);
                self.tombstones.insert(key, deleted_at);
            }
            Record::Purged(tenant, call) => self.forget(&TimerKey::new(tenant, call)),
            Record::DeadLetter(sequence, dead_letter) => {
                self.last_sequence = sequence;
                self.dead_letters.insert(sequence, dead_letter);
            }
            Record::DeadLetterRemoved(sequence) => _ = self.dead_letters.remove(&sequence),
            Record::Position(it) => _ = self.positions.insert(it.stream.clone(), it),
        }
    }

    fn forget(&mut self, key: &TimerKey) {
        self.leases.remove(key);
        self.tombstones.remove(key);
        if let Some(at) = self.timers.remove(key).and_then(|row| row.ready_at()) {
            self.make_unready(key, at);
        }
    }

    fn make_ready(&mut self, key: &TimerKey) {
        if let Some(at) = self.timers.get(key).and_then(Row::ready_at) {
            let of_tenant = self.ready.entry(key.tenant_id.clone()).or_default();
            of_tenant.insert((at, key.service_call_id));
        }
    }

    fn make_unready(&mut self, key: &TimerKey, at: Timestamp) {
        if let Some(of_tenant) = self.ready.get_mut(&key.tenant_id) {
            of_tenant.remove(&(at, key.service_call_id));
            if of_tenant.is_empty() {
                self.ready.remove(&key.tenant_id);
            }
        }
    }

    fn existing(&self, key: &TimerKey) -> Existing {
        let absent = || Existing::absent(self.tombstones.get(key).copied());
        self.timers.get(key).map_or_else(absent, |row| {
            let is_reached = row.entry.reached_at().is_some();
            Existing::timer(row.entry.timer().registration, is_reached)
        })
    }

    pub(crate) fn save(&mut self, timer: SaveTimer, now: Timestamp) -> SaveOutcome {
        // The rules are the same for every store, so they are not written again here.
        let existing = self.existing(&timer.key);
        let decision = timer.origin.decide(existing, timer.due_at, now);
        let Some(registered_at) = decision.registered_at() else {
            return decision.into();
        };
        let registration = Registration {
            registered_at,
            due_at: timer.due_at,
        };
        let entry = TimerEntry::Scheduled {
            timer: ScheduledTimer {
                key: timer.key,
                correlation_id: timer.correlation_id,
                registration,
                data: timer.data,
            },
            failures: Failures::default(),
        };
        let retry_at = None;
        self.change(vec![Record::Timer { entry, retry_at }]);
        decision.into()
    }

    pub(crate) fn mark_fired(&mut self, fired: &FiredTimer) -> Result<MarkOutcome, PortError> {
        fired.check()?;
        let firing = &fired.firing_id;
        let outcome = self.existing(&firing.key).mark(firing.registration);
        if let (MarkOutcome::Marked, Some(row)) = (outcome, self.timers.get(&firing.key)) {
            let (timer, failures) = (row.entry.timer().clone(), row.entry.failures().clone());
            self.change(vec![reached(timer, fired.reached_at, failures)]);
        }
        Ok(outcome)
    }

    pub(crate) fn delete(&mut self, key: TimerKey, now: Timestamp) -> DeleteOutcome {
        let is_leased = || self.leases.get(&key).is_some_and(|lease| lease.until > now);
        let outcome = self.existing(&key).delete(is_leased);
        if let (DeleteOutcome::Deleted, Some(row)) = (outcome, self.timers.get(&key)) {
            let deleted_at = deletion_time(row.entry.timer().registration, now);
            let record = Record::Deleted(key.tenant_id, key.service_call_id, deleted_at);
            self.change(vec![record]);
        }
        outcome
    }

    pub(crate) fn purge(&mut self, before: Timestamp, limit: usize) -> usize {
        let reached = self
            .timers
            .iter()
            .filter_map(|(key, row)| Some((key, row.entry.reached_at()?)));
        let deleted = self
            .tombstones
            .iter()
            .map(|(key, deleted_at)| (key, *deleted_at));
        let old = reached.chain(deleted).filter(|(_, at)| *at < before);
        let old: Vec<TimerKey> = old.take(limit).map(|(key, _)| key.clone()).collect();
        for key in &old {
            let (tenant, call) = (key.tenant_id.clone(), key.service_call_id);
            self.change(vec![Record::Purged(tenant, call)]);
        }
        old.len()
    }

    pub(crate) fn claim_due(
        &mut self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: &BTreeSet<TenantId>,
    ) -> ClaimBatch {
        let expired = self.leases.extract_if(.., |_, lease| lease.until <= now);
        for (key, _) in expired.collect::<Vec<_>>() {
            self.make_ready(&key);
        }
        let (chosen, more_due) = self.choose(now, limit, excluded);
        let until = now.saturating_add(lease);
        let claims = chosen
            .into_iter()
            .map(|(at, key)| self.claim(at, key, until));
        let claims = claims.collect();
        let of_others = self
            .ready
            .iter()
            .filter(|(tenant, _)| !excluded.contains(tenant));
        let later = of_others.filter_map(|(_, ready)| {
            ready
                .range((Excluded((now, ServiceCallId::MAX)), Unbounded))
                .next()
        });
        let next_due_at = later.map(|(at, _)| *at).min();
        ClaimBatch {
            claims,
            more_due,
            next_due_at,
        }
    }

    /// The newest, so that it does not wait for a backlog, and then the oldest of each tenant in turn,
    /// until all are chosen or the limit is reached; and whether more is due.
    fn choose(
        &mut self,
        now: Timestamp,
        limit: usize,
        excluded: &BTreeSet<TenantId>,
    ) -> (BTreeSet<(Timestamp, TimerKey)>, bool) {
        let of_others = self
            .ready
            .iter()
            .filter(|(tenant, _)| !excluded.contains(tenant));
        let due = of_others.map(|(tenant, ready)| {
            let due = ready.range(..=(now, ServiceCallId::MAX));
            let with_key = move |&(at, call)| (at, TimerKey::new(tenant.clone(), call));
            (tenant, due.map(with_key))
        });
        let (served, mut due): (VecDeque<_>, VecDeque<_>) =
            due.partition(|(tenant, _)| Some(*tenant) <= self.last_served.as_ref());
        due.extend(served);
        let mut chosen = BTreeSet::new();
        if limit >= 4 {
            chosen.extend(
                due.iter()
                    .filter_map(|(_, due)| due.clone().next_back())
                    .max(),
            );
        }
        let mut last_served = None;
        while chosen.len() < limit
            && let Some((tenant, mut of_tenant)) = due.pop_front()
        {
            if let Some(oldest) = of_tenant.next() {
                last_served = Some(tenant.clone());
                chosen.insert(oldest);
                due.push_back((tenant, of_tenant));
            }
        }
        let more_due = due
            .into_iter()
            .flat_map(|(_, due)| due)
            .any(|it| !chosen.contains(&it));
        self.last_served = last_served.or(self.last_served.take());
        (chosen, more_due)
    }

    fn claim(&mut self, ready_at: Timestamp, key: TimerKey, until: Timestamp) -> Claim {
        self.make_unready(&key, ready_at);
        self.last_token += 1;
        let token = ClaimToken(self.last_token);
        let entry = &self.timers[&key].entry;
        let claim = Claim {
            timer: entry.timer().clone(),
            attempts: entry.failures().attempts,
            token,
            lease_until: until,
        };
        self.leases.insert(key, Lease { token, until });
        claim
    }

    /// The lease of a claim, if it is still the current one of its timer.
    fn lease(&mut self, claim: &ClaimRef) -> Option<&mut Lease> {
        let lease = self.leases.get_mut(&claim.firing_id.key);
        lease.filter(|lease| lease.token == claim.token)
    }

    /// The timer of a current claim and its failures; or why the claim is not current.
    fn claimed(&mut self, claim: &ClaimRef) -> Result<(ScheduledTimer, Failures), ClaimOutcome> {
        let is_current = self.lease(claim).is_some();
        match self.timers.get(&claim.firing_id.key).map(|row| &row.entry) {
            Some(entry) if is_current => Ok((entry.timer().clone(), entry.failures().clone())),
            _ => {
                let existing = self.existing(&claim.firing_id.key);
                Err(ClaimOutcome::of_lost(claim, existing))
            }
        }
    }

    pub(crate) fn retry_later(&mut self, retry: RetryLater) -> Result<(), ClaimOutcome> {
        let (timer, mut failures) = self.claimed(&retry.claim)?;
        failures.attempts = failures.attempts.saturating_add(1);
        failures.last_error = Some(retry.reason);
        let entry = TimerEntry::Scheduled { timer, failures };
        let retry_at = Some(retry.retry_at);
        self.change(vec![Record::Timer { entry, retry_at }]);
        Ok(())
    }

    pub(crate) fn dead_letter(&mut self, dead: DeadLetterClaim) -> Result<(), ClaimOutcome> {
        let (timer, mut failures) = self.claimed(&dead.claim)?;
        failures.last_error = Some(dead.dead_letter.reason.clone());
        // One change: a kill leaves both the dead letter and the reached timer, or neither.
        let mut records = vec![reached(timer, dead.reached_at, failures)];
        records.extend(self.new_dead_letter(dead.dead_letter));
        self.change(records);
        Ok(())
    }

    pub(crate) fn release(&mut self, claim: &ClaimRef) -> ClaimOutcome {
        if self.lease(claim).is_none() {
            return ClaimOutcome::Lost;
        }
        self.leases.remove(&claim.firing_id.key);
        self.make_ready(&claim.firing_id.key);
        ClaimOutcome::Applied
    }

    pub(crate) fn renew(&mut self, claim: &ClaimRef, until: Timestamp) -> ClaimOutcome {
        let Some(lease) = self.lease(claim) else {
            return ClaimOutcome::Lost;
        };
        lease.until = until;
        ClaimOutcome::Applied
    }

    fn new_dead_letter(&self, dead_letter: DeadLetter) -> Option<Record> {
        let is_there = self.dead_letters.values().any(|it| it.id == dead_letter.id);
        (!is_there).then(|| Record::DeadLetter(self.last_sequence + 1, dead_letter))
    }

    pub(crate) fn record(&mut self, dead_letter: DeadLetter) -> RecordOutcome {
        let Some(record) = self.new_dead_letter(dead_letter) else {
            return RecordOutcome::AlreadyThere;
        };
        self.change(vec![record]);
        RecordOutcome::Recorded
    }

    pub(crate) fn remove(&mut self, sequence: u64) -> RemoveOutcome {
        if !self.dead_letters.contains_key(&sequence) {
            return RemoveOutcome::NotFound;
        }
        self.change(vec![Record::DeadLetterRemoved(sequence)]);
        RemoveOutcome::Removed
    }

    pub(crate) fn save_position(&mut self, position: BusPosition) {
        self.change(vec![Record::Position(position)]);
    }
}

fn reached(timer: ScheduledTimer, reached_at: Timestamp, failures: Failures) -> Record {
    let timer = ReachedTimer::restore(timer, reached_at);
    Record::Timer {
        entry: TimerEntry::Reached { timer, failures },
        retry_at: None,
    }
}
