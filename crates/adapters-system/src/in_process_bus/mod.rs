//! A bus inside one process, which calls handlers directly.
//!
//! `publish` returns when the handlers have answered, so that delivery is at-least-once from end to end
//! without a broker: a message that was not handled is not accepted, and the publisher retries it from
//! its store. For the same reason a topic without subscribers is an error.
//!
//! A handler that never returns keeps its permit: give it a timeout. A handler must not publish to its own
//! topic: with all permits in use, it would wait for itself.

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

/// How handlers run.
#[derive(Debug, Clone)]
pub enum Handlers {
    /// As tasks of a runtime, in parallel. A handler that blocks keeps a thread of it. For production.
    Spawned(Handle),
    /// Inside `publish`: nothing is spawned, and the order is deterministic. For tests on a fake clock.
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
    /// Default maximum number of concurrent handler calls per consumer.
    pub const CONCURRENCY: usize = 1_000;

    /// A bus without subscriptions.
    pub fn new(handlers: Handlers) -> Self {
        Self::with_concurrency(handlers, Self::CONCURRENCY)
    }

    /// A bus with a maximum number of concurrent handler calls per consumer (at least one).
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

    /// Delivers messages of one topic, and returns one result for each.
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

/// Combines the answers of all consumers. A message that one of them retries is redelivered to all, which
/// is harmless.
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
            // An unknown answer is not a success.
            other => return Err(handler_failed(&format!("{other:?}"))),
        }
    }
    Ok(outcome)
}

/// Commands have one consumer.
fn refuse_second_command_consumer(
    request: &Subscribe,
    first: Option<&ConsumerName>,
) -> Result<(), PortError> {
    match first {
        Some(first) if request.topic.is_of_commands() && *first != request.consumer => {
            Err(PortError::new(
                PortErrorKind::Rejected,
                "subscribe",
                format!(
                    "{} has the consumer {first} already, and commands have one: subscribe under that name",
                    request.topic
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
        for (index, envelope) in batch.into_iter().enumerate() {
            let of_topic = by_topic.entry(envelope.message.topic()).or_default();
            of_topic.0.push(index);
            of_topic.1.push(envelope);
        }
        let published = by_topic
            .into_iter()
            .map(|(topic, (indexes, batch))| async move {
                let results = self.publish_to(topic, batch).await;
                indexes.into_iter().zip(results).collect::<Vec<_>>()
            });
        let mut results: Vec<_> = join_all(published).await.into_iter().flatten().collect();
        results.sort_by_key(|(index, _)| *index);
        debug_assert_eq!(results.len(), length, "every message has one result");
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    async fn subscribe(&self, request: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        if request.max_batch == 0 {
            return Err(PortError::new(
                PortErrorKind::Rejected,
                "subscribe",
                "max_batch is 0: a handler has to take at least one message",
            ));
        }
        let consumer = {
            let mut topics = lock(&self.shared.topics);
            let of_topic = topics.entry(request.topic).or_default();
            of_topic.retain(|_, consumer| consumer.smallest_batch().is_some());
            refuse_second_command_consumer(&request, of_topic.keys().next())?;
            let consumer = of_topic
                .entry(request.consumer)
                .or_insert_with(|| Arc::new(Consumer::new(self.shared.concurrency)));
            Arc::clone(consumer)
        };
        let member = Arc::new(Member::new(request.handler, request.max_batch));
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
