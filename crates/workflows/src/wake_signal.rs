//! How a save with an earlier due time wakes a worker that sleeps.
//!
//! The danger is the lost wake-up: a worker looks at the store, a timer is saved that its look did
//! not see, and the worker goes to sleep by what it saw. So there is one number, the earliest
//! instant anybody knows of, which only a look at the store may raise. A look begins by raising it
//! to "nothing known" and ends by lowering it to what it saw; whatever is saved from the beginning
//! of the look on lowers it too, in whichever order these happen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use punctual_domain::Timestamp;
use tokio::sync::Notify;

const NOTHING_KNOWN: i64 = i64::MAX;

/// The earliest due time that is known, and a bell that rings when it becomes earlier. Clones are
/// the same signal.
#[derive(Clone)]
pub struct WakeSignal {
    shared: Arc<Shared>,
}

struct Shared {
    earliest: AtomicI64,
    bell: Notify,
}

impl WakeSignal {
    /// A signal that makes a worker look at the store at once: what is there was not seen yet.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                earliest: AtomicI64::new(Timestamp::MIN.as_millis()),
                bell: Notify::new(),
            }),
        }
    }

    /// Tells that something is due at `due_at`. To be called *after* it was stored: a worker that
    /// looks before would not find it.
    pub fn due_at(&self, due_at: Timestamp) {
        let due_at = due_at.as_millis();
        if self.shared.earliest.fetch_min(due_at, Ordering::SeqCst) > due_at {
            self.shared.bell.notify_one();
        }
    }

    /// The earliest due time that is known.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.shared.earliest.load(Ordering::SeqCst)).ok()
    }

    /// A look at the store begins: what it will see need not be remembered.
    pub(crate) fn begin_look(&self) {
        self.shared.earliest.store(NOTHING_KNOWN, Ordering::SeqCst);
    }

    /// A look at the store has ended and saw this as the next due time.
    pub(crate) fn end_look(&self, seen: Option<Timestamp>) {
        if let Some(seen) = seen {
            self.shared
                .earliest
                .fetch_min(seen.as_millis(), Ordering::SeqCst);
        }
    }

    /// Waits for the bell. It rings at once if it has rung since the last time.
    pub(crate) async fn rung(&self) {
        self.shared.bell.notified().await;
    }
}

impl Default for WakeSignal {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WakeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WakeSignal({:?})", self.earliest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn a_new_signal_asks_for_a_look_at_once() {
        assert_eq!(WakeSignal::new().earliest(), Some(Timestamp::MIN));
    }

    #[test]
    fn a_save_during_a_look_outlives_the_look() {
        let signal = WakeSignal::new();
        signal.begin_look();
        signal.due_at(at(5_000));
        signal.end_look(Some(at(9_000)));
        assert_eq!(signal.earliest(), Some(at(5_000)));
        assert!(signal.rung().now_or_never().is_some());
    }

    #[test]
    fn only_an_earlier_due_time_rings_the_bell() {
        let signal = WakeSignal::new();
        signal.begin_look();
        signal.end_look(Some(at(5_000)));
        signal.due_at(at(5_000));
        signal.due_at(at(6_000));
        assert!(signal.rung().now_or_never().is_none());
        signal.due_at(at(4_999));
        assert!(signal.rung().now_or_never().is_some());
        assert!(signal.rung().now_or_never().is_none());
    }

    #[test]
    fn a_look_that_saw_nothing_leaves_nothing_known() {
        let signal = WakeSignal::new();
        signal.begin_look();
        signal.end_look(None);
        assert_eq!(signal.earliest(), None);
    }
}
