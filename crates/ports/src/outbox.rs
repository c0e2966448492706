//! The transactional outbox: messages committed with the change they describe, published after it.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};

use crate::{BatchResult, DeadLetter, PortError};

/// Position of a message in the outbox: its name, and its place among the messages of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxPosition {
    /// When the message was appended.
    pub created_at: Timestamp,
    /// Sequence number.
    pub number: i64,
}

/// Messages claimed to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxBatch {
    /// The messages, by position.
    pub rows: Vec<OutboxRow>,
    /// When to claim next although nothing was appended, by the clock of the caller: the earliest end of a
    /// claim after now, as far as known.
    pub next_at: Option<Timestamp>,
}

/// A message that could not be published yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishLater {
    /// Its position.
    pub position: OutboxPosition,
    /// How long nobody claims it.
    pub after: Duration,
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
/// - Rows of one call have growing positions, in the order of the changes that appended them, even if the
///   clock was set back meanwhile. Positions say nothing about which of two calls was changed first.
/// - `mark_published` marks a message as published; so does `dead_letter`, which records a dead letter
///   in the same transaction. Neither needs the storage to grow, and neither needs a claim: a message is
///   published once it is marked, by whomever, and marked once.
/// - Once a `StartExecution` is published, the secrets of its request are no longer stored with it. A store may
///   keep them with the call alone from the beginning, and complete the message when it is claimed.
///   If the call has its outcome by then, or is not there any more, there is nothing to start: such a store
///   marks the message as published and returns it to nobody.
/// - `count` returns the number of messages waiting, up to `limit`.
/// - `about` returns the messages of a call, published or not, by position, at most `limit`, and never
///   the secrets of a request.
/// - `purge` removes messages that were published before an instant, at most `limit`, and never an
///   unpublished one. Of several callers at once, each row is removed and counted by one.
///
/// ## Claiming
/// - `claim` returns messages that are not marked, by position, at most `limit`, and claims them for the
///   caller: no other call returns them before the lease has ended. It ends `lease` after `now`, by the
///   store's clock if it has one; with a lease of zero at once.
/// - A message that nobody has claimed, or whose claim has ended, is claimed sooner or later, whoever has
///   appended it and whenever that was committed. A claim may pass over what another is claiming.
/// - While an instance has claimed a message, no other claims a later one about the same call. This is all
///   that is promised about order, and it holds for no longer than a lease: whoever receives messages may
///   rely on none.
/// - `retry_later` ends the claims of the caller after a while instead, also at once, and the messages hold
///   up no others from now on. It changes nothing about a message that another instance has claimed since,
///   or that is published.
/// - A message may be published twice, with the same id: by a stale owner and the one after it.
/// - A store may claim a message for the instance that appends it, in the same commit; the next claim
///   of that instance returns it. Where only one instance publishes, claims may end with the process.
#[async_trait]
pub trait OutboxPort: Send + Sync {
    /// Claims messages waiting to be published.
    async fn claim(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<OutboxBatch, PortError>;

    /// Leaves claimed messages to a later claim, by whichever instance.
    async fn retry_later(&self, batch: Vec<PublishLater>, now: Timestamp) -> Result<(), PortError>;

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
