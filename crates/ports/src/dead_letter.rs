//! Dead letters: messages and firings that can never be handled.

use std::fmt;

use async_trait::async_trait;
use punctual_domain::{DeadLetterOrigin, TenantId, Timestamp};

use crate::{BatchResult, PortError};

/// A message that can never be handled, stored unchanged.
///
/// `Debug` prints the length of the payload and not its content, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Deduplicates dead letters: the deduplication id of the message, or its position in a stream if
    /// the message cannot be decoded.
    pub id: String,
    /// What dead-lettered the message.
    pub origin: DeadLetterOrigin,
    /// The tenant, if it could be decoded.
    pub tenant_id: Option<TenantId>,
    /// The bytes of the message.
    pub payload: Vec<u8>,
    /// Why the message can never be handled.
    pub reason: String,
    /// When the message was dead-lettered.
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

/// A dead letter and its position in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// Sequence number, in the order of recording.
    pub sequence: u64,
    /// The dead letter.
    pub dead_letter: DeadLetter,
}

/// Outcome of recording a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordOutcome {
    /// The dead letter was added.
    Recorded,
    /// A dead letter with that id exists and is unchanged.
    AlreadyThere,
}

/// Outcome of removing a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveOutcome {
    /// The dead letter was removed.
    Removed,
    /// There is no dead letter with that sequence number.
    NotFound,
}

/// Stores dead letters until an operator removes them.
///
/// # Contract
/// - A dead letter is durable when `record` returns, and is read back byte for byte, with its origin.
/// - Recording the same id again changes nothing.
/// - `list` returns dead letters in the order in which they were recorded, at most `limit`, and only
///   those with a sequence number greater than `after`.
/// - A removed dead letter is no longer listed, and its sequence number is not reused.
/// - All instances share them: of several that record one id, or remove one number, one does.
/// - Once removed, a dead letter with the same id can be recorded again.
#[async_trait]
pub trait DeadLetterPort: Send + Sync {
    /// Records dead letters.
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome>;

    /// Lists dead letters after a sequence number, oldest first.
    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError>;

    /// Removes dead letters by sequence number.
    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome>;
}
