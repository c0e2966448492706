//! Deduplication of submissions: new, repeated, or in conflict with an earlier one.
//!
//! Two submissions are the same if they have the same id or key and the same fingerprint. The rows are
//! tried from the top; "other" is any submission but the one under the id.
//!
//! | under the id ↓ / under the key → | nothing | the same | other |
//! |---|---|---|---|
//! | nothing | accepted | | repeated if the id was generated and the fingerprints match, else conflict of the key |
//! | its key or fingerprint differs, or the id was generated and the key is not its own | conflict of the id | conflict of the id | conflict of the id |
//! | else | repeated | repeated | conflict of the key |

use crate::{CorrelationId, ServiceCallId, Timestamp};

/// Hash of everything in which two equal submissions agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// Receipt of a submission, the same for every repetition of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The id of the call.
    pub service_call_id: ServiceCallId,
    /// The request that the call belongs to.
    pub correlation_id: CorrelationId,
    /// When the call was accepted.
    pub submitted_at: Timestamp,
}

/// Outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitOutcome {
    /// The call was stored.
    Accepted(Receipt),
    /// The same call was submitted before. Nothing was stored.
    Repeated(Receipt),
    /// A different call was submitted before under the same id or key. Nothing was stored.
    Conflict {
        /// The field that is in use.
        field: ConflictField,
        /// The call that uses it.
        by: ServiceCallId,
    },
}

/// The field in which a submission conflicts with an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictField {
    /// The service call id.
    Id,
    /// The idempotency key.
    Key,
}

/// What is kept of a submission to recognise its repetitions, as a new one has it and as a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmissionRecord<'a> {
    /// Its receipt.
    pub receipt: Receipt,
    /// Its idempotency key.
    pub idempotency_key: Option<&'a str>,
    /// The bytes of its fingerprint.
    pub fingerprint: &'a [u8],
}

impl SubmissionRecord<'_> {
    /// Decides the outcome of this submission, given the ones of its tenant under its id and under its key.
    /// Only an accepted one is to be stored.
    pub fn decide(
        &self,
        id_was_given: bool,
        of_id: Option<SubmissionRecord<'_>>,
        of_key: Option<SubmissionRecord<'_>>,
    ) -> SubmitOutcome {
        let is_same = |it: &SubmissionRecord<'_>| it.fingerprint == self.fingerprint;
        let has_id =
            |it: &SubmissionRecord<'_>| it.receipt.service_call_id == self.receipt.service_call_id;
        let Some(before) = of_id else {
            return match of_key {
                None => SubmitOutcome::Accepted(self.receipt),
                Some(before) if !id_was_given && is_same(&before) => {
                    SubmitOutcome::Repeated(before.receipt)
                }
                Some(before) => before.conflict(ConflictField::Key),
            };
        };
        let is_meant = id_was_given || of_key.as_ref().is_some_and(has_id);
        let keys = before.idempotency_key.zip(self.idempotency_key);
        let is_other_key = keys.is_some_and(|(before, now)| before != now);
        if !is_meant || is_other_key || !is_same(&before) {
            return before.conflict(ConflictField::Id);
        }
        match of_key.filter(|it| !has_id(it)) {
            Some(other) => other.conflict(ConflictField::Key),
            None => SubmitOutcome::Repeated(before.receipt),
        }
    }

    const fn conflict(&self, field: ConflictField) -> SubmitOutcome {
        SubmitOutcome::Conflict {
            field,
            by: self.receipt.service_call_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn sent(id: u128, key: &'static str, print: &'static str) -> SubmissionRecord<'static> {
        SubmissionRecord {
            receipt: Receipt {
                service_call_id: ServiceCallId::from_uuid(Uuid::from_u128(id)),
                correlation_id: CorrelationId::from_uuid(Uuid::from_u128(id)),
                submitted_at: Timestamp::MIN,
            },
            idempotency_key: Some(key).filter(|key| !key.is_empty()),
            fingerprint: print.as_bytes(),
        }
    }

    #[test]
    fn a_submission_is_new_repeated_or_in_conflict() {
        use ConflictField::{Id, Key};
        let (first, keyless, other) = (sent(1, "k", "a"), sent(1, "", "a"), sent(2, "j", "a"));
        let new = SubmitOutcome::Accepted(first.receipt);
        let same = SubmitOutcome::Repeated(first.receipt);
        let (of_first, of_keyless, of_other) = (Some(first), Some(keyless), Some(other));
        let (by_key, by_id) = (first.conflict(Key), first.conflict(Id));
        let (given, generated) = (true, false);
        for (number, (it, id, of_id, of_key, expected)) in [
            (first, given, None, None, &new),
            (first, generated, None, None, &new),
            // Under the key only.
            (sent(3, "k", "a"), generated, None, of_first, &same),
            (sent(3, "k", "a"), given, None, of_first, &by_key),
            (sent(3, "k", "b"), generated, None, of_first, &by_key),
            // Under the id only.
            (keyless, given, of_first, None, &same),
            (first, given, of_keyless, None, &same),
            (keyless, generated, of_first, None, &by_id),
            (sent(1, "", "b"), given, of_first, None, &by_id),
            (sent(1, "j", "a"), given, of_first, None, &by_id),
            // Under both.
            (first, given, of_first, of_first, &same),
            (first, generated, of_first, of_first, &same),
            (sent(1, "k", "b"), generated, of_first, of_first, &by_id),
            (
                sent(1, "j", "a"),
                given,
                of_keyless,
                of_other,
                &other.conflict(Key),
            ),
            (
                sent(1, "j", "a"),
                generated,
                of_keyless,
                of_other,
                &keyless.conflict(Id),
            ),
            (sent(1, "j", "a"), given, of_first, of_other, &by_id),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(it.decide(id, of_id, of_key), *expected, "case {number}");
        }
    }
}
