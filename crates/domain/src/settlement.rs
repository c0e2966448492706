//! The effect of a mark or a deletion on what is stored for its key.
//!
//! A mark applies only to the very schedule that fired: a timer that was rescheduled meanwhile fires by
//! itself. A deletion applies only to a timer that nobody is firing, so that a deleted timer never fires.

use crate::{Existing, Registration};

/// Outcome of marking a timer as fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MarkOutcome {
    /// The timer is reached now.
    Marked,
    /// The timer was marked before.
    AlreadyReached,
    /// The timer was rescheduled since: the new schedule fires, or has fired, by itself.
    Moved,
    /// The timer no longer exists.
    NotFound,
}

/// Outcome of deleting a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeleteOutcome {
    /// The timer is deleted and does not fire.
    Deleted,
    /// The timer is being fired. Nothing was changed.
    Firing,
    /// The timer has already fired. Nothing was changed.
    AlreadyReached,
    /// The timer does not exist.
    NotFound,
}

impl Existing {
    /// Whether a timer is stored with another schedule than the one that was fired.
    pub fn is_moved_from(self, fired: Registration) -> bool {
        match self {
            Self::Scheduled(stored) | Self::Reached(stored) => stored != fired,
            Self::Nothing | Self::Deleted { .. } => false,
        }
    }

    /// Decides whether a firing of this schedule may be marked. Only `Marked` is to be written.
    pub fn mark(self, fired: Registration) -> MarkOutcome {
        match self {
            Self::Nothing | Self::Deleted { .. } => MarkOutcome::NotFound,
            _ if self.is_moved_from(fired) => MarkOutcome::Moved,
            Self::Reached(_) => MarkOutcome::AlreadyReached,
            Self::Scheduled(_) => MarkOutcome::Marked,
        }
    }

    /// Decides whether the timer may be deleted. Only `Deleted` is to be written. Whether it is being
    /// fired is evaluated only for a timer that could be.
    pub fn delete(self, is_firing: impl FnOnce() -> bool) -> DeleteOutcome {
        match self {
            Self::Nothing | Self::Deleted { .. } => DeleteOutcome::NotFound,
            Self::Reached(_) => DeleteOutcome::AlreadyReached,
            Self::Scheduled(_) if is_firing() => DeleteOutcome::Firing,
            Self::Scheduled(_) => DeleteOutcome::Deleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn only_the_schedule_that_fired_is_marked_and_only_an_idle_timer_deleted() {
        use {DeleteOutcome as D, MarkOutcome as M};
        let fired = Registration {
            registered_at: Timestamp::MIN,
            due_at: Timestamp::MIN,
        };
        let newer = Registration {
            registered_at: Timestamp::MIN.next(),
            ..fired
        };
        let deleted = Existing::Deleted {
            deleted_at: Timestamp::MIN,
        };
        for (existing, mark, delete) in [
            (Existing::Nothing, M::NotFound, D::NotFound),
            (deleted, M::NotFound, D::NotFound),
            (Existing::Scheduled(fired), M::Marked, D::Deleted),
            (Existing::Scheduled(newer), M::Moved, D::Deleted),
            (
                Existing::Reached(fired),
                M::AlreadyReached,
                D::AlreadyReached,
            ),
            (Existing::Reached(newer), M::Moved, D::AlreadyReached),
        ] {
            assert_eq!(existing.mark(fired), mark, "{existing:?}");
            assert_eq!(
                existing.is_moved_from(fired),
                mark == M::Moved,
                "{existing:?}"
            );
            assert_eq!(existing.delete(|| false), delete, "{existing:?}");
            let while_firing = if delete == D::Deleted {
                D::Firing
            } else {
                delete
            };
            assert_eq!(existing.delete(|| true), while_firing, "{existing:?}");
        }
    }
}
