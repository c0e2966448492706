//! A request to stop, with its reason; the first reason counts.

use tokio::sync::watch;

/// Why to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// By a signal.
    Requested,
    /// After an error, described in a sentence.
    Failed(String),
}

/// A request to stop. Clones are the same request.
#[derive(Debug, Clone)]
pub(super) struct Stop(watch::Sender<Option<Reason>>);

impl Stop {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Requests a stop, unless one was requested before.
    pub(super) fn request(&self, reason: Reason) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(reason);
            is_first
        });
    }

    /// Waits until a stop is requested.
    pub(super) async fn requested(&self) -> Reason {
        let mut reasons = self.0.subscribe();
        let reason = reasons.wait_for(Option::is_some).await;
        // The sender lives as long as `self`, so waiting does not fail.
        reason
            .ok()
            .and_then(|it| it.clone())
            .unwrap_or(Reason::Requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let stop = Stop::new();
        stop.request(Reason::Failed("it broke".to_owned()));
        stop.request(Reason::Requested);
        assert_eq!(
            stop.clone().requested().await,
            Reason::Failed("it broke".to_owned())
        );
    }
}
