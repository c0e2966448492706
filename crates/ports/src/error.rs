//! The error of all ports: what failed, why, and whether a retry can help.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Kind of a failure, which decides how the caller reacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortErrorKind {
    /// The other side cannot be reached, or did not respond in time.
    Unavailable,
    /// Another process holds a required lock.
    Busy,
    /// A queue or buffer is full.
    Overloaded,
    /// The storage is full: nothing new can be stored.
    StorageFull,
    /// The topic has no subscriber.
    NoSubscriber,
    /// A handler failed to handle this message.
    HandlerFailed,
    /// This item can never be accepted.
    Rejected,
    /// The store is corrupt, read-only or failed to write, and can no longer be relied on.
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

    /// Whether the failure concerns this item only, so that other items may still succeed.
    pub const fn concerns_the_item(self) -> bool {
        matches!(self, Self::HandlerFailed | Self::Rejected)
    }

    /// Whether the store can no longer be relied on, so that the caller has to stop.
    pub const fn is_critical(self) -> bool {
        matches!(self, Self::Broken | Self::Stopped)
    }
}

/// A failed call of a port. Cheap to clone, so that one failure can be reported to many callers.
///
/// `Display` writes a sentence: `failed to save timers: the disk is full`.
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

    /// The same failure, attributed to another operation that failed because of it.
    #[must_use]
    pub fn during(&self, operation: &'static str) -> Self {
        Self {
            operation,
            ..self.clone()
        }
    }

    /// The kind of the failure.
    pub const fn kind(&self) -> PortErrorKind {
        self.kind
    }

    /// The operation that failed, for example `save timers`.
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
