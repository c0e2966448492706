//! The one way to stop: whoever has a reason gives it, and the first one counts.

use tokio::sync::watch;

/// Why to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// Somebody asked us to.
    Asked,
    /// Going on makes no sense, in one sentence.
    Failed(String),
}

/// A request to stop. Clones are the same request.
#[derive(Debug, Clone)]
pub(super) struct Stop(watch::Sender<Option<Reason>>);

impl Stop {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Asks everybody to stop, unless somebody else did before.
    pub(super) fn request(&self, reason: Reason) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(reason);
            is_first
        });
    }

    /// Waits until somebody asks to stop.
    pub(super) async fn requested(&self) -> Reason {
        let mut asked = self.0.subscribe();
        let reason = asked.wait_for(Option::is_some).await;
        // The sender lives as long as `self`, so waiting does not fail.
        reason
            .ok()
            .and_then(|it| it.clone())
            .unwrap_or(Reason::Asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let stop = Stop::new();
        stop.request(Reason::Failed("it broke".to_owned()));
        stop.request(Reason::Asked);
        assert_eq!(
            stop.clone().requested().await,
            Reason::Failed("it broke".to_owned())
        );
    }
}
