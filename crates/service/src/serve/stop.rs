//! A request to stop, with its reason; the first reason counts.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Why to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// By a signal.
    Requested,
    /// After an error, described in a sentence.
    Failed(String),
}

/// A request to stop. Clones are the same request.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<SetOnce<Reason>>);

impl Stop {
    /// Requests a stop, unless one was requested before.
    pub(super) fn request(&self, reason: Reason) {
        let _ = self.0.set(reason);
    }

    /// Waits until a stop is requested.
    pub(super) async fn requested(&self) -> Reason {
        self.0.wait().await.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let stop = Stop::default();
        stop.request(Reason::Failed("it broke".to_owned()));
        stop.request(Reason::Requested);
        assert_eq!(
            stop.clone().requested().await,
            Reason::Failed("it broke".to_owned())
        );
    }
}
