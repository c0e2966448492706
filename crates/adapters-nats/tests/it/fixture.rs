//! A bus on a broker, and what the tests do with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::MemoryTimerStore;
use punctual_adapters_nats::{NatsEventBus, NatsParts, NatsSettings};
use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::{BusPosition, BusPositionPort, ClockPort, PortError};

/// How long something may take that is sure to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Positions in memory, which outlive a bus.
#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<BTreeMap<String, BusPosition>>);

#[async_trait]
impl BusPositionPort for Positions {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        Ok(self.0.lock().unwrap().get(&stream).cloned())
    }

    async fn keep(&self, position: BusPosition) -> Result<(), PortError> {
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

    /// Waits until something has become true.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let until = self.clock.now().saturating_add(PATIENCE);
        while !condition() {
            assert!(self.clock.now() < until, "{what}: not within {PATIENCE:?}");
            self.clock.0.sleep_for(Duration::from_millis(10)).await;
        }
    }
}
