//! When the worker last looked for what is due, for whoever wants to know whether it lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use punctual_domain::Timestamp;

const NEVER: i64 = -1;

/// When the worker last looked. Clones share it.
#[derive(Debug, Clone)]
pub struct LastPoll(Arc<AtomicI64>);

impl LastPoll {
    /// When that was, if it was.
    pub fn at(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed)).ok()
    }

    pub(crate) fn is_now(&self, now: Timestamp) {
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
    fn there_is_none_until_there_was_one() {
        let look = LastPoll::default();
        assert_eq!(look.at(), None);
        look.clone().is_now(Timestamp::MIN);
        assert_eq!(look.at(), Some(Timestamp::MIN));
    }
}
