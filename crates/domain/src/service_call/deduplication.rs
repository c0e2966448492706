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

    fn submission(
        id: u128,
        key: Option<&'static str>,
        print: &'static str,
    ) -> SubmissionRecord<'static> {
        SubmissionRecord {
            receipt: Receipt {
                service_call_id: ServiceCallId::from_uuid(Uuid::from_u128(id)),
                correlation_id: CorrelationId::from_uuid(Uuid::from_u128(id)),
                submitted_at: Timestamp::MIN,
            },
            idempotency_key: key,
            fingerprint: print.as_bytes(),
        }
    }

    #[test]
    fn a_submission_is_new_repeated_or_in_conflict() {
        use ConflictField::{Id, Key};
        let first = submission(1, Some("k"), "a");
        let keyless = submission(1, None, "a");
        let other = submission(2, Some("j"), "a");
        let accepted = |it: SubmissionRecord<'_>| SubmitOutcome::Accepted(it.receipt);
        let repeated = SubmitOutcome::Repeated(first.receipt);
        let (of_first, of_other) = (Some(first), Some(other));
        let cases = [
            (first, true, None, None, accepted(first)),
            (first, false, None, None, accepted(first)),
            // Under the key only.
            (
                submission(3, Some("k"), "a"),
                false,
                None,
                of_first,
                repeated.clone(),
            ),
            (
                submission(3, Some("k"), "a"),
                true,
                None,
                of_first,
                first.conflict(Key),
            ),
            (
                submission(3, Some("k"), "b"),
                false,
                None,
                of_first,
                first.conflict(Key),
            ),
            // Under the id.
            (keyless, true, of_first, None, repeated.clone()),
            (first, true, Some(keyless), None, repeated.clone()),
            (keyless, false, of_first, None, first.conflict(Id)),
            (
                submission(1, None, "b"),
                true,
                of_first,
                None,
                first.conflict(Id),
            ),
            (
                submission(1, Some("j"), "a"),
                true,
                of_first,
                None,
                first.conflict(Id),
            ),
            // Under both.
            (first, true, of_first, of_first, repeated.clone()),
            (first, false, of_first, of_first, repeated),
            (
                submission(1, Some("k"), "b"),
                false,
                of_first,
                of_first,
                first.conflict(Id),
            ),
            (
                submission(1, Some("j"), "a"),
                true,
                Some(keyless),
                of_other,
                other.conflict(Key),
            ),
            (
                submission(1, Some("j"), "a"),
                false,
                Some(keyless),
                of_other,
                keyless.conflict(Id),
            ),
            (
                submission(1, Some("j"), "a"),
                true,
                of_first,
                of_other,
                first.conflict(Id),
            ),
        ];
        for (new, id_was_given, of_id, of_key, expected) in cases {
            let outcome = new.decide(id_was_given, of_id, of_key);
            assert_eq!(outcome, expected, "{new:?}, id given: {id_was_given}");
        }
    }
}
