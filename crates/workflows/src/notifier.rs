//! How a commit wakes a background task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A flag that wakes a background task and stays set until it is cleared. Clones are the same flag.
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
    /// Wakes the task. To be called *after* the commit: an earlier read would find nothing.
    pub fn notify(&self) {
        if !self.shared.is_notified.swap(true, Ordering::SeqCst) {
            self.shared.notify.notify_one();
        }
    }

    /// Whether it was notified since it was last cleared.
    pub(crate) fn is_notified(&self) -> bool {
        self.shared.is_notified.load(Ordering::SeqCst)
    }

    /// Clears the flag. To be called *before* the read: what is committed after that notifies again.
    pub(crate) fn clear(&self) {
        self.shared.is_notified.store(false, Ordering::SeqCst);
    }

    /// Waits until it is notified.
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
    fn a_notification_during_a_read_is_kept() {
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
            "a leftover permit does not notify"
        );
    }
}
