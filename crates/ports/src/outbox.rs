//! What is committed and still has to be published.

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};

use crate::{BatchResult, DeadLetter, PortError};

/// The place of a message in the outbox. Places are in the order of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxPosition {
    /// When it was put there.
    pub created_at: Timestamp,
    /// Its number.
    pub number: i64,
}

/// A message that waits to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Where it stands.
    pub place: OutboxPosition,
    /// The message; or, if it cannot be read any more, the bytes and what is wrong with them.
    pub envelope: Result<MessageEnvelope, Unreadable>,
}

/// A row that is no envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What is there.
    pub payload: Vec<u8>,
    /// What is wrong with it.
    pub reason: String,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutboxOutcome {
    /// It is published now.
    Marked,
    /// It was published before, or is gone.
    AlreadyDone,
}

/// A message that can never be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterMessage {
    /// Where it stands.
    pub place: OutboxPosition,
    /// What becomes of it.
    pub dead_letter: DeadLetter,
}

/// A message as it was published, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedMessage {
    /// The message.
    pub envelope: MessageEnvelope,
    /// When it was published, if it was.
    pub published_at: Option<Timestamp>,
}

/// Keeps messages from the commit of what they tell until they are published.
///
/// # Contract
/// - `unpublished` gives messages that are not marked, by place, after the given one, at most
///   `limit`.
/// - Places never go back: a message that is appended later has a later place, also if the clock
///   was set back meanwhile.
/// - `mark_published` and `dead_letter` each make a message published; `dead_letter` also records its dead
///   letter, both or neither. Neither needs room to grow.
/// - Once a `StartExecution` is published, what was secret about its request is not kept any more.
/// - `count` tells how many messages wait, up to a limit.
/// - `about` gives the messages of a call, published or not, by place, at most `limit`, and never what
///   is secret about a request.
/// - `purge` removes messages that were published before an instant, at most `limit`, and never one
///   that was not.
#[async_trait]
pub trait OutboxPort: Send + Sync {
    /// Messages that wait.
    async fn unpublished(
        &self,
        after: Option<OutboxPosition>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, PortError>;

    /// Takes note that messages were published.
    async fn mark_published(
        &self,
        batch: Vec<OutboxPosition>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome>;

    /// Gives up on messages.
    async fn dead_letter(&self, batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome>;

    /// How many messages wait, counting no further than `limit`.
    async fn count(&self, limit: usize) -> Result<usize, PortError>;

    /// The messages about a call.
    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError>;

    /// Forgets what was published before an instant.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
}
