//! A bus inside one process: whoever publishes hands the message over in person.
//!
//! `publish` answers when the handlers have answered, so that at-least-once holds from end to end
//! without a broker: what was not handled was not accepted, and the publisher, whose store still
//! holds it, tries again. For the same reason a topic that nobody subscribes to is an error.
//!
//! A handler that never returns keeps its place: give it a deadline of its own. A handler must not
//! publish to its own topic: with all places taken, it would wait for itself.

mod consumer;
mod delivery;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::join_all;
use punctual_domain::{MessageEnvelope, Topic};
use punctual_ports::{
    Answer, BatchResult, ConsumerName, EventBusPort, PortError, PortErrorKind, PublishOutcome,
    Subscribe, Subscription,
};
use tokio::runtime::Handle;

use crate::lock;
use consumer::{Consumer, Member};

/// Where handlers run.
#[derive(Debug, Clone)]
pub enum Handlers {
    /// As tasks of a runtime: in parallel, as far as it has threads; a handler that blocks one holds
    /// it until it returns. For production.
    Spawned(Handle),
    /// Inside `publish` itself: nothing is spawned, and the order is the same in every run. For
    /// tests on a fake clock.
    Inline,
}

/// Delivers to handlers of the same process. Clones are the same bus.
#[derive(Clone)]
pub struct InProcessBus {
    shared: Arc<Shared>,
}

struct Shared {
    handlers: Handlers,
    concurrency: usize,
    topics: Mutex<Topics>,
}

type Topics = BTreeMap<Topic, BTreeMap<ConsumerName, Arc<Consumer>>>;

impl InProcessBus {
    /// How many calls of one consumer's handlers run at once unless it is set otherwise.
    pub const CONCURRENCY: usize = 1_000;

    /// A bus without subscriptions.
    pub fn new(handlers: Handlers) -> Self {
        Self::with_concurrency(handlers, Self::CONCURRENCY)
    }

    /// A bus on which at most so many calls of one consumer's handlers run at once (one at least).
    pub fn with_concurrency(handlers: Handlers, concurrency: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                handlers,
                concurrency: concurrency.max(1),
                topics: Mutex::default(),
            }),
        }
    }

    fn consumers(&self, topic: Topic) -> Vec<Arc<Consumer>> {
        let topics = lock(&self.shared.topics);
        let consumers = topics.get(&topic);
        consumers
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    /// Delivers messages of one topic, and gives one result for each.
    async fn publish_to(
        &self,
        topic: Topic,
        batch: Vec<MessageEnvelope>,
    ) -> Vec<Result<PublishOutcome, PortError>> {
        let length = batch.len();
        let handlers = &self.shared.handlers;
        let consumers = self.consumers(topic);
        let deliveries = consumers
            .iter()
            .map(|consumer| delivery::deliver(consumer, &batch, handlers));
        let answered: Vec<Vec<Answer>> = join_all(deliveries).await.into_iter().flatten().collect();
        if answered.is_empty() {
            let error = PortError::new(
                PortErrorKind::NoSubscriber,
                "publish messages",
                format!("nobody subscribes to {topic}"),
            );
            return vec![Err(error); length];
        }
        (0..length)
            .map(|n| outcome(answered.iter().map(|answers| &answers[n])))
            .collect()
    }
}

/// One answer for the publisher: every consumer has to be done. What one of them wants again, all
/// get again, which is harmless, while a lost one would not be.
fn outcome<'a>(answers: impl Iterator<Item = &'a Answer>) -> Result<PublishOutcome, PortError> {
    let mut outcome = PublishOutcome::Accepted;
    for answer in answers {
        match answer {
            Answer::Done => {}
            Answer::Poison { reason } => {
                outcome = PublishOutcome::Refused {
                    reason: reason.clone(),
                }
            }
            Answer::RetryLater { reason } => return Err(handler_failed(reason)),
            Answer::Pause { reason } => {
                return Err(PortError::new(
                    PortErrorKind::Unavailable,
                    "handle a message",
                    reason,
                ));
            }
            // An answer that this version does not know is not a success.
            other => return Err(handler_failed(&format!("{other:?}"))),
        }
    }
    Ok(outcome)
}

/// Commands have one consumer.
fn refuse_a_second_for_commands(
    wish: &Subscribe,
    first: Option<&ConsumerName>,
) -> Result<(), PortError> {
    match first {
        Some(first) if wish.topic.is_of_commands() && *first != wish.consumer => {
            Err(PortError::new(
                PortErrorKind::Rejected,
                "subscribe",
                format!(
                    "{} has the consumer {first} already, and commands have one: subscribe under that name",
                    wish.topic
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn handler_failed(reason: &str) -> PortError {
    PortError::new(PortErrorKind::HandlerFailed, "handle a message", reason)
}

#[async_trait]
impl EventBusPort for InProcessBus {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let mut by_topic: BTreeMap<Topic, (Vec<usize>, Vec<MessageEnvelope>)> = BTreeMap::new();
        let length = batch.len();
        for (place, envelope) in batch.into_iter().enumerate() {
            let of_topic = by_topic.entry(envelope.message.topic()).or_default();
            of_topic.0.push(place);
            of_topic.1.push(envelope);
        }
        let published = by_topic
            .into_iter()
            .map(|(topic, (places, batch))| async move {
                let results = self.publish_to(topic, batch).await;
                places.into_iter().zip(results).collect::<Vec<_>>()
            });
        let mut results: Vec<_> = join_all(published).await.into_iter().flatten().collect();
        results.sort_by_key(|(place, _)| *place);
        debug_assert_eq!(results.len(), length, "every message has one result");
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    async fn subscribe(&self, wish: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        if wish.max_batch == 0 {
            return Err(PortError::new(
                PortErrorKind::Rejected,
                "subscribe",
                "max_batch is 0: a handler has to take at least one message",
            ));
        }
        let consumer = {
            let mut topics = lock(&self.shared.topics);
            let of_topic = topics.entry(wish.topic).or_default();
            of_topic.retain(|_, consumer| consumer.smallest_batch().is_some());
            refuse_a_second_for_commands(&wish, of_topic.keys().next())?;
            let consumer = of_topic
                .entry(wish.consumer)
                .or_insert_with(|| Arc::new(Consumer::new(self.shared.concurrency)));
            Arc::clone(consumer)
        };
        let member = Arc::new(Member::new(wish.handler, wish.max_batch));
        consumer.add(Arc::clone(&member));
        Ok(Box::new(InProcessSubscription { consumer, member }))
    }
}

impl fmt::Debug for InProcessBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessBus")
            .field("handlers", &self.shared.handlers)
            .field("concurrency", &self.shared.concurrency)
            .finish_non_exhaustive()
    }
}

struct InProcessSubscription {
    consumer: Arc<Consumer>,
    member: Arc<Member>,
}

#[async_trait]
impl Subscription for InProcessSubscription {
    async fn stop(&self) {
        self.consumer.remove(&self.member);
        self.member.stop().await;
    }
}

impl Drop for InProcessSubscription {
    fn drop(&mut self) {
        self.consumer.remove(&self.member);
        self.member.refuse();
    }
}
