//! The time of the worker's last poll, and whether one waits for its answer, for liveness checks.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_domain::Timestamp;

const NEVER: i64 = -1;

/// The worker's last poll. Clones share it.
#[derive(Debug, Clone)]
pub struct LastPoll(Arc<State>);

#[derive(Debug)]
struct State {
    at: AtomicI64,
    /// When the first poll began that none has succeeded since, on the monotonic clock.
    unanswered_since: Mutex<Option<Duration>>,
}

impl LastPoll {
    /// The time of the last poll that succeeded; `None` before the first one.
    pub fn at(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0.at.load(Ordering::Relaxed)).ok()
    }

    /// How long the worker has been asking the store without an answer, at an instant of the monotonic
    /// clock; `None` if it has the answer of its last poll. An idle worker is not waiting.
    pub fn unanswered_for(&self, monotonic: Duration) -> Option<Duration> {
        self.unanswered_since()
            .map(|since| monotonic.saturating_sub(since))
    }

    pub(crate) fn begin(&self, monotonic: Duration) {
        self.unanswered_since().get_or_insert(monotonic);
    }

    pub(crate) fn record(&self, now: Timestamp) {
        *self.unanswered_since() = None;
        self.0.at.store(now.as_millis(), Ordering::Relaxed);
    }

    fn unanswered_since(&self) -> MutexGuard<'_, Option<Duration>> {
        let since = self.0.unanswered_since.lock();
        since.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LastPoll {
    fn default() -> Self {
        Self(Arc::new(State {
            at: AtomicI64::new(NEVER),
            unanswered_since: Mutex::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_none_until_the_first_poll() {
        let last_poll = LastPoll::default();
        assert_eq!(last_poll.at(), None);
        last_poll.clone().record(Timestamp::MIN);
        assert_eq!(last_poll.at(), Some(Timestamp::MIN));
    }

    #[test]
    fn polls_are_unanswered_since_the_first_that_failed() {
        let (last_poll, second) = (LastPoll::default(), Duration::from_secs(1));
        assert_eq!(last_poll.unanswered_for(second), None);
        last_poll.begin(second);
        last_poll.begin(3 * second);
        assert_eq!(last_poll.unanswered_for(7 * second), Some(6 * second));
        last_poll.record(Timestamp::MIN);
        assert_eq!(last_poll.unanswered_for(9 * second), None);
    }
}
