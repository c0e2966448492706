//! Where messages and firings go that can never be handled.

use std::fmt;

use async_trait::async_trait;
use punctual_domain::{DeadLetterOrigin, TenantId, Timestamp};

use crate::{BatchResult, PortError};

/// A message that can never be handled, kept as it came.
///
/// Its `Debug` shows how long the payload is, not what it says: that may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// By what a repetition of the same letter is recognised: a message's deduplication id, or its
    /// place in a stream if it could not even be read.
    pub id: String,
    /// What gave up on it.
    pub origin: DeadLetterOrigin,
    /// Whose it is, if that could be read.
    pub tenant_id: Option<TenantId>,
    /// The message, byte for byte.
    pub payload: Vec<u8>,
    /// Why it can never be handled.
    pub reason: String,
    /// When that was found.
    pub failed_at: Timestamp,
}

impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("id", &self.id)
            .field("origin", &self.origin)
            .field("tenant_id", &self.tenant_id)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .field("reason", &self.reason)
            .field("failed_at", &self.failed_at)
            .finish()
    }
}

/// A dead letter with its place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// Its number, which grows in the order of recording.
    pub sequence: u64,
    /// The letter.
    pub dead_letter: DeadLetter,
}

/// What became of a letter that was to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordOutcome {
    /// It was added.
    Recorded,
    /// One with its id was there already; that one is unchanged.
    AlreadyThere,
}

/// What became of a letter that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveOutcome {
    /// It was removed.
    Removed,
    /// There is none of that number.
    NotFound,
}

/// Keeps what could not be handled until a person has looked at it.
///
/// # Contract
/// - A recorded letter is durable when `record` answers, and comes back byte for byte,
///   and with its origin.
/// - Recording the same id again changes nothing.
/// - `list` gives letters in the order in which they were recorded, at most `limit`, and only those
///   with a number greater than `after`.
/// - A removed letter is listed no more, and its number is not given again.
/// - Once removed, a letter of the same id can be recorded again.
#[async_trait]
pub trait DeadLetterPort: Send + Sync {
    /// Adds letters.
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome>;

    /// Lists letters after a number, oldest first.
    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError>;

    /// Removes letters by number.
    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome>;
}
