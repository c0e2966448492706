//! The one error of all ports: what failed, why, and whether trying again can help.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What kind of failure it was. The kind decides what the caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortErrorKind {
    /// The other side cannot be reached, or did not answer in time.
    Unavailable,
    /// Somebody else holds a lock that is needed.
    Busy,
    /// A queue or buffer is full.
    Overloaded,
    /// There is no room left to store anything new.
    StorageFull,
    /// Nobody subscribes to the topic.
    NoSubscriber,
    /// A handler could not handle this message this time.
    HandlerFailed,
    /// This item can never be accepted.
    Rejected,
    /// The store is corrupt, read-only or failed to write: it cannot be relied on any more.
    Broken,
    /// The adapter was stopped.
    Stopped,
}

impl PortErrorKind {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Unavailable
            | Self::Busy
            | Self::Overloaded
            | Self::StorageFull
            | Self::NoSubscriber
            | Self::HandlerFailed => true,
            Self::Rejected | Self::Broken | Self::Stopped => false,
        }
    }

    /// Whether it is this item's own fault, so that other items may still succeed.
    pub const fn concerns_the_item(self) -> bool {
        matches!(self, Self::HandlerFailed | Self::Rejected)
    }

    /// Whether to go on would be to carry on as if something had been written.
    pub const fn is_critical(self) -> bool {
        matches!(self, Self::Broken | Self::Stopped)
    }
}

/// A failed call of a port. Cheap to clone, so that one failure can be told to many callers.
///
/// It reads on from "failed to": `failed to save timers: the disk is full`.
#[derive(Debug, Clone)]
pub struct PortError {
    kind: PortErrorKind,
    operation: &'static str,
    reason: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl PortError {
    /// A failure of an operation, named by a verb and its object, for a reason.
    pub fn new(kind: PortErrorKind, operation: &'static str, reason: impl AsRef<str>) -> Self {
        Self {
            kind,
            operation,
            reason: Arc::from(reason.as_ref()),
            source: None,
        }
    }

    /// The same failure with the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same failure as seen by another operation that it made fail too.
    #[must_use]
    pub fn during(&self, operation: &'static str) -> Self {
        Self {
            operation,
            ..self.clone()
        }
    }

    /// What kind of failure it was.
    pub const fn kind(&self) -> PortErrorKind {
        self.kind
    }

    /// What was being done, for example `save timers`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Why it failed.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {}: {}", self.operation, self.reason)
    }
}

impl Error for PortError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_a_sentence_and_keeps_its_source() {
        let io = std::io::Error::other("no route");
        let error = PortError::new(
            PortErrorKind::Unavailable,
            "publish events",
            "not connected",
        )
        .with_source(io);
        assert_eq!(error.to_string(), "failed to publish events: not connected");
        assert_eq!(error.clone().source().unwrap().to_string(), "no route");
        assert!(error.is_retryable());
    }

    #[test]
    fn what_is_critical_is_never_retried() {
        for kind in [PortErrorKind::Broken, PortErrorKind::Stopped] {
            assert!(kind.is_critical() && !kind.is_retryable());
        }
        assert!(PortErrorKind::StorageFull.is_retryable());
        assert!(!PortErrorKind::StorageFull.is_critical());
    }
}
