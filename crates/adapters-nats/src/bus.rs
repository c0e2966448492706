//! The bus, as the rest of Punctual sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

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
use crate::{NatsError, NatsSettings, lock};

/// Dependencies of the bus.
#[derive(Clone)]
pub struct NatsParts {
    /// The clock.
    pub clock: Arc<dyn ClockPort>,
    /// The store of messages that can never be handled.
    pub dead_letters: Arc<dyn DeadLetterPort>,
    /// The store of the position up to which the broker acknowledged events: not at the broker.
    pub positions: Arc<dyn BusPositionPort>,
}

/// Event bus on NATS JetStream. Clones are the same bus.
///
/// It runs on the tokio runtime on which it was created, and outlasts any failure of the broker: while
/// messages cannot be published, `publish` fails at once and buffers nothing, since the timer store is
/// authoritative.
#[derive(Clone)]
pub struct NatsEventBus {
    shared: Arc<Shared>,
}

struct Shared {
    link: Arc<Link>,
    maintenance: JoinHandle<()>,
    commands: Mutex<BTreeMap<Topic, CommandConsumers>>,
}

/// The consumer of a topic of commands, with a registration for each of its subscriptions.
type CommandConsumers = (ConsumerName, Vec<Weak<()>>);

impl NatsEventBus {
    /// Connects to a broker, in the background if it is unavailable. Missing streams are created, existing
    /// ones are checked.
    ///
    /// # Errors
    /// If a setting is invalid, or the broker denies access or would lose messages: with what to change.
    pub async fn connect(settings: NatsSettings, parts: NatsParts) -> Result<Self, NatsError> {
        let link = Link::open(settings, parts).await?;
        let maintenance = tokio::spawn(Arc::clone(&link).keep());
        Ok(Self {
            shared: Arc::new(Shared {
                link,
                maintenance,
                commands: Mutex::default(),
            }),
        })
    }

    /// Saves the position after the last message was published. Without it the next start publishes the
    /// events of the last seconds again.
    pub async fn close(&self) {
        let link = &self.shared.link;
        if let Err(error) = link.save_position(true).await {
            tracing::warn!(%error, "the broker's position could not be kept: some events may be published again");
        }
        // Acknowledgements in flight would otherwise be lost with the connection.
        if link.connection().is_some() {
            let _ = link.client.flush().await;
        }
    }

    /// Registers a subscription of a topic.
    fn register(&self, topic: Topic, consumer: &ConsumerName) -> Result<Arc<()>, PortError> {
        let registration = Arc::new(());
        if !topic.is_of_commands() {
            return Ok(registration);
        }
        let mut commands = lock(&self.shared.commands);
        let (first, registrations) = commands
            .entry(topic)
            .or_insert_with(|| (consumer.clone(), Vec::new()));
        registrations.retain(|registration| registration.strong_count() > 0);
        if registrations.is_empty() {
            *first = consumer.clone();
        } else if first != consumer {
            return Err(rejected(format!(
                "{topic} has the consumer {first} already, and commands have one: subscribe under that name"
            )));
        }
        registrations.push(Arc::downgrade(&registration));
        Ok(registration)
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

    /// If the broker is not ready, delivery starts once it is.
    async fn subscribe(&self, request: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        if request.max_batch == 0 {
            return Err(rejected(
                "max_batch is 0: a handler has to take at least one message".to_owned(),
            ));
        }
        let registration = self.register(request.topic, &request.consumer)?;
        let subscribed = Subscribed::start(&self.shared.link, request, registration).await?;
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
        self.maintenance.abort();
    }
}

impl fmt::Debug for NatsEventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsEventBus")
            .field("settings", &self.shared.link.settings)
            .finish_non_exhaustive()
    }
}
