//! A bus on a broker, and what the tests do with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::MemoryTimerStore;
use punctual_adapters_nats::async_nats::Client;
use punctual_adapters_nats::{NatsEventBus, NatsParts, NatsSettings};
use punctual_adapters_system::SystemClock;
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, Registration, ScheduleTimer,
    ScheduledTimer, ServiceCallId, TenantId, TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, BusPosition, BusPositionPort, ClockPort, ConsumerName, DeadLetter, DeadLetterPort,
    MessageHandler, PortError, Subscribe,
};
use uuid::Uuid;

/// How long something may take that is sure to happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// Positions in memory, which outlive a bus.
#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<BTreeMap<String, BusPosition>>);

impl Positions {
    /// All of them as they are now, for a process that ends here.
    pub(crate) fn all(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.0.lock().unwrap().clone())))
    }
}

#[async_trait]
impl BusPositionPort for Positions {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        Ok(self.0.lock().unwrap().get(&stream).cloned())
    }

    async fn save(&self, position: BusPosition) -> Result<(), PortError> {
        let mut positions = self.0.lock().unwrap();
        positions.insert(position.stream.clone(), position);
        Ok(())
    }
}

/// The machine's clock, on which pauses last a fiftieth of what they should: a test of many failures
/// would otherwise wait for minutes. What is awaited through the broker takes its own time.
#[derive(Clone)]
pub(crate) struct HastyClock(SystemClock);

#[async_trait]
impl ClockPort for HastyClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep_until(&self, deadline: Timestamp) {
        self.0.sleep_until(deadline).await;
    }

    async fn sleep_for(&self, duration: Duration) {
        self.0.sleep_for(duration / 50).await;
    }
}

/// Everything that a bus needs, and that outlives it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) settings: NatsSettings,
    pub(crate) clock: HastyClock,
    pub(crate) store: MemoryTimerStore,
    pub(crate) positions: Arc<Positions>,
}

impl World {
    /// On the broker that all tests share, under a name of its own; `None` where there is no broker.
    pub(crate) fn shared() -> Option<Self> {
        let url = punctual_test_servers::shared_nats_url()?;
        let mut world = Self::at(&url);
        world.settings.prefix = punctual_test_servers::unique_prefix().parse().unwrap();
        Some(world)
    }

    pub(crate) fn at(url: &str) -> Self {
        Self {
            settings: NatsSettings::new(url).unwrap(),
            clock: HastyClock(SystemClock::start().unwrap()),
            store: MemoryTimerStore::new(),
            positions: Arc::default(),
        }
    }

    pub(crate) fn parts(&self) -> NatsParts {
        NatsParts {
            clock: Arc::new(self.clock.clone()),
            dead_letters: Arc::new(self.store.clone()),
            positions: Arc::<Positions>::clone(&self.positions),
        }
    }

    pub(crate) async fn bus(&self) -> NatsEventBus {
        let connecting = NatsEventBus::connect(self.settings.clone(), self.parts());
        connecting.await.unwrap()
    }

    /// A plain client, as another program has.
    pub(crate) async fn client(&self) -> Client {
        punctual_adapters_nats::connect(&self.settings)
            .await
            .unwrap()
    }

    /// The name of a stream or subject, with the prefix.
    pub(crate) fn stream(&self, name: &str) -> String {
        match self.settings.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}-{name}"),
        }
    }

    pub(crate) fn subject(&self, rest: &str) -> String {
        match self.settings.prefix.as_str() {
            "" => rest.to_owned(),
            prefix => format!("{prefix}.{rest}"),
        }
    }

    pub(crate) async fn dead_letters(&self) -> Vec<DeadLetter> {
        let dead_letters = self.store.list(None, 1_000).await.unwrap();
        dead_letters
            .into_iter()
            .map(|stored| stored.dead_letter)
            .collect()
    }

    /// Lets time pass, by the machine's clock.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.0.sleep_for(time).await;
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits until something has become true.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let until = self.clock.now().saturating_add(PATIENCE);
        while !condition() {
            assert!(self.clock.now() < until, "{what}: not within {PATIENCE:?}");
            self.clock.0.sleep_for(Duration::from_millis(10)).await;
        }
    }
}

type Judge = Box<dyn Fn(&MessageEnvelope, usize) -> Answer + Send + Sync>;

/// Takes messages down, and answers as it is told.
pub(crate) struct Recorder {
    seen: Mutex<Vec<MessageEnvelope>>,
    answer: Judge,
}

impl Recorder {
    pub(crate) fn content() -> Arc<Self> {
        Self::answering(|_, _| Answer::Done)
    }

    /// The function gets a message and how often it was seen before.
    pub(crate) fn answering(
        answer: impl Fn(&MessageEnvelope, usize) -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            answer: Box::new(answer),
        })
    }

    pub(crate) fn seen(&self) -> Vec<MessageEnvelope> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, id: EnvelopeId) -> usize {
        self.seen().iter().filter(|seen| seen.id == id).count()
    }
}

#[async_trait]
impl MessageHandler for Recorder {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = Vec::new();
        for message in batch {
            let earlier = self.count(message.id);
            self.seen.lock().unwrap().push(message.clone());
            answers.push((self.answer)(&message, earlier));
        }
        answers
    }
}

pub(crate) fn commands(handler: Arc<dyn MessageHandler>) -> Subscribe {
    Subscribe {
        topic: Topic::TimerCommands,
        consumer: ConsumerName::new("timer"),
        max_batch: 100,
        handler,
    }
}

pub(crate) fn events(handler: Arc<dyn MessageHandler>) -> Subscribe {
    Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("reader"),
        ..commands(handler)
    }
}

fn key(n: u128) -> TimerKey {
    let call = ServiceCallId::from_uuid(Uuid::from_u128(n));
    TimerKey::new(TenantId::new("tenant-a").unwrap(), call)
}

/// Command number `n`.
pub(crate) fn command(n: u128) -> MessageEnvelope {
    let key = key(n);
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(n)),
        timestamp: Timestamp::from_millis(1_000).unwrap(),
        metadata: MessageMetadata::default(),
        message: ScheduleTimer {
            tenant_id: key.tenant_id,
            service_call_id: key.service_call_id,
            due_at: Timestamp::from_millis(5_000).unwrap(),
            data: None,
        }
        .into(),
    }
}

/// The event of firing number `n`, which was noticed at some time.
pub(crate) fn event(n: u128, reached_at: Timestamp) -> MessageEnvelope {
    let timer = ScheduledTimer {
        key: key(n),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        registration: Registration {
            registered_at: Timestamp::from_millis(1_000).unwrap(),
            due_at: Timestamp::from_millis(5_000).unwrap(),
        },
        data: None,
    };
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(n)),
        timestamp: reached_at,
        metadata: MessageMetadata::default(),
        message: timer.reach(reached_at).unwrap().event().into(),
    }
}
