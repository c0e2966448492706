//! The effect of a schedule on what is stored for its key.
//!
//! | stored ↓ / origin → | direct call | replacement | ensure | command sent at `t` |
//! |---|---|---|---|---|
//! | nothing | create | create | create | create |
//! | deleted at `d` | create, registered after `d` | the same | the same | create if `t > d`, else stale |
//! | scheduled | reschedule, registered later | the same | unchanged | newer pair: reschedule; equal: unchanged; older: stale |
//! | reached | already reached | reschedule, registered later | already reached | already reached |
//!
//! A **command** carries the time at which it was sent and may be delivered late, again, or after
//! a newer one. Comparing the pair `(registered_at, due_at)` makes every order of delivery end in
//! the same row. The caller of a **direct call** waits for the result, so the call is never stale: it
//! always applies, with a registration later than any stored one. A firing of the old schedule that is in
//! flight can then not mark the new one as reached, even within one millisecond.
//!
//! Two invariants follow, on which the rest of Punctual relies: the accepted registrations of a key only
//! increase, even across a deletion; and so two firings never share a [`FiringId`](crate::FiringId).

use std::cmp::Ordering;

use crate::Timestamp;

/// Identity of a schedule among those of its timer.
///
/// Ordered like commands: by registration, then by due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registration {
    /// When the schedule was requested.
    pub registered_at: Timestamp,
    /// When the timer is to fire.
    pub due_at: Timestamp,
}

/// Origin of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleOrigin {
    /// A caller that waits for the result.
    Direct,
    /// A caller that wants the timer to fire again even if it has fired: deletion and schedule in one
    /// step.
    Replacement,
    /// A caller that wants the timer to exist, and to keep its schedule if it does.
    Ensure,
    /// A message.
    Command {
        /// When it was sent, by the clock of the sender.
        sent_at: Timestamp,
    },
}

/// What is stored for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Existing {
    /// Nothing.
    Nothing,
    /// A tombstone: the timer was deleted.
    Deleted {
        /// When it was deleted.
        deleted_at: Timestamp,
    },
    /// A scheduled timer.
    Scheduled(Registration),
    /// A reached timer.
    Reached(Registration),
}

/// What the store has to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleDecision {
    /// A new timer.
    Create {
        /// Its registration time.
        registered_at: Timestamp,
    },
    /// A new schedule of the timer, without the attempts, retry time and claims of the old one.
    Reschedule {
        /// Its new registration time.
        registered_at: Timestamp,
    },
    /// Nothing: the same command was applied before, or the timer to be ensured exists.
    Unchanged,
    /// Nothing: a newer command or a deletion was applied before.
    Stale,
    /// Nothing: the timer has fired, which is final.
    AlreadyReached,
}

impl Existing {
    /// A stored timer, scheduled or reached.
    pub const fn timer(registration: Registration, is_reached: bool) -> Self {
        if is_reached {
            Self::Reached(registration)
        } else {
            Self::Scheduled(registration)
        }
    }

    /// A key without a timer, deleted at some time or never used.
    pub fn absent(deleted_at: Option<Timestamp>) -> Self {
        deleted_at.map_or(Self::Nothing, |deleted_at| Self::Deleted { deleted_at })
    }
}

impl ScheduleDecision {
    /// The registration time to write; `None` if nothing is to be written.
    pub const fn registered_at(self) -> Option<Timestamp> {
        match self {
            Self::Create { registered_at } | Self::Reschedule { registered_at } => {
                Some(registered_at)
            }
            Self::Unchanged | Self::Stale | Self::AlreadyReached => None,
        }
    }
}

impl ScheduleOrigin {
    /// Decides the effect of a schedule for `due_at`, given what is stored and the current time.
    ///
    /// ```
    /// use punctual_domain::{Existing, ScheduleDecision, ScheduleOrigin, Timestamp};
    /// let now = Timestamp::from_millis(1_000)?;
    /// let decision = ScheduleOrigin::Direct.decide(Existing::Nothing, now, now);
    /// assert_eq!(decision, ScheduleDecision::Create { registered_at: now });
    /// # Ok::<(), punctual_domain::TimestampError>(())
    /// ```
    pub fn decide(self, existing: Existing, due_at: Timestamp, now: Timestamp) -> ScheduleDecision {
        match self {
            Self::Direct => decide_call(existing, now),
            Self::Replacement => match existing {
                Existing::Reached(stored) => reschedule(stored, now),
                other => decide_call(other, now),
            },
            Self::Ensure => match existing {
                Existing::Scheduled(_) => ScheduleDecision::Unchanged,
                other => decide_call(other, now),
            },
            Self::Command { sent_at } => {
                // A sender whose clock is ahead must not block all others until then.
                let registered_at = sent_at.min(now);
                decide_command(
                    existing,
                    Registration {
                        registered_at,
                        due_at,
                    },
                )
            }
        }
    }
}

fn decide_call(existing: Existing, now: Timestamp) -> ScheduleDecision {
    match existing {
        Existing::Nothing => ScheduleDecision::Create { registered_at: now },
        Existing::Deleted { deleted_at } => ScheduleDecision::Create {
            registered_at: now.max(deleted_at.next()),
        },
        Existing::Reached(_) => ScheduleDecision::AlreadyReached,
        Existing::Scheduled(stored) => reschedule(stored, now),
    }
}

fn reschedule(stored: Registration, now: Timestamp) -> ScheduleDecision {
    ScheduleDecision::Reschedule {
        registered_at: now.max(stored.registered_at.next()),
    }
}

fn decide_command(existing: Existing, requested: Registration) -> ScheduleDecision {
    let registered_at = requested.registered_at;
    match existing {
        Existing::Nothing => ScheduleDecision::Create { registered_at },
        Existing::Deleted { deleted_at } if registered_at > deleted_at => {
            ScheduleDecision::Create { registered_at }
        }
        Existing::Deleted { .. } => ScheduleDecision::Stale,
        Existing::Scheduled(stored) => match requested.cmp(&stored) {
            Ordering::Greater => ScheduleDecision::Reschedule { registered_at },
            Ordering::Equal => ScheduleDecision::Unchanged,
            Ordering::Less => ScheduleDecision::Stale,
        },
        Existing::Reached(_) => ScheduleDecision::AlreadyReached,
    }
}

/// Time of a deletion: not before the registration that it deletes, so that every schedule accepted
/// afterwards is registered later.
pub fn deletion_time(deleted: Registration, now: Timestamp) -> Timestamp {
    now.max(deleted.registered_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn registration(registered_at: i64, due_at: i64) -> Registration {
        Registration {
            registered_at: at(registered_at),
            due_at: at(due_at),
        }
    }

    fn created(registered_at: i64) -> ScheduleDecision {
        let registered_at = at(registered_at);
        ScheduleDecision::Create { registered_at }
    }

    fn rescheduled(registered_at: i64) -> ScheduleDecision {
        let registered_at = at(registered_at);
        ScheduleDecision::Reschedule { registered_at }
    }

    fn command(sent_at: i64, due_at: i64, existing: Existing, now: i64) -> ScheduleDecision {
        ScheduleOrigin::Command {
            sent_at: at(sent_at),
        }
        .decide(existing, at(due_at), at(now))
    }

    #[test]
    fn a_command_is_compared_by_registration_and_then_by_due_time() {
        use ScheduleDecision::{Stale, Unchanged};
        let stored = Existing::Scheduled(registration(50, 500));
        assert_eq!(command(51, 1, stored, 100), rescheduled(51));
        assert_eq!(command(50, 501, stored, 100), rescheduled(50));
        assert_eq!(command(50, 500, stored, 100), Unchanged);
        assert_eq!(command(50, 499, stored, 100), Stale);
        assert_eq!(command(49, 900, stored, 100), Stale);
    }

    #[test]
    fn a_command_from_the_future_counts_as_sent_now() {
        let decision = command(9_999, 500, Existing::Nothing, 100);
        assert_eq!(decision, created(100));
    }

    #[test]
    fn a_deletion_outlives_the_commands_before_it() {
        let deleted = Existing::Deleted { deleted_at: at(50) };
        assert_eq!(command(50, 500, deleted, 100), ScheduleDecision::Stale);
        assert_eq!(command(51, 500, deleted, 100), created(51));
    }

    #[test]
    fn a_direct_call_in_the_same_millisecond_is_a_new_schedule() {
        let stored = Existing::Scheduled(registration(100, 500));
        let decision = ScheduleOrigin::Direct.decide(stored, at(500), at(100));
        assert_eq!(decision, rescheduled(101));
    }

    #[test]
    fn a_direct_call_applies_even_when_the_clock_went_back() {
        let stored = Existing::Scheduled(registration(1_000, 500));
        let decision = ScheduleOrigin::Direct.decide(stored, at(500), at(10));
        assert_eq!(decision, rescheduled(1_001));
        let deleted = Existing::Deleted {
            deleted_at: at(1_000),
        };
        let decision = ScheduleOrigin::Direct.decide(deleted, at(500), at(10));
        assert_eq!(decision, created(1_001));
    }

    #[test]
    fn ensuring_leaves_a_scheduled_timer_alone_and_creates_an_absent_one() {
        let ensure = |existing| ScheduleOrigin::Ensure.decide(existing, at(500), at(100));
        let overdue = Existing::Scheduled(registration(50, 60));
        assert_eq!(ensure(overdue), ScheduleDecision::Unchanged);
        assert_eq!(ensure(Existing::Nothing), created(100));
        let deleted_at = at(1_000);
        assert_eq!(ensure(Existing::Deleted { deleted_at }), created(1_001));
    }

    #[test]
    fn reached_is_final_for_all_but_a_replacement() {
        let reached = Existing::Reached(registration(50, 60));
        let ensured = ScheduleOrigin::Ensure.decide(reached, at(500), at(100));
        assert_eq!(ensured, ScheduleDecision::AlreadyReached);
        assert_eq!(
            command(99, 500, reached, 100),
            ScheduleDecision::AlreadyReached
        );
        let direct = ScheduleOrigin::Direct.decide(reached, at(500), at(100));
        assert_eq!(direct, ScheduleDecision::AlreadyReached);
        let replaced = ScheduleOrigin::Replacement.decide(reached, at(500), at(20));
        assert_eq!(replaced, rescheduled(51));
    }

    /// Applies commands to one key and returns what is stored in the end.
    fn converge(commands: &[(i64, i64)], now: i64) -> Existing {
        commands
            .iter()
            .fold(Existing::Nothing, |stored, &(sent, due)| {
                let accepted = command(sent, due, stored, now).registered_at();
                accepted.map_or(stored, |registered_at| {
                    Existing::Scheduled(Registration {
                        registered_at,
                        due_at: at(due),
                    })
                })
            })
    }

    proptest! {
        #[test]
        fn commands_in_any_order_and_number_end_in_the_same_row(
            commands in prop::collection::vec((0_i64..50, 0_i64..50), 1..8),
            shuffled in any::<prop::sample::Index>(),
        ) {
            let mut other = commands.clone();
            other.rotate_left(shuffled.index(commands.len()));
            other.extend(commands.iter().rev());
            prop_assert_eq!(converge(&commands, 100), converge(&other, 100));
        }

        #[test]
        fn accepted_registrations_only_grow(
            stored in (0_i64..50, 0_i64..50), due in 0_i64..50, now in 0_i64..80, sent in 0_i64..80,
        ) {
            let stored = registration(stored.0, stored.1);
            let origins = [
                ScheduleOrigin::Direct,
                ScheduleOrigin::Replacement,
                ScheduleOrigin::Ensure,
                ScheduleOrigin::Command { sent_at: at(sent) },
            ];
            for origin in origins {
                let decision = origin.decide(Existing::Scheduled(stored), at(due), at(now));
                if let ScheduleDecision::Reschedule { registered_at } = decision {
                    let accepted = Registration { registered_at, due_at: at(due) };
                    prop_assert!(accepted > stored);
                }
                let deleted_at = deletion_time(stored, at(now));
                let decision = origin.decide(Existing::Deleted { deleted_at }, at(due), at(now));
                if let ScheduleDecision::Create { registered_at } = decision {
                    prop_assert!(registered_at > stored.registered_at);
                }
            }
        }
    }
}
