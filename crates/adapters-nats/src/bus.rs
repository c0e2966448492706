//! The bus: what the rest of Punctual sees of the broker.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, Timestamp, Topic};
use punctual_ports::{
    BatchResult, BusPositionPort, ClockPort, ConsumerName, DataLoss, DeadLetterPort, EventBusPort,
    PortError, PortErrorKind, PublishOutcome, Subscribe, Subscription,
};
use tokio::task::JoinHandle;

use crate::consume::Subscribed;
use crate::link::Link;
use crate::publish::publish;
use crate::{NatsError, NatsSettings};

/// What the bus needs from others.
#[derive(Clone)]
pub struct NatsParts {
    /// The time.
    pub clock: Arc<dyn ClockPort>,
    /// Where messages go that can never be handled.
    pub dead_letters: Arc<dyn DeadLetterPort>,
    /// Where it is kept how far the broker has acknowledged our events: not at the broker.
    pub positions: Arc<dyn BusPositionPort>,
}

/// Carries messages through NATS JetStream. Clones are the same bus.
///
/// It lives on the tokio runtime on which it was made. Whatever happens to the broker, it goes on:
/// while messages cannot be published, `publish` says so at once and keeps nothing, since the timer
/// store is the truth.
#[derive(Clone)]
pub struct NatsEventBus {
    shared: Arc<Shared>,
}

struct Shared {
    link: Arc<Link>,
    keeping: JoinHandle<()>,
    commands: Mutex<BTreeMap<Topic, CommandPlaces>>,
}

/// Who takes the commands of a topic: one consumer, with a place for each of its subscriptions.
type CommandPlaces = (ConsumerName, Vec<Weak<()>>);

impl NatsEventBus {
    /// Connects to a broker, or begins to if it does not answer. Its streams are made if they are
    /// missing, and looked at if they are there.
    ///
    /// # Errors
    /// If a setting makes no sense, the broker does not let us in, or it would lose messages: with
    /// what to change.
    pub async fn connect(settings: NatsSettings, parts: NatsParts) -> Result<Self, NatsError> {
        let link = Link::open(settings, parts).await?;
        let keeping = tokio::spawn(Arc::clone(&link).keep());
        Ok(Self {
            shared: Arc::new(Shared {
                link,
                keeping,
                commands: Mutex::default(),
            }),
        })
    }

    /// Keeps what is to be known at the next start, after the last message was published. Without
    /// it the next start publishes the events of the last seconds once more.
    pub async fn close(&self) {
        let link = &self.shared.link;
        if let Err(error) = link.keep_position(true).await {
            tracing::warn!(%error, "the broker's position could not be kept: some events may be published again");
        }
        // Acknowledgements that are still on the way would otherwise be lost with the connection.
        if link.connection().is_some() {
            let _ = link.client.flush().await;
        }
    }

    /// Takes a place among those who consume a topic.
    fn take_place(&self, topic: Topic, consumer: &ConsumerName) -> Result<Arc<()>, PortError> {
        let place = Arc::new(());
        if !topic.is_of_commands() {
            return Ok(place);
        }
        let mut commands = self
            .shared
            .commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (first, places) = commands
            .entry(topic)
            .or_insert_with(|| (consumer.clone(), Vec::new()));
        places.retain(|place| place.strong_count() > 0);
        if places.is_empty() {
            *first = consumer.clone();
        } else if first != consumer {
            return Err(rejected(format!(
                "{topic} has the consumer {first} already, and commands have one: subscribe under that name"
            )));
        }
        places.push(Arc::downgrade(&place));
        Ok(place)
    }
}

fn rejected(reason: String) -> PortError {
    PortError::new(PortErrorKind::Rejected, "subscribe", reason)
}

#[async_trait]
impl EventBusPort for NatsEventBus {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        publish(&self.shared.link, batch).await
    }

    /// A broker that is not there, or not ready, is waited for: messages come once it is.
    async fn subscribe(&self, wish: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        if wish.max_batch == 0 {
            return Err(rejected(
                "max_batch is 0: a handler has to take at least one message".to_owned(),
            ));
        }
        let place = self.take_place(wish.topic, &wish.consumer)?;
        let subscribed = Subscribed::begin(&self.shared.link, wish, place).await?;
        Ok(Box::new(subscribed))
    }

    async fn lost(&self) -> DataLoss {
        self.shared.link.lost().await
    }

    async fn recovered(&self, loss: &DataLoss) -> Result<(), PortError> {
        self.shared.link.recovered(loss).await
    }

    fn recovered_until(&self, loss: &DataLoss, until: Timestamp) {
        let link = &self.shared.link;
        let now = link.clock.now();
        link.tracker().recovered_until(loss, until, now);
    }

    fn readiness(&self) -> Result<(), String> {
        self.shared.link.readiness()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl fmt::Debug for NatsEventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsEventBus")
            .field("settings", &self.shared.link.settings)
            .finish_non_exhaustive()
    }
}
