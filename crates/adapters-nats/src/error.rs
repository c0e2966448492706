//! Errors that say why a broker cannot be used and what to change.

use thiserror::Error;

/// The reason why a broker cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NatsError {
    /// A setting is invalid.
    #[error("{field} is wrong: {advice}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// What is allowed.
        advice: String,
    },
    /// The broker does not respond. A retry may help.
    #[error("the broker at {servers} does not answer: {reason}")]
    Unreachable {
        /// Addresses of the broker.
        servers: String,
        /// The cause.
        reason: String,
    },
    /// The broker denies access.
    #[error("the broker at {servers} does not let us in: {reason}")]
    Denied {
        /// Addresses of the broker.
        servers: String,
        /// The error of the broker, and what to check.
        reason: String,
    },
    /// The TLS handshake failed.
    #[error("the broker at {servers} cannot be reached securely: {reason}")]
    Tls {
        /// Addresses of the broker.
        servers: String,
        /// The cause.
        reason: String,
    },
    /// The broker would lose messages that it acknowledged.
    #[error("{what}")]
    Unsuitable {
        /// What it lacks or does, and what to change.
        what: String,
    },
}

impl NatsError {
    pub(crate) fn unsuitable(what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Unsuitable { what }
    }

    /// The broker does not respond about one of its streams.
    pub(crate) fn stream_unreachable(stream: &str, reason: &impl std::fmt::Display) -> Self {
        Self::Unreachable {
            servers: format!("the stream {stream}"),
            reason: reason.to_string(),
        }
    }

    /// Whether the same call may succeed later without a change of the configuration.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
