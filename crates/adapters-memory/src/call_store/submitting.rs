//! The submissions of calls, by which repetitions are recognised.

use std::collections::BTreeMap;

use punctual_domain::service_call::{IdempotencyKey, SubmissionRecord};
use punctual_domain::{TenantId, TimerKey, Timestamp};
use punctual_ports::{Fingerprint, NewCall, Receipt, SubmitOutcome};

use super::State;

/// Record of a submission.
struct Submission {
    idempotency_key: Option<IdempotencyKey>,
    fingerprint: Fingerprint,
    receipt: Receipt,
    deleted_at: Option<Timestamp>,
}

/// All submissions, by id and by idempotency key.
#[derive(Default)]
pub(super) struct Submissions {
    by_id: BTreeMap<TimerKey, Submission>,
    by_key: BTreeMap<(TenantId, IdempotencyKey), TimerKey>,
}

impl State {
    pub(super) fn submit(&mut self, new: NewCall) -> SubmitOutcome {
        let outcome = self.submissions.decide(&new);
        if matches!(outcome, SubmitOutcome::Accepted(_)) {
            self.submissions.add(&new);
            self.calls.insert(new.call);
            self.outbox.append(new.outbox, new.listeners);
        }
        outcome
    }
}

impl Submissions {
    fn decide(&self, new: &NewCall) -> SubmitOutcome {
        let record = |key: &TimerKey| self.by_id.get(key).map(Submission::record);
        let key = &new.call.details().key;
        let given = new.idempotency_key.clone();
        let of_key = given.and_then(|given| self.by_key.get(&(key.tenant_id.clone(), given)));
        new.decide(record(key), of_key.and_then(record))
    }

    fn add(&mut self, new: &NewCall) {
        let key = &new.call.details().key;
        if let Some(given) = new.idempotency_key.clone() {
            let given = (key.tenant_id.clone(), given);
            self.by_key.insert(given, key.clone());
        }
        let submission = Submission {
            idempotency_key: new.idempotency_key.clone(),
            fingerprint: new.fingerprint,
            receipt: new.receipt(),
            deleted_at: None,
        };
        self.by_id.insert(key.clone(), submission);
    }

    /// Whether an id is taken, also by a call that was deleted or purged.
    pub(super) fn has(&self, key: &TimerKey) -> bool {
        self.by_id.contains_key(key)
    }

    /// Makes a submission the tombstone of its call: the id and the key stay taken until it is purged.
    pub(super) fn tombstone(&mut self, key: &TimerKey, at: Timestamp) {
        if let Some(submission) = self.by_id.get_mut(key) {
            submission.deleted_at = Some(at);
        }
    }

    pub(super) fn purge(&mut self, before: Timestamp, limit: usize) -> usize {
        let is_old = |it: &Submission| it.deleted_at.is_some_and(|at| at < before);
        let old = self.by_id.iter().filter(|(_, it)| is_old(it));
        let old: Vec<TimerKey> = old.take(limit).map(|(key, _)| key.clone()).collect();
        for key in &old {
            let submission = self.by_id.remove(key);
            if let Some(taken) = submission.and_then(|it| it.idempotency_key) {
                self.by_key.remove(&(key.tenant_id.clone(), taken));
            }
        }
        old.len()
    }
}

impl Submission {
    fn record(&self) -> SubmissionRecord<'_> {
        SubmissionRecord {
            receipt: self.receipt,
            idempotency_key: self.idempotency_key.as_ref().map(IdempotencyKey::as_str),
            fingerprint: &self.fingerprint.0,
        }
    }
}
