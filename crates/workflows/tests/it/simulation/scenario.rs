//! One life of a timer service: random actions on it, and crashes in between.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_adapters_memory::faults::Faults;
use punctual_adapters_memory::{Driving, FakeClock, MemoryTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_domain::{
    EnvelopeId, MessageEnvelope, MessageMetadata, ScheduleTimer, TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, ClockPort, ConsumerName, DeleteOutcome, EventBusPort, MessageHandler, SaveOutcome,
    Subscribe, Subscription,
};
use punctual_workflows::{
    Driven, ScheduleTimers, TimerPorts, TimerRequest, TimerWorker, WorkerSettings,
};
use uuid::Uuid;

use super::checks::{Checks, Promise};
use super::faults::Chaos;
use super::random::Random;
use crate::ledger::{Ledger, poison, reply, retry};
use crate::world::{START, faulty_ports, key_of};

/// One run of the process, from its start to its crash.
struct Process {
    faults: Faults,
    ports: TimerPorts,
    timers: ScheduleTimers,
    _driving: Driving,
    _subscription: Box<dyn Subscription>,
}

pub(super) struct Scenario {
    random: Random,
    chaos: Chaos,
    clock: FakeClock,
    store: MemoryTimerStore,
    bus: InProcessBus,
    ledger: Arc<Ledger>,
    checks: Checks,
    process: Process,
    _receiver: Box<dyn Subscription>,
    faults_of_the_dead: u64,
}

const ACTIONS: u32 = 40;

/// Small limits, so that a few timers reach them.
const SETTINGS: WorkerSettings = WorkerSettings {
    polling_interval: Duration::from_secs(5),
    batch_size: 4,
    lease: Duration::from_secs(30),
    publishes_in_flight: 3,
    publishes_per_tenant: 2,
    publish_batch: 2,
    max_in_flight: 6,
    drain_limit: Duration::from_secs(25),
};

fn subscribe(topic: Topic, consumer: &'static str, handler: Arc<dyn MessageHandler>) -> Subscribe {
    Subscribe {
        topic,
        consumer: ConsumerName::new(consumer),
        max_batch: 2,
        handler,
    }
}

impl Scenario {
    /// Lives a whole life, and returns how many faults there were, or which promise was broken.
    pub(super) async fn run(seed: u64, chaos: Chaos) -> Result<u64, String> {
        let mut scenario = Self::new(seed, chaos).await;
        for _ in 0..ACTIONS {
            scenario.act().await?;
            scenario
                .checks
                .compare(&scenario.store, &scenario.ledger)
                .await?;
        }
        scenario.settle().await?;
        Ok(scenario.faults_of_the_dead)
    }

    async fn new(seed: u64, chaos: Chaos) -> Self {
        let mut random = Random::new(seed);
        let clock = FakeClock::new(START.parse().unwrap());
        let (store, bus) = (MemoryTimerStore::new(), InProcessBus::new(Handlers::Inline));
        let ledger = Ledger::new(&clock);
        let answers = Mutex::new(random.fork());
        let time = clock.clone();
        ledger.answers(move |event, _| {
            let mut random = answers.lock().unwrap();
            if random.once_in(chaos.slow_handlers) {
                let (time, by) = (time.clone(), Duration::from_millis(random.below(60_000)));
                return Box::pin(async move {
                    time.sleep_for(by).await;
                    Answer::Done
                });
            }
            let bad = random.once_in(chaos.bad_answers);
            let never = event.key() == key(7) && random.once_in(2);
            reply(match (bad, never) {
                (false, _) => Answer::Done,
                (true, false) => retry(),
                (true, true) => poison(),
            })
        });
        let request = subscribe(Topic::TimerEvents, "receiver", ledger.clone());
        let receiver = bus.subscribe(request).await.unwrap();
        let process = start(&mut random, chaos, &clock, &store, &bus).await;
        Self {
            random,
            chaos,
            clock,
            store,
            bus,
            ledger,
            checks: Checks::new(chaos),
            process,
            _receiver: receiver,
            faults_of_the_dead: 0,
        }
    }

    async fn act(&mut self) -> Result<(), String> {
        if self.random.once_in(self.chaos.clock_changes) {
            let by = Duration::from_millis(self.random.below(90_000));
            let now = self.clock.now();
            let set_to = match self.random.below(2) {
                0 => now.saturating_add(by),
                _ => now.saturating_sub(by),
            };
            self.clock.set_wall(set_to);
        }
        let key = key(self.random.below(KEYS));
        match self.random.below(25) {
            0..8 => self.schedule(key).await,
            8..12 => self.command(key).await,
            12..14 => self.replace(key).await,
            14..16 => self.cancel(key).await,
            _ => {
                let by = Duration::from_millis(self.random.below(20_000));
                let clock = self.clock.clone();
                self.attempt(async move { clock.advance(by).await }).await;
                Ok(())
            }
        }
    }

    fn due_at(&mut self) -> Timestamp {
        let from_now = Duration::from_millis(self.random.below(60_000));
        let due_at = self.clock.now().saturating_add(from_now);
        due_at.saturating_sub(Duration::from_secs(5))
    }

    async fn schedule(&mut self, key: TimerKey) -> Result<(), String> {
        let due_at = self.due_at();
        let timers = self.process.timers.clone();
        let request = TimerRequest::at(key.clone(), due_at);
        let answer = self
            .attempt(async move { timers.schedule(vec![request]).await })
            .await;
        let saved = answer
            .and_then(Result::ok)
            .and_then(|mut one| one.remove(0).ok());
        let promise = match saved {
            Some(SaveOutcome::Created | SaveOutcome::Rescheduled) => Promise::WillFire { due_at },
            _ => Promise::None,
        };
        self.checks.said(&key, promise, &self.store).await
    }

    async fn replace(&mut self, key: TimerKey) -> Result<(), String> {
        self.checks.may_go_back(&key);
        let due_at = self.due_at();
        let timers = self.process.timers.clone();
        let request = TimerRequest::at(key.clone(), due_at);
        let answer = self
            .attempt(async move { timers.replace(vec![request]).await })
            .await;
        let replaced = answer
            .and_then(Result::ok)
            .is_some_and(|one| one[0].is_ok());
        let promise = if replaced {
            Promise::WillFire { due_at }
        } else {
            Promise::None
        };
        self.checks.said(&key, promise, &self.store).await
    }

    async fn cancel(&mut self, key: TimerKey) -> Result<(), String> {
        self.checks.may_vanish(&key);
        let timers = self.process.timers.clone();
        let asked = vec![key.clone()];
        let answer = self
            .attempt(async move { timers.cancel(asked).await })
            .await;
        let outcome = answer
            .and_then(Result::ok)
            .and_then(|mut one| one.remove(0).ok());
        let promise = match outcome {
            Some(DeleteOutcome::Deleted) => Promise::WillNotFire {
                seen: self.ledger.count(&key),
            },
            _ => Promise::None,
        };
        self.checks.said(&key, promise, &self.store).await
    }

    /// A command, one to three times.
    async fn command(&mut self, key: TimerKey) -> Result<(), String> {
        let age = Duration::from_millis(self.random.below(2_000));
        let sent_at = self.clock.now().saturating_sub(age);
        let envelope = MessageEnvelope {
            id: EnvelopeId::from_uuid(Uuid::from_u128(u128::from(self.random.next()))),
            timestamp: sent_at,
            metadata: MessageMetadata::default(),
            message: ScheduleTimer {
                tenant_id: key.tenant_id.clone(),
                service_call_id: key.service_call_id,
                due_at: self.due_at(),
                data: None,
            }
            .into(),
        };
        for _ in 0..=self.random.below(3) {
            let (bus, batch) = (self.process.ports.bus.clone(), vec![envelope.clone()]);
            let answer = self.attempt(async move { bus.publish(batch).await }).await;
            let accepted = answer
                .and_then(Result::ok)
                .is_some_and(|one| one[0].is_ok());
            let promise = if accepted {
                Promise::IsKnown { sent_at }
            } else {
                Promise::None
            };
            self.checks.said(&key, promise, &self.store).await?;
        }
        Ok(())
    }

    /// Does something while time passes as it must; `None` if the process ends on the way.
    async fn attempt<T>(&mut self, action: impl Future<Output = T>) -> Option<T> {
        let (clock, faults) = (self.clock.clone(), self.process.faults.clone());
        let time_passes = async {
            loop {
                clock.advance(Duration::from_secs(30)).await;
                tokio::task::yield_now().await;
            }
        };
        let done = tokio::select! {
            biased;
            done = action => Some(done),
            () = faults.crashed() => None,
            () = time_passes => None,
        };
        if self.process.faults.has_crashed() {
            self.restart(self.chaos).await;
        }
        done
    }

    /// The process has ended, as by SIGKILL, and begins again.
    async fn restart(&mut self, chaos: Chaos) {
        self.faults_of_the_dead += self.process.faults.fired().len() as u64;
        let next = start(&mut self.random, chaos, &self.clock, &self.store, &self.bus);
        // The new one is there before the old one is dropped, as little as that can matter: the
        // old one's calls all hang.
        self.process = next.await;
        self.store.crash_and_reopen();
    }

    /// The faults end, and everything that is due has to fire.
    async fn settle(&mut self) -> Result<(), String> {
        // Without a restart, unless there was a crash: a worker that got stuck must show here.
        self.process.faults.clear();
        self.faults_of_the_dead += self.process.faults.fired().len() as u64;
        self.ledger.answers(|_, _| reply(Answer::Done));
        // As long as it takes, but no longer than the longest backoff.
        for _ in 0..120 {
            self.clock.advance(Duration::from_mins(1)).await;
            if self.checks.all_fired(&self.store).await {
                break;
            }
        }
        self.checks.compare(&self.store, &self.ledger).await?;
        self.checks
            .end(&self.store, &self.ledger, self.clock.now())
            .await
    }
}

const KEYS: u64 = 8;

pub(super) fn key(n: u64) -> TimerKey {
    key_of(
        ["a", "b", "c"][usize::try_from(n % 3).unwrap()],
        &n.to_string(),
    )
}

pub(super) fn keys() -> impl Iterator<Item = TimerKey> {
    (0..KEYS).map(key)
}

async fn start(
    random: &mut Random,
    chaos: Chaos,
    clock: &FakeClock,
    store: &MemoryTimerStore,
    bus: &InProcessBus,
) -> Process {
    let faults = Faults::new(Arc::new(clock.clone()));
    let ports = faulty_ports(clock, store, bus, &faults);
    let timers = ScheduleTimers::new(&ports);
    let request = subscribe(Topic::TimerCommands, "timer", Arc::new(timers.clone()));
    let subscription = bus.subscribe(request).await.unwrap();
    let worker = Driven::new(TimerWorker::new(&ports, SETTINGS).unwrap());
    let driving = clock.drive(worker);
    let mut decisions = random.fork();
    faults.decide(move |call| chaos.fault(&mut decisions, call));
    Process {
        faults,
        ports,
        timers,
        _driving: driving,
        _subscription: subscription,
    }
}
