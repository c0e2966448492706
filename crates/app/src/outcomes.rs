//! The outcomes of calls.

use punctual_domain::TimerKey;
use punctual_ports::{DeleteOutcome, PortError, PortErrorKind, SaveOutcome};
use thiserror::Error;

use crate::{Error, ErrorKind};

/// What became of a schedule: whichever it is, the timer is stored and will fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "`Rescheduled` means that a timer was moved, which starts over what was overdue: for what is scheduled at every start, call `ensure`; if it does not matter, write `let _ =`"]
#[non_exhaustive]
pub enum ScheduleOutcome {
    /// A new timer was stored.
    Created,
    /// The timer had not fired, and was moved to the new due time, with the new data.
    Rescheduled,
}

impl ScheduleOutcome {
    pub(crate) fn of(saved: Result<SaveOutcome, PortError>, key: &TimerKey) -> Result<Self, Error> {
        match saved? {
            SaveOutcome::Created => Ok(Self::Created),
            SaveOutcome::Rescheduled => Ok(Self::Rescheduled),
            other => Err(not_scheduled(other, key)),
        }
    }
}

/// What became of a timer that was to exist: whichever it is, the timer is stored and will fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnsureOutcome {
    /// A new timer was stored.
    Created,
    /// The timer exists and has not fired: due time, data and everything else are as they were.
    AlreadyScheduled,
}

impl EnsureOutcome {
    pub(crate) fn of(saved: Result<SaveOutcome, PortError>, key: &TimerKey) -> Result<Self, Error> {
        match saved? {
            SaveOutcome::Created => Ok(Self::Created),
            SaveOutcome::Unchanged => Ok(Self::AlreadyScheduled),
            other => Err(not_scheduled(other, key)),
        }
    }
}

/// An outcome after which the timer does not fire is an error, so that `?` cannot lose it.
fn not_scheduled(outcome: SaveOutcome, key: &TimerKey) -> Error {
    if outcome == SaveOutcome::AlreadyReached {
        return Error::already_reached(key);
    }
    let reason = format!("the store answered {outcome:?}");
    PortError::new(PortErrorKind::Rejected, "schedule a timer", reason).into()
}

/// What became of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "only `Cancelled` means that the timer will not fire; if it does not matter, write `let _ =`"]
#[non_exhaustive]
pub enum CancelOutcome {
    /// The timer is deleted and will not fire.
    Cancelled,
    /// Its event may be on its way at this very moment, and it was left alone.
    Firing,
    /// It has fired already.
    AlreadyReached,
    /// There is no such timer.
    NotFound,
}

impl CancelOutcome {
    pub(crate) fn of(deleted: Result<DeleteOutcome, PortError>) -> Result<Self, Error> {
        match deleted? {
            DeleteOutcome::Deleted => Ok(Self::Cancelled),
            DeleteOutcome::Firing => Ok(Self::Firing),
            DeleteOutcome::AlreadyReached => Ok(Self::AlreadyReached),
            DeleteOutcome::NotFound => Ok(Self::NotFound),
            other => {
                let reason = format!("the store answered {other:?}");
                let kind = PortErrorKind::Rejected;
                Err(PortError::new(kind, "cancel a timer", reason).into())
            }
        }
    }
}

/// Some timers of a batch were not scheduled. The others were.
///
/// If it [may be retried](Self::is_retryable), to schedule the complete batch again is safe and often the
/// simplest.
#[derive(Debug, Clone, Error)]
#[error(
    "{failed} of {} timers were not scheduled; the first of them, number {first_place}, because: {first}",
    outcomes.len()
)]
pub struct BatchError {
    outcomes: Vec<Result<ScheduleOutcome, Error>>,
    failed: usize,
    first_place: usize,
    first: Error,
}

impl BatchError {
    /// All outcomes if every timer was scheduled, else the error that holds them.
    pub(crate) fn check(
        outcomes: Vec<Result<ScheduleOutcome, Error>>,
    ) -> Result<Vec<ScheduleOutcome>, Self> {
        let failures = || {
            let numbered = outcomes.iter().zip(1..);
            numbered.filter_map(|(one, number)| one.as_ref().err().map(|error| (number, error)))
        };
        match failures().next() {
            None => Ok(outcomes.into_iter().flatten().collect()),
            Some((first_place, first)) => Err(Self {
                failed: failures().count(),
                first_place,
                first: first.clone(),
                outcomes,
            }),
        }
    }

    /// What became of each timer, in the order in which they were given.
    pub fn outcomes(&self) -> &[Result<ScheduleOutcome, Error>] {
        &self.outcomes
    }

    /// Whether to schedule the batch again may bring it further.
    pub fn is_retryable(&self) -> bool {
        let mut failures = self.outcomes.iter().filter_map(|one| one.as_ref().err());
        failures.any(Error::is_retryable)
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        let kind = if error.is_retryable() {
            ErrorKind::Unavailable
        } else {
            error.first.kind()
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_tells_how_many_failed_and_which_first() {
        let full = Error::new(ErrorKind::Full, "no room");
        let outcomes = vec![
            Ok(ScheduleOutcome::Created),
            Err(full.clone()),
            Ok(ScheduleOutcome::Rescheduled),
            Err(full),
        ];
        let error = BatchError::check(outcomes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 of 4 timers were not scheduled; the first of them, number 2, because: no room"
        );
        assert!(error.is_retryable());
        assert_eq!(error.outcomes().len(), 4);
        assert!(Error::from(error).is_retryable());
    }

    #[test]
    fn an_outcome_without_a_timer_that_will_fire_is_an_error_and_no_success() {
        let key = TimerKey::named(punctual_domain::TenantId::default(), "a");
        for (outcome, kind) in [
            (SaveOutcome::Stale, ErrorKind::Rejected),
            (SaveOutcome::NoParent, ErrorKind::Rejected),
            (SaveOutcome::AlreadyReached, ErrorKind::AlreadyReached),
        ] {
            let scheduled = ScheduleOutcome::of(Ok(outcome), &key);
            assert_eq!(scheduled.unwrap_err().kind(), kind);
            let ensured = EnsureOutcome::of(Ok(outcome), &key);
            assert_eq!(ensured.unwrap_err().kind(), kind);
        }
        assert!(ScheduleOutcome::of(Ok(SaveOutcome::Unchanged), &key).is_err());
        assert!(EnsureOutcome::of(Ok(SaveOutcome::Rescheduled), &key).is_err());
    }
}
