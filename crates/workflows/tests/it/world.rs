//! A timer service in memory: store, bus, clock, worker and a receiver of events.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{Driving, FakeClock, MemoryTimerStore, SequentialIds};
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_domain::{TenantId, TimerEntry, TimerKey, Timestamp, Topic};
use punctual_ports::{
    Answer, ClockPort, ConsumerName, EventBusPort, SaveOutcome, Subscribe, Subscription,
    TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::{
    Driven, InFlightEpoch, LastPoll, ScheduleTimers, TimerPorts, TimerRequest, TimerWorker,
    WakeSignal, WorkerSettings,
};

use crate::ledger::Ledger;

pub(crate) const START: &str = "2026-12-24T18:00:00Z";

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn key_of(tenant: &str, name: &str) -> TimerKey {
    TimerKey::named(TenantId::new(tenant).unwrap(), name)
}

pub(crate) fn key(name: &str) -> TimerKey {
    key_of("tenant-a", name)
}

/// For tests whose failure a poll would hide.
pub(crate) fn rare_polls() -> WorkerSettings {
    WorkerSettings {
        polling_interval: Duration::from_hours(6),
        ..WorkerSettings::default()
    }
}

pub(crate) struct World {
    pub clock: FakeClock,
    pub store: MemoryTimerStore,
    pub bus: InProcessBus,
    pub ledger: Arc<Ledger>,
    pub faults: Faults,
    pub ports: TimerPorts,
    pub timers: ScheduleTimers,
    pub worker: Arc<Driven<TimerWorker>>,
    driving: Option<Driving>,
    subscriptions: Vec<Box<dyn Subscription>>,
}

/// The ports of one life of the process: the same store and bus, with faults of its own.
pub(crate) fn faulty_ports(
    clock: &FakeClock,
    store: &MemoryTimerStore,
    bus: &InProcessBus,
    faults: &Faults,
) -> TimerPorts {
    let store: Arc<MemoryTimerStore> = Arc::new(store.clone());
    let store = Arc::new(Faulty::new(store, faults));
    TimerPorts {
        clock: Arc::new(clock.clone()),
        ids: Arc::new(SequentialIds::new()),
        persistence: Arc::clone(&store) as Arc<dyn TimerPersistencePort>,
        queue: store as Arc<dyn TimerQueuePort>,
        bus: Arc::new(Faulty::new(Arc::new(bus.clone()), faults)),
        wake: WakeSignal::new(),
        in_flight_epoch: InFlightEpoch::default(),
        last_poll: LastPoll::default(),
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(WorkerSettings::default()).await
    }

    pub(crate) async fn with(settings: WorkerSettings) -> Self {
        let clock = FakeClock::new(START.parse().unwrap());
        let (store, bus) = (MemoryTimerStore::new(), InProcessBus::new(Handlers::Inline));
        let faults = Faults::new(Arc::new(clock.clone()));
        let ports = faulty_ports(&clock, &store, &bus, &faults);
        let ledger = Ledger::new(&clock);
        let worker = Driven::new(TimerWorker::new(&ports, settings).unwrap());
        let mut world = Self {
            driving: Some(clock.drive(worker.clone())),
            timers: ScheduleTimers::new(&ports),
            clock,
            store,
            bus,
            ledger,
            faults,
            ports,
            worker,
            subscriptions: Vec::new(),
        };
        world.subscribe().await;
        world
    }

    /// From now on the receiver takes this long, by the clock, for each event.
    pub(crate) fn answers_after(&self, by: Duration) {
        let clock = self.clock.clone();
        self.ledger.answers(move |_, _| {
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep_for(by).await;
                Answer::Done
            })
        });
    }

    pub(crate) async fn subscribe(&mut self) {
        let request = Subscribe {
            topic: Topic::TimerEvents,
            consumer: ConsumerName::new("receiver"),
            max_batch: 1,
            handler: self.ledger.clone(),
        };
        self.subscriptions
            .push(self.bus.subscribe(request).await.unwrap());
    }

    pub(crate) fn unsubscribe(&mut self) {
        self.subscriptions.clear();
    }

    /// The process ends, as by SIGKILL, and begins again.
    pub(crate) fn restart(&mut self, settings: WorkerSettings) {
        self.stop();
        self.store.crash_and_reopen();
        self.faults = Faults::new(Arc::new(self.clock.clone()));
        self.ports = faulty_ports(&self.clock, &self.store, &self.bus, &self.faults);
        self.timers = ScheduleTimers::new(&self.ports);
        self.worker = Driven::new(TimerWorker::new(&self.ports, settings).unwrap());
        self.driving = Some(self.clock.drive(self.worker.clone()));
    }

    /// The worker is driven no more.
    pub(crate) fn stop(&mut self) {
        self.driving = None;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn in_(&self, from_now: Duration) -> Timestamp {
        self.now().saturating_add(from_now)
    }

    pub(crate) async fn schedule(&self, key: &TimerKey, due_in: Duration) -> SaveOutcome {
        self.schedule_at(key, self.in_(due_in)).await
    }

    pub(crate) async fn schedule_at(&self, key: &TimerKey, due_at: Timestamp) -> SaveOutcome {
        let request = TimerRequest::at(key.clone(), due_at);
        let saved = self.timers.schedule(vec![request]).await.unwrap();
        saved.into_iter().next().unwrap().unwrap()
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by).await;
    }

    pub(crate) async fn is_reached(&self, key: &TimerKey) -> bool {
        let found = self.store.find(key.clone()).await.unwrap();
        matches!(found, Some(TimerEntry::Reached { .. }))
    }

    /// How many calls of a port's method there were.
    pub(crate) fn count_calls(&self, operation: &'static str) -> Arc<std::sync::atomic::AtomicU64> {
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counting = Arc::clone(&count);
        self.faults.decide(move |call| {
            if call.operation == operation {
                counting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            None
        });
        count
    }
}
