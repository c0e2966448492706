//! The bus that carries messages between modules.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, Timestamp, Topic};

use crate::{BatchResult, PortError};

/// Name of a consumer: a group of subscriptions that share the messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(&'static str);

impl ConsumerName {
    /// A consumer name. It is part of broker object names: use letters, digits and `-` only.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name as text.
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Outcome of publishing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishOutcome {
    /// The bus has taken responsibility: the message was delivered, or is stored and will be.
    Accepted,
    /// The bus already has a message with the same deduplication id.
    Duplicate,
    /// The message was delivered, and its handler answered that it can never be handled.
    Refused {
        /// The reason that the handler gave.
        reason: String,
    },
}

/// Answer of a handler to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The message is handled durably.
    Done,
    /// Handling this message failed: redeliver it, up to the maximum number of deliveries.
    RetryLater {
        /// Why, for the log.
        reason: String,
    },
    /// Nothing can be handled now, for example because the store is unavailable. The message is
    /// redelivered without a limit, and a bus that fetches stops fetching meanwhile.
    Pause {
        /// Why, for the log.
        reason: String,
    },
    /// No retry can help: dead-letter the message.
    Poison {
        /// Why, for the dead letter.
        reason: String,
    },
}

/// Handles the messages of a topic.
///
/// A handler must be correct for any message, any number of times, in any order. It returns one answer
/// per message, in order; a missing answer and a panic count as [`Answer::RetryLater`].
#[async_trait]
pub trait MessageHandler: Send + Sync {
    /// Handles a batch of messages.
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer>;
}

/// Request for a subscription.
#[derive(Clone)]
pub struct Subscribe {
    /// The topic.
    pub topic: Topic,
    /// The consumer that the subscription belongs to.
    pub consumer: ConsumerName,
    /// Maximum number of messages in one call of the handler.
    pub max_batch: usize,
    /// The handler.
    pub handler: Arc<dyn MessageHandler>,
}

impl fmt::Debug for Subscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe")
            .field("topic", &self.topic)
            .field("consumer", &self.consumer)
            .field("max_batch", &self.max_batch)
            .finish_non_exhaustive()
    }
}

/// A subscription, active until it is stopped or dropped.
#[async_trait]
pub trait Subscription: Send + Sync {
    /// Stops delivery, and returns once the messages in flight are answered. Idempotent, also when called
    /// concurrently.
    async fn stop(&self);
}

/// Messages that a bus had accepted and may have lost since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLoss {
    /// Identifies the loss, for [`EventBusPort::recovered`].
    pub number: u64,
    /// The stream that lost them, as the bus names it.
    pub stream: String,
    /// Messages published at this instant or later have to be published again.
    pub since: Timestamp,
    /// How the loss was detected, for the log.
    pub reason: String,
}

/// Delivers messages at least once.
///
/// # Contract
/// - `publish` returns an outcome for each envelope. An error may hide a success whose acknowledgement was
///   lost, so publishing the same envelope again is always safe.
/// - An accepted message reaches every consumer of its topic at least once, unchanged.
/// - A publish-only bus, for readers unknown to it, refuses every subscription with `Rejected`, and keeps
///   what it accepted.
/// - Events may have any number of consumers. Commands have one: a second consumer name on a topic
///   of commands is refused with `Rejected` while a subscription of the first is active.
/// - Subscriptions with the same consumer name share the messages: each goes to one of them.
/// - A message answered with `RetryLater` is redelivered, either by the bus itself or because
///   `publish` fails with a retryable error and the publisher retries.
/// - A message answered with `Pause` is redelivered, too, and never dead-lettered.
/// - A message answered with `Poison` is not redelivered to that consumer by the bus, and the
///   messages after it are delivered.
/// - A panic of a handler, and a missing answer, count as `RetryLater`.
/// - A message of a topic without subscribers is either kept until there is one, or refused with the
///   retryable `NoSubscriber`. It is never accepted and lost.
/// - A handler gets at most `max_batch` messages in one call.
/// - Where the bus keeps messages for later, a handler that takes one at a time (`max_batch` is 1) is
///   called for tenants in turn. Messages of one tenant whose handling hangs, is slow or answers
///   `RetryLater` delay no other tenant's, as long as no more messages are unsettled than a limit that
///   the bus documents. A handler that takes several gets them as they arrive.
/// - After `stop` has returned, the handler is not called any more, and no call is in flight.
/// - `lost` waits until the bus detects that it may have lost messages which it had accepted, such as a
///   broker that was restored from an older backup. It returns the same loss until `recovered` records
///   that those messages were published again, also after a restart. After a restart, `since` may be
///   later, by what `recovered_until` recorded. A bus that cannot lose accepted messages never returns.
/// - `readiness` is whether a message published now could be accepted, as far as known without trying.
#[async_trait]
pub trait EventBusPort: Send + Sync {
    /// Publishes messages, each to the topic of its type.
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome>;

    /// Starts delivering messages of a topic to a handler.
    async fn subscribe(&self, request: Subscribe) -> Result<Box<dyn Subscription>, PortError>;

    /// Waits until accepted messages may be lost, and returns which.
    async fn lost(&self) -> DataLoss {
        std::future::pending().await
    }

    /// Records that all messages of a loss were accepted again.
    async fn recovered(&self, _loss: &DataLoss) -> Result<(), PortError> {
        Ok(())
    }

    /// Records that the messages of a loss published before an instant were accepted again, so that a
    /// recovery interrupted by a restart can continue from there. Best effort.
    fn recovered_until(&self, _loss: &DataLoss, _until: Timestamp) {}

    /// Whether messages can be published now, and if not, why.
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }
}
