//! Deduplication of submissions: new, repeated or in conflict.

use std::collections::BTreeMap;

use punctual_domain::service_call::IdempotencyKey;
use punctual_domain::{TenantId, TimerKey, Timestamp};
use punctual_ports::{ConflictField, Fingerprint, NewCall, Receipt, SubmitOutcome};

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
        if let Some(taken) = self.submissions.judge(&new) {
            return taken;
        }
        let receipt = self.submissions.add(&new);
        self.calls.insert(new.call);
        self.outbox.append(new.outbox);
        SubmitOutcome::Accepted(receipt)
    }
}

impl Submissions {
    /// The outcome if the id or key was used before; `None` if neither was.
    fn judge(&self, new: &NewCall) -> Option<SubmitOutcome> {
        let key = &new.call.details().key;
        let of_key = self.of_key(key, new.idempotency_key.as_ref());
        let Some(before) = self.by_id.get(key) else {
            let before = self.by_id.get(of_key?)?;
            let is_same = !new.id_was_given && before.fingerprint == new.fingerprint;
            return Some(before.answer(is_same, ConflictField::Key));
        };
        let is_meant = new.id_was_given || of_key == Some(key);
        let given = (&before.idempotency_key, &new.idempotency_key);
        let is_other_key = matches!(given, (Some(before), Some(now)) if before != now);
        if !is_meant || is_other_key || before.fingerprint != new.fingerprint {
            return Some(before.answer(false, ConflictField::Id));
        }
        match of_key.filter(|of_key| *of_key != key) {
            Some(other) => Some(self.by_id.get(other)?.answer(false, ConflictField::Key)),
            None => Some(before.answer(true, ConflictField::Id)),
        }
    }

    fn of_key(&self, call: &TimerKey, key: Option<&IdempotencyKey>) -> Option<&TimerKey> {
        self.by_key.get(&(call.tenant_id.clone(), key?.clone()))
    }

    fn add(&mut self, new: &NewCall) -> Receipt {
        let details = new.call.details();
        let receipt = Receipt {
            service_call_id: details.key.service_call_id,
            correlation_id: details.correlation_id,
            submitted_at: details.submitted_at,
        };
        if let Some(key) = new.idempotency_key.clone() {
            let tenant_id = details.key.tenant_id.clone();
            self.by_key.insert((tenant_id, key), details.key.clone());
        }
        let submission = Submission {
            idempotency_key: new.idempotency_key.clone(),
            fingerprint: new.fingerprint,
            receipt,
            deleted_at: None,
        };
        self.by_id.insert(details.key.clone(), submission);
        receipt
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
    const fn answer(&self, is_same: bool, field: ConflictField) -> SubmitOutcome {
        if is_same {
            return SubmitOutcome::Repeated(self.receipt);
        }
        SubmitOutcome::Conflict {
            field,
            by: self.receipt.service_call_id,
        }
    }
}
