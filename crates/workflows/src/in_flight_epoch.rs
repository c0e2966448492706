//! Which firings have begun and are not settled yet, for whoever has to wait for them.
//!
//! Firings begin all the time, so there is never a moment at which none is under way. Whoever waits
//! therefore begins a new round, and waits only for what began in the rounds before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The firings that have begun. Clones share them.
#[derive(Clone, Default)]
pub struct InFlightEpoch {
    rounds: Arc<Mutex<Rounds>>,
}

#[derive(Default)]
struct Rounds {
    current: Round,
    /// Those of which something may be left.
    earlier: Vec<Weak<()>>,
}

/// Kept as long as a firing is not settled. All firings of a round share it, so that to begin one
/// costs next to nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    shared: Arc<()>,
}

impl InFlightEpoch {
    /// A firing begins; it is settled when the answer is dropped.
    pub(crate) fn begin(&self) -> Round {
        self.lock().current.clone()
    }

    /// Whatever begins from now on is of another round.
    pub(crate) fn begin_epoch(&self) {
        let mut rounds = self.lock();
        let ended = std::mem::take(&mut rounds.current);
        rounds.earlier.push(Arc::downgrade(&ended.shared));
    }

    /// Whether nothing is left of the rounds before.
    pub(crate) fn earlier_are_settled(&self) -> bool {
        let mut rounds = self.lock();
        rounds.earlier.retain(|round| round.strong_count() > 0);
        rounds.earlier.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        // Nothing panics halfway here.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_before_is_waited_for() {
        let begun = InFlightEpoch::default();
        begun.begin_epoch();
        assert!(begun.earlier_are_settled(), "nothing has begun");
        let (first, second) = (begun.begin(), begun.begin());
        begun.begin_epoch();
        let _later = begun.begin();
        assert!(!begun.earlier_are_settled());
        drop(first);
        assert!(!begun.earlier_are_settled());
        drop(second);
        assert!(begun.earlier_are_settled());
    }

    #[test]
    fn whoever_begins_another_round_waits_for_all_before_it() {
        let begun = InFlightEpoch::default();
        let first = begun.begin();
        begun.begin_epoch();
        begun.begin_epoch();
        assert!(!begun.earlier_are_settled());
        drop(first);
        assert!(begun.earlier_are_settled());
    }
}
