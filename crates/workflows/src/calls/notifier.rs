//! How a commit wakes whoever has to do something about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A bell that stays rung until somebody has come. Clones are the same bell.
#[derive(Debug, Clone, Default)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_notified: AtomicBool,
    notify: Notify,
}

impl Notifier {
    /// Wakes whoever waits. To be called *after* the commit: who looks before would find nothing.
    pub fn notify(&self) {
        if !self.shared.is_notified.swap(true, Ordering::SeqCst) {
            self.shared.notify.notify_one();
        }
    }

    /// Whether it has rung since it was last answered.
    pub(crate) fn is_notified(&self) -> bool {
        self.shared.is_notified.load(Ordering::SeqCst)
    }

    /// Somebody comes and looks. To be called *before* looking: what is committed after that rings
    /// again.
    pub(crate) fn clear(&self) {
        self.shared.is_notified.store(false, Ordering::SeqCst);
    }

    /// Waits until it has rung since it was last answered.
    pub(crate) async fn notified(&self) {
        while !self.is_notified() {
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
        let notifier = Notifier::default();
        assert!(notifier.notified().now_or_never().is_none());
        notifier.notify();
        notifier.clear();
        notifier.notify();
        assert!(notifier.is_notified());
        assert!(notifier.notified().now_or_never().is_some());
        notifier.clear();
        assert!(
            notifier.notified().now_or_never().is_none(),
            "a permit left over rings nothing"
        );
    }
}
