//! Opening and connecting what a builder was told to use.

use std::sync::Arc;

#[cfg(feature = "testing")]
use punctual_adapters_memory::{MemoryTimerStore, SequentialIds};
#[cfg(feature = "nats")]
use punctual_adapters_nats::{NatsError, NatsEventBus, NatsParts, NatsSettings};
#[cfg(feature = "sqlite")]
use punctual_adapters_sqlite::SqliteSettings;
use punctual_adapters_system::UuidIds;
use punctual_ports::{
    BusPositionPort, DeadLetterPort, EventBusPort, IdPort, TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::{WakeSignal, WorkerSettings};

use crate::Error;
use crate::clock::Clock;
use crate::store::Store;

/// Where the timers are to be.
pub(crate) enum Storage {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteSettings),
    #[cfg(feature = "testing")]
    Memory,
}

impl Storage {
    /// Without a bus of somebody else's, whatever is scheduled by a command belongs to a call that
    /// was accepted: the limit of a file must not refuse it.
    pub(crate) const fn takes_commands_of_calls_alone(&mut self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(settings) => settings.limits_commands = false,
            #[cfg(feature = "testing")]
            Self::Memory => {}
        }
    }
}

/// Where events go.
pub(crate) enum Bus {
    Own(Arc<dyn EventBusPort>),
    /// With what is wrong about its address, until somebody can be told.
    #[cfg(feature = "nats")]
    Nats(Box<Result<NatsSettings, NatsError>>),
}

/// A store that is open, as everybody sees it who needs it.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) persistence: Arc<dyn TimerPersistencePort>,
    pub(crate) queue: Arc<dyn TimerQueuePort>,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    /// For the bus of a broker, which keeps there how far it has come.
    #[cfg(feature = "nats")]
    positions: Arc<dyn BusPositionPort>,
}

impl Opened {
    fn new<S>(store: Store, ports: S) -> Self
    where
        S: TimerPersistencePort + TimerQueuePort + DeadLetterPort + BusPositionPort + 'static,
    {
        let ports = Arc::new(ports);
        Self {
            store,
            persistence: Arc::<S>::clone(&ports),
            queue: Arc::<S>::clone(&ports),
            dead_letters: Arc::<S>::clone(&ports),
            #[cfg(feature = "nats")]
            positions: ports,
        }
    }
}

pub(crate) async fn open(
    storage: Storage,
    clock: &Clock,
    wake: &WakeSignal,
) -> Result<Opened, Error> {
    match storage {
        #[cfg(feature = "sqlite")]
        Storage::Sqlite(settings) => {
            let store = crate::store::open(&settings, clock).await?;
            let ports = store.clone();
            let sqlite = crate::store::SqliteStore {
                store,
                role: settings.role,
                set: settings.set,
                #[cfg(feature = "calls")]
                calls: None,
                hints: crate::hints::Hints::new(clock.port(), wake.clone()),
                write_check: crate::write_check::WriteCheck::default(),
                #[cfg(feature = "calls")]
                calls_write_check: crate::write_check::WriteCheck::default(),
            };
            let store = Store::Sqlite(Box::new(sqlite));
            Ok(match clock {
                Clock::System { .. } => Opened::new(store, ports),
                #[cfg(feature = "testing")]
                Clock::Fake(clock) => {
                    use punctual_adapters_memory::Awaited;
                    Opened::new(store, Awaited::new(Arc::new(ports), clock))
                }
            })
        }
        #[cfg(feature = "testing")]
        Storage::Memory => {
            // Only a file needs them.
            let _ = (clock, wake);
            let store = MemoryTimerStore::new();
            Ok(Opened::new(Store::Memory(store.clone()), store))
        }
    }
}

/// A bus, and the broker behind it if it is ours to close.
pub(crate) struct Connected {
    pub(crate) bus: Arc<dyn EventBusPort>,
    #[cfg(feature = "nats")]
    pub(crate) broker: Option<NatsEventBus>,
}

impl Connected {
    fn to(bus: Arc<dyn EventBusPort>) -> Self {
        Self {
            bus,
            #[cfg(feature = "nats")]
            broker: None,
        }
    }
}

pub(crate) async fn connect(
    bus: Option<Bus>,
    opened: &Opened,
    clock: &Clock,
    worker: &WorkerSettings,
) -> Result<Connected, Error> {
    #[cfg(not(feature = "nats"))]
    let _ = opened;
    match bus {
        None => Ok(Connected::to(Arc::new(
            clock.bus(worker.publishes_in_flight),
        ))),
        Some(Bus::Own(bus)) => Ok(Connected::to(bus)),
        #[cfg(feature = "nats")]
        Some(Bus::Nats(settings)) => {
            let parts = NatsParts {
                clock: clock.port(),
                dead_letters: Arc::clone(&opened.dead_letters),
                positions: Arc::clone(&opened.positions),
            };
            let broker = NatsEventBus::connect((*settings)?, parts).await?;
            Ok(Connected {
                bus: Arc::new(broker.clone()),
                broker: Some(broker),
            })
        }
    }
}

/// On a fake clock the ids are the same in every run, too.
pub(crate) fn ids(clock: &Clock) -> Arc<dyn IdPort> {
    match clock {
        Clock::System { .. } => Arc::new(UuidIds),
        #[cfg(feature = "testing")]
        Clock::Fake(_) => Arc::new(SequentialIds::new()),
    }
}
