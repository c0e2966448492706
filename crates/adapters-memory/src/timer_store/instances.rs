//! Several instances on one store: who they are, by which clock, and whether their claims are known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use punctual_domain::Timestamp;

/// An opened handle of a store. Clones are the same instance, which ends with the last of them.
#[derive(Clone, Default)]
pub(super) struct Instance {
    number: Arc<u64>,
    /// The number of the last instance of the store.
    last: Arc<AtomicU64>,
}

impl Instance {
    /// The next instance of the same store.
    pub(super) fn after(other: &Self) -> Self {
        let last = Arc::clone(&other.last);
        Self {
            number: Arc::new(last.fetch_add(1, Ordering::Relaxed) + 1),
            last,
        }
    }

    pub(super) fn number(&self) -> u64 {
        *self.number
    }

    /// Tells whether the instance has ended, and does not keep it from doing so.
    pub(super) fn watch(&self) -> Weak<u64> {
        Arc::downgrade(&self.number)
    }
}

/// The clock of the store, if it has one of its own.
#[derive(Clone, Copy, Default)]
pub(super) struct StoreClock(Option<Timestamp>);

impl StoreClock {
    pub(super) fn set(&mut self, now: Option<Timestamp>) {
        self.0 = now;
    }

    /// The time of the store, which is the caller's if the store has no clock.
    pub(super) fn or(self, callers: Timestamp) -> Timestamp {
        self.0.unwrap_or(callers)
    }

    /// What the caller's clock will read when the store's reads `at`.
    pub(super) fn to_caller(self, at: Timestamp, callers: Timestamp) -> Timestamp {
        let store = self.or(callers);
        at.saturating_add(callers.since(store))
            .saturating_sub(store.since(callers))
    }

    /// What the caller's clock will read when it and the store's have both reached `at`.
    pub(super) fn when_both_reach(self, at: Timestamp, callers: Timestamp) -> Timestamp {
        at.max(self.to_caller(at, callers))
    }
}

/// Whether every claim that somebody may still fire is known. After a crash that lost them, this is so
/// once the longest lease has passed.
#[derive(Default)]
pub(super) struct ClaimsKnown {
    longest_lease: Duration,
    lost: Option<Lost>,
}

enum Lost {
    /// The clock was not read since.
    JustNow,
    /// Claims are recorded since then.
    KnownSince(Timestamp),
}

impl ClaimsKnown {
    pub(super) fn claimed_for(&mut self, lease: Duration) {
        self.longest_lease = self.longest_lease.max(lease);
    }

    pub(super) fn lose(&mut self) {
        self.lost = Some(Lost::JustNow);
    }

    /// Whether all are known at an instant.
    pub(super) fn at(&mut self, now: Timestamp) -> bool {
        match self.lost {
            None => true,
            Some(Lost::JustNow) => {
                self.lost = Some(Lost::KnownSince(now));
                false
            }
            Some(Lost::KnownSince(since)) => {
                let are_known = now >= since.saturating_add(self.longest_lease);
                if are_known {
                    self.lost = None;
                }
                are_known
            }
        }
    }
}
