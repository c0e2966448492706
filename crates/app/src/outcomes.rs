//! What became of what was asked for.

use punctual_ports::{DeleteOutcome, PortError, PortErrorKind, SaveOutcome};
use thiserror::Error;

use crate::{Error, ErrorKind};

/// What became of a schedule. The first two mean that the timer is stored and will fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScheduleOutcome {
    /// A new timer was stored.
    Created,
    /// The timer had not fired, and was moved to the new due time, with the new data.
    Rescheduled,
    /// The timer has fired already, and nothing was stored.
    /// [`replace`](crate::Punctual::replace) would let it fire again.
    AlreadyReached,
}

impl ScheduleOutcome {
    pub(crate) fn of(saved: Result<SaveOutcome, PortError>) -> Result<Self, Error> {
        match saved? {
            SaveOutcome::Created => Ok(Self::Created),
            // Only a redelivered command is `Unchanged`; whoever sees it has what it asked for.
            SaveOutcome::Rescheduled | SaveOutcome::Unchanged => Ok(Self::Rescheduled),
            SaveOutcome::AlreadyReached => Ok(Self::AlreadyReached),
            other => {
                let reason = format!("the store answered {other:?}");
                let kind = PortErrorKind::Rejected;
                Err(PortError::new(kind, "schedule a timer", reason).into())
            }
        }
    }
}

/// What became of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelOutcome {
    /// The timer is gone and will not fire.
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
/// To schedule the whole batch again is safe and often the simplest.
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
    fn what_was_never_asked_for_is_an_error_and_no_success() {
        assert!(ScheduleOutcome::of(Ok(SaveOutcome::Stale)).is_err());
        assert!(ScheduleOutcome::of(Ok(SaveOutcome::NoParent)).is_err());
    }
}
