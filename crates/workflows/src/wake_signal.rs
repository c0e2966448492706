//! How a save with an earlier due time wakes a sleeping worker.
//!
//! The danger is the lost wake-up: a timer is saved during a poll that does not see it, and the
//! worker sleeps until the next due time that the poll saw. So there is one number, the earliest due
//! time known, which only a poll may raise. A poll starts by raising it to "nothing known" and ends by
//! lowering it to what it saw; a save during the poll lowers it too, in whichever order these happen.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use punctual_domain::Timestamp;
use tokio::sync::Notify;

const NOTHING_KNOWN: i64 = i64::MAX;
/// Maximum number of detached saves. One more is dropped, and what it may have stored is found by a poll.
pub(crate) const MAX_DETACHED: usize = 1_024;

/// The earliest due time known, and a notification when it becomes earlier. Clones are the same
/// signal.
#[derive(Clone)]
pub struct WakeSignal {
    shared: Arc<Shared>,
}

struct Shared {
    earliest: AtomicI64,
    notifier: Notify,
    detached: Mutex<Detached>,
}

/// Futures that their callers have dropped.
#[derive(Default)]
struct Detached {
    /// Whether a worker polls them. Without one they would keep the store and this signal alive for
    /// ever.
    has_worker: bool,
    work: Vec<BoxFuture<'static, ()>>,
}

impl WakeSignal {
    /// A signal that makes a worker poll at once.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                earliest: AtomicI64::new(Timestamp::MIN.as_millis()),
                notifier: Notify::new(),
                detached: Mutex::default(),
            }),
        }
    }

    /// Notifies the worker that a timer is due at `due_at`. To be called *after* it was stored: an
    /// earlier poll would not find it.
    pub fn due_at(&self, due_at: Timestamp) {
        let due_at = due_at.as_millis();
        if self.shared.earliest.fetch_min(due_at, Ordering::SeqCst) > due_at {
            self.shared.notifier.notify_one();
        }
    }

    /// Hands a future over that its caller has dropped.
    pub(crate) fn detach(&self, work: BoxFuture<'static, ()>) {
        let mut detached = self.detached();
        let is_taken = detached.has_worker && detached.work.len() < MAX_DETACHED;
        let dropped = if is_taken {
            detached.work.push(work);
            None
        } else {
            Some(work)
        };
        drop(detached);
        drop(dropped);
        self.due_at(Timestamp::MIN);
        self.shared.notifier.notify_one();
    }

    /// Up to `most` detached futures, for the worker to poll.
    pub(crate) fn take_detached(&self, most: usize) -> Vec<BoxFuture<'static, ()>> {
        let mut detached = self.detached();
        detached.has_worker = true;
        let taken = detached.work.len().min(most);
        detached.work.drain(..taken).collect()
    }

    /// Drops detached futures: the worker has stopped.
    pub(crate) fn drop_detached(&self) {
        drop(std::mem::take(&mut *self.detached()));
    }

    fn detached(&self) -> MutexGuard<'_, Detached> {
        self.shared
            .detached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest due time known.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.shared.earliest.load(Ordering::SeqCst)).ok()
    }

    /// Starts a poll, which will see what was stored before.
    pub(crate) fn begin_poll(&self) {
        self.shared.earliest.store(NOTHING_KNOWN, Ordering::SeqCst);
    }

    /// Ends a poll that saw this as the next due time.
    pub(crate) fn end_poll(&self, seen: Option<Timestamp>) {
        if let Some(seen) = seen {
            self.shared
                .earliest
                .fetch_min(seen.as_millis(), Ordering::SeqCst);
        }
    }

    /// Waits for a notification; returns at once if there was one since the last wait.
    pub(crate) async fn notified(&self) {
        self.shared.notifier.notified().await;
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
    fn a_new_signal_requests_a_poll_at_once() {
        assert_eq!(WakeSignal::new().earliest(), Some(Timestamp::MIN));
    }

    #[test]
    fn futures_are_detached_only_with_a_worker_and_up_to_a_limit() {
        let signal = WakeSignal::new();
        let left = Arc::new(());
        let work = || {
            let left = Arc::clone(&left);
            async move { drop(left) }.boxed()
        };
        signal.detach(work());
        assert_eq!(
            Arc::strong_count(&left),
            1,
            "without a worker it is dropped"
        );
        assert!(signal.take_detached(MAX_DETACHED).is_empty());
        for _ in 0..MAX_DETACHED + 5 {
            signal.detach(work());
        }
        assert_eq!(Arc::strong_count(&left), 1 + MAX_DETACHED);
        let taken = signal.take_detached(3);
        assert_eq!(taken.len(), 3);
        signal.drop_detached();
        assert_eq!(Arc::strong_count(&left), 1 + 3);
    }

    #[test]
    fn a_save_during_a_poll_outlives_the_poll() {
        let signal = WakeSignal::new();
        signal.begin_poll();
        signal.due_at(at(5_000));
        signal.end_poll(Some(at(9_000)));
        assert_eq!(signal.earliest(), Some(at(5_000)));
        assert!(signal.notified().now_or_never().is_some());
    }

    #[test]
    fn only_an_earlier_due_time_notifies() {
        let signal = WakeSignal::new();
        signal.begin_poll();
        signal.end_poll(Some(at(5_000)));
        signal.due_at(at(5_000));
        signal.due_at(at(6_000));
        assert!(signal.notified().now_or_never().is_none());
        signal.due_at(at(4_999));
        assert!(signal.notified().now_or_never().is_some());
        assert!(signal.notified().now_or_never().is_none());
    }

    #[test]
    fn a_poll_that_saw_nothing_leaves_nothing_known() {
        let signal = WakeSignal::new();
        signal.begin_poll();
        signal.end_poll(None);
        assert_eq!(signal.earliest(), None);
    }
}
