//! The transactional outbox: messages committed with the change they describe, published after it.

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};

use crate::{BatchResult, DeadLetter, PortError};

/// Position of a message in the outbox, in the order of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxPosition {
    /// When the message was appended.
    pub created_at: Timestamp,
    /// Sequence number.
    pub number: i64,
}

/// A message waiting to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its position.
    pub position: OutboxPosition,
    /// The message, or what is stored if that cannot be decoded.
    pub envelope: Result<MessageEnvelope, Unreadable>,
}

/// A stored payload that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The stored bytes.
    pub payload: Vec<u8>,
    /// Why they cannot be decoded.
    pub reason: String,
}

/// Outcome of marking or dead-lettering a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutboxOutcome {
    /// The message is marked as published now.
    Marked,
    /// The message was marked before, or was deleted.
    AlreadyDone,
}

/// A message that can never be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterMessage {
    /// Its position.
    pub position: OutboxPosition,
    /// The dead letter to record.
    pub dead_letter: DeadLetter,
}

/// A message and when it was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedMessage {
    /// The message.
    pub envelope: MessageEnvelope,
    /// When it was published; `None` while it waits.
    pub published_at: Option<Timestamp>,
}

/// Stores messages from the commit of the change they describe until they are published.
///
/// # Contract
/// - `unpublished` returns messages that are not marked, by position, after the given one, at most
///   `limit`.
/// - Positions never decrease: a message appended later has a later position, even if the clock was set
///   back meanwhile.
/// - `mark_published` marks a message as published; so does `dead_letter`, which records a dead letter
///   in the same transaction. Neither needs the storage to grow.
/// - Once a `StartExecution` is published, the secrets of its request are no longer stored.
/// - `count` returns the number of messages waiting, up to `limit`.
/// - `about` returns the messages of a call, published or not, by position, at most `limit`, and never
///   the secrets of a request.
/// - `purge` removes messages that were published before an instant, at most `limit`, and never an
///   unpublished one.
#[async_trait]
pub trait OutboxPort: Send + Sync {
    /// Reads messages waiting to be published.
    async fn unpublished(
        &self,
        after: Option<OutboxPosition>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, PortError>;

    /// Marks messages as published.
    async fn mark_published(
        &self,
        batch: Vec<OutboxPosition>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome>;

    /// Dead-letters messages.
    async fn dead_letter(&self, batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome>;

    /// Number of messages waiting, counted up to `limit`.
    async fn count(&self, limit: usize) -> Result<usize, PortError>;

    /// Reads the messages about a call.
    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError>;

    /// Removes messages published before an instant.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
}
