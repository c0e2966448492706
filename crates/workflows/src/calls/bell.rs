//! How a commit wakes whoever has to do something about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A bell that stays rung until somebody has come. Clones are the same bell.
#[derive(Debug, Clone, Default)]
pub struct Bell {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_rung: AtomicBool,
    notify: Notify,
}

impl Bell {
    /// Wakes whoever waits. To be called *after* the commit: who looks before would find nothing.
    pub fn ring(&self) {
        if !self.shared.is_rung.swap(true, Ordering::SeqCst) {
            self.shared.notify.notify_one();
        }
    }

    /// Whether it has rung since it was last answered.
    pub(crate) fn is_rung(&self) -> bool {
        self.shared.is_rung.load(Ordering::SeqCst)
    }

    /// Somebody comes and looks. To be called *before* looking: what is committed after that rings
    /// again.
    pub(crate) fn answer(&self) {
        self.shared.is_rung.store(false, Ordering::SeqCst);
    }

    /// Waits until it has rung since it was last answered.
    pub(crate) async fn rung(&self) {
        while !self.is_rung() {
            self.shared.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn what_rings_during_a_look_is_not_forgotten() {
        let bell = Bell::default();
        assert!(bell.rung().now_or_never().is_none());
        bell.ring();
        bell.answer();
        bell.ring();
        assert!(bell.is_rung());
        assert!(bell.rung().now_or_never().is_some());
        bell.answer();
        assert!(
            bell.rung().now_or_never().is_none(),
            "a permit left over rings nothing"
        );
    }
}
