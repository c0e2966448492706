//! How messages get from one module to another.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, Timestamp, Topic};

use crate::{BatchResult, PortError};

/// Names a group of subscriptions that share the messages of a topic between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(&'static str);

impl ConsumerName {
    /// A consumer's name; part of broker object names, so keep to letters, digits and `-`.
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

/// What became of a message that was to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishOutcome {
    /// The bus answers for it: it was delivered, or is stored and will be.
    Accepted,
    /// The bus had it already, under the same deduplication id.
    Duplicate,
    /// It was delivered, and the receiver says that it can never handle it.
    Refused {
        /// What the receiver says.
        reason: String,
    },
}

/// What a handler says of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It is handled, durably.
    Done,
    /// Not this time, for a reason of its own: deliver it again, and give up on it in the end.
    RetryLater {
        /// Why, for the log.
        reason: String,
    },
    /// Not this time, through no fault of the message: what the handler needs, such as its store,
    /// cannot be used. It is delivered again however often that takes, and a bus that fetches does
    /// not fetch more meanwhile.
    Pause {
        /// Why, for the log.
        reason: String,
    },
    /// Never: keep it as a dead letter.
    Poison {
        /// Why, for the dead letter.
        reason: String,
    },
}

/// Takes messages of a topic.
///
/// A handler may get any message any number of times, in any order, and must be correct all the
/// same. It answers for each message, in order; a missing answer and a panic count as
/// [`Answer::RetryLater`].
#[async_trait]
pub trait MessageHandler: Send + Sync {
    /// Handles some messages.
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer>;
}

/// A wish to get messages.
#[derive(Clone)]
pub struct Subscribe {
    /// Of which topic.
    pub topic: Topic,
    /// As which consumer.
    pub consumer: ConsumerName,
    /// At most so many messages in one call of the handler.
    pub max_batch: usize,
    /// Who takes them.
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

/// A subscription, which lasts until it is stopped or dropped.
#[async_trait]
pub trait Subscription: Send + Sync {
    /// Takes no more messages, and returns when those in flight are answered. Stopping again, or twice at
    /// once, is the same.
    async fn stop(&self);
}

/// Messages that a bus had accepted and may have lost since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLoss {
    /// Which loss this is, for [`EventBusPort::recovered`].
    pub number: u64,
    /// Everything that was published from this instant on has to be published again.
    pub since: Timestamp,
    /// How it was found, for the log.
    pub reason: String,
}

/// Carries messages, at least once.
///
/// # Contract
/// - `publish` answers for each envelope by itself. An error may hide a success whose answer was
///   lost, so publishing the same envelope again is always safe.
/// - An accepted message reaches every consumer of its topic, at least once, as it was published.
/// - A bus that publishes only, for readers that it does not know, refuses every subscription with
///   `Rejected`, and keeps what it accepted.
/// - Events may have any number of consumers. Commands have one: a second consumer name on a topic
///   of commands is refused with `Rejected` while a subscription of the first lives.
/// - Subscriptions with the same consumer name share the messages: each goes to one of them.
/// - A message answered with `RetryLater` is delivered again, either by the bus itself or because
///   `publish` fails with a retryable error and the publisher tries again.
/// - One answered with `Pause` is delivered again, too, and is never given up on.
/// - A message answered with `Poison` is not delivered to that consumer again by the bus, and the
///   messages after it are delivered.
/// - A panic of a handler, and an answer too few, are `RetryLater`.
/// - A message of a topic that nobody subscribes to is either kept until somebody does, or refused
///   with the retryable `NoSubscriber`. It is never accepted and lost.
/// - A handler gets at most `max_batch` messages in one call.
/// - Where the bus keeps messages for later, a handler that takes one at a time (`max_batch` is 1) is
///   called for tenants in turn. Messages of one tenant whose calls do not return, are slow or answer
///   `RetryLater` hold up no other tenant's, as long as no more than a number of messages are
///   unfinished that the bus names. A handler that takes several gets them as they come.
/// - After `stop` has returned, the handler is not called any more, and no call is under way.
/// - `lost` waits until the bus finds that it may have lost messages which it had accepted, as a
///   broker does that is restored from an older copy. It gives the same loss again until `recovered`
///   says that those messages were published again, also after a restart. What `recovered_until` has
///   heard of may be left out after a restart, by a later `since`. A bus that cannot lose what it
///   accepted waits for ever.
/// - `readiness` tells whether a message published now could be accepted, as far as is known
///   without trying.
#[async_trait]
pub trait EventBusPort: Send + Sync {
    /// Publishes messages, each to the topic of its type.
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome>;

    /// Begins to deliver messages of a topic to a handler.
    async fn subscribe(&self, wish: Subscribe) -> Result<Box<dyn Subscription>, PortError>;

    /// Waits until messages that were accepted may be lost, and tells which.
    async fn lost(&self) -> DataLoss {
        std::future::pending().await
    }

    /// Takes note that the messages of a loss were all accepted again.
    async fn recovered(&self, _loss: &DataLoss) -> Result<(), PortError> {
        Ok(())
    }

    /// Takes note that those messages of a loss that are from before an instant were all accepted
    /// again, so that whoever ends in between need not begin at the start. It may be forgotten.
    fn recovered_until(&self, _loss: &DataLoss, _until: Timestamp) {}

    /// Whether messages can be published now, and if not, why.
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }
}
