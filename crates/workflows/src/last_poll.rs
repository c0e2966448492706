//! The time of the worker's last poll, for liveness checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use punctual_domain::Timestamp;

const NEVER: i64 = -1;

/// The time of the worker's last poll. Clones share it.
#[derive(Debug, Clone)]
pub struct LastPoll(Arc<AtomicI64>);

impl LastPoll {
    /// The time of the last poll; `None` before the first one.
    pub fn at(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed)).ok()
    }

    pub(crate) fn record(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::Relaxed);
    }
}

impl Default for LastPoll {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(NEVER)))
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
}
