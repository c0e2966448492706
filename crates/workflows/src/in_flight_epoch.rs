//! In-flight epochs: generations of firings, so that recovery can wait for the earlier ones.
//!
//! Firings start all the time, so there is never a moment without one in flight. Recovery therefore
//! starts a new epoch, and waits only for the firings of earlier epochs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The current epoch and those with unsettled firings. Clones share it.
#[derive(Clone, Default)]
pub struct InFlightEpoch {
    epochs: Arc<Mutex<Epochs>>,
}

#[derive(Default)]
struct Epochs {
    current: EpochGuard,
    /// Earlier epochs that may have unsettled firings.
    earlier: Vec<Weak<()>>,
}

/// Keeps an epoch open until a firing is settled. All firings of an epoch share one allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct EpochGuard {
    shared: Arc<()>,
}

impl InFlightEpoch {
    /// Adds a firing to the current epoch; it is settled when the guard is dropped.
    pub(crate) fn enter(&self) -> EpochGuard {
        self.lock().current.clone()
    }

    /// Starts a new epoch.
    pub(crate) fn advance(&self) {
        let mut epochs = self.lock();
        let ended = std::mem::take(&mut epochs.current);
        epochs.earlier.push(Arc::downgrade(&ended.shared));
    }

    /// Whether every firing of the earlier epochs is settled.
    pub(crate) fn earlier_are_settled(&self) -> bool {
        let mut epochs = self.lock();
        epochs.earlier.retain(|epoch| epoch.strong_count() > 0);
        epochs.earlier.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Epochs> {
        // Nothing panics halfway here.
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_epochs_have_to_be_settled() {
        let epoch = InFlightEpoch::default();
        epoch.advance();
        assert!(epoch.earlier_are_settled(), "nothing is in flight");
        let (first, second) = (epoch.enter(), epoch.enter());
        epoch.advance();
        let _later = epoch.enter();
        assert!(!epoch.earlier_are_settled());
        drop(first);
        assert!(!epoch.earlier_are_settled());
        drop(second);
        assert!(epoch.earlier_are_settled());
    }

    #[test]
    fn advancing_twice_still_waits_for_all_earlier_epochs() {
        let epoch = InFlightEpoch::default();
        let first = epoch.enter();
        epoch.advance();
        epoch.advance();
        assert!(!epoch.earlier_are_settled());
        drop(first);
        assert!(epoch.earlier_are_settled());
    }
}
