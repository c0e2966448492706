//! Why a broker cannot be used, in a sentence that says what would be right.

use thiserror::Error;

/// Why a broker cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NatsError {
    /// A setting makes no sense.
    #[error("{field} is wrong: {advice}")]
    Setting {
        /// Which setting.
        field: &'static str,
        /// What would be right.
        advice: String,
    },
    /// Nobody answers there. Trying again may help.
    #[error("the broker at {servers} does not answer: {reason}")]
    Unreachable {
        /// Where.
        servers: String,
        /// What happened.
        reason: String,
    },
    /// The broker does not let us in.
    #[error("the broker at {servers} does not let us in: {reason}")]
    Denied {
        /// Where.
        servers: String,
        /// What it said, and what to look at.
        reason: String,
    },
    /// The connection could not be made secure.
    #[error("the broker at {servers} cannot be reached securely: {reason}")]
    Tls {
        /// Where.
        servers: String,
        /// What happened.
        reason: String,
    },
    /// The broker is not one that keeps what it acknowledges.
    #[error("{what}")]
    Unsuitable {
        /// What it lacks or does, and what to change.
        what: String,
    },
}

impl NatsError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
