//! An engine that a fake clock drives: the same parts, without a single task.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::{Awaited, Driving, FakeClock, MemoryCallStore, SequentialIds};
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_domain::Timestamp;
use punctual_ports::{Backend, CallStores, ClockPort, IdPort, Stepped, Subscription, TimerStores};
use punctual_workflows::{Drained, Driven, SteppedWorker, TimerWorker};

use crate::clock::EngineClock;
use crate::engine::Engine;
use crate::hints::Hints;
use crate::running::{Parts, Ready, ShutDown, end};
use crate::{Builder, Error};

impl Builder {
    /// Keeps the timers in memory, on a clock that is moved by hand: for tests.
    pub fn in_memory(self, clock: FakeClock) -> Self {
        self.store(MemoryCallStore::new()).fake_clock(clock)
    }

    /// Goes by a clock that is moved by hand, also on SQLite: for tests of code that uses
    /// `schedule_in`. Commit before you advance the clock: while you hold the
    /// write lock, each write of the engine waits for it, in real time.
    pub fn fake_clock(mut self, clock: FakeClock) -> Self {
        self.clock = Some(Arc::new(OnFakeClock(clock)));
        self
    }
}

/// A clock that is moved by hand and drives the engine while it moves. Ids and the order of handlers are
/// the same in every run.
struct OnFakeClock(FakeClock);

impl OnFakeClock {
    /// A port that the clock awaits, whatever the port waits for.
    fn awaited<P: ?Sized>(&self, port: Arc<P>) -> Arc<Awaited<P>> {
        Arc::new(Awaited::new(port, &self.0))
    }
}

impl EngineClock for OnFakeClock {
    fn port(&self) -> Arc<dyn ClockPort> {
        Arc::new(self.0.clone())
    }

    fn now_rounded_up(&self) -> Timestamp {
        Timestamp::MIN.saturating_add(self.0.exact())
    }

    fn is_fake(&self) -> bool {
        true
    }

    fn ids(&self) -> Arc<dyn IdPort> {
        Arc::new(SequentialIds::new())
    }

    fn bus(&self, concurrency: usize) -> InProcessBus {
        InProcessBus::with_concurrency(Handlers::Inline, concurrency)
    }

    fn timer_stores(&self, store: &dyn Backend) -> TimerStores {
        let stores = store.timer_stores();
        TimerStores {
            persistence: self.awaited(stores.persistence),
            queue: self.awaited(stores.queue),
            dead_letters: self.awaited(stores.dead_letters),
            positions: self.awaited(stores.positions),
        }
    }

    fn call_stores(&self, store: &dyn Backend) -> Option<CallStores> {
        let stores = store.call_stores()?;
        Some(CallStores {
            calls: self.awaited(stores.calls),
            outbox: self.awaited(stores.outbox),
            executions: self.awaited(stores.executions),
        })
    }

    fn run(&self, engine: &Arc<Engine>, ready: Ready) -> Box<dyn Parts> {
        Box::new(DrivenParts::new(engine, &self.0, ready))
    }

    fn check_start_after(&self, patience: Duration, engine: &Arc<Engine>) -> Box<dyn Any + Send> {
        let check = CheckStart {
            engine: Arc::downgrade(engine),
            at: self.0.now().saturating_add(patience),
        };
        Box::new(self.0.drive(Arc::new(check)))
    }
}

/// What the clock drives, until it is dropped.
struct DrivenParts {
    /// `None` where the timers are fired elsewhere.
    worker: Option<Arc<Driven<TimerWorker>>>,
    driving: Vec<Driving>,
    subscriptions: Vec<Box<dyn Subscription>>,
}

impl DrivenParts {
    fn new(engine: &Arc<Engine>, clock: &FakeClock, ready: Ready) -> Self {
        let plan = ready.plan;
        let worker = plan.worker.map(Driven::new);
        // What publishes losses again is not driven: the bus here is in this process, where nothing
        // that was accepted can be lost, and a broker's losses come at no time of this clock. Nor are
        // the stores watched: the worker polls whenever time begins to pass.
        let mut driving = Vec::new();
        driving.extend(
            worker
                .as_ref()
                .map(|it| clock.drive(Watched::new(engine, it))),
        );
        driving.extend(plan.retention.map(|it| drive(engine, clock, it)));
        #[cfg(feature = "calls")]
        if let Some(calls) = plan.calls {
            driving.extend(calls.execute.map(|it| drive(engine, clock, it)));
            driving.extend(calls.dispatch.map(|it| drive(engine, clock, it)));
            driving.extend(calls.sweep.map(|it| drive(engine, clock, it)));
            driving.extend(calls.retention.map(|it| drive(engine, clock, it)));
        }
        driving.push(clock.drive(Arc::<Hints>::clone(&engine.hints)));
        Self {
            worker,
            driving,
            subscriptions: ready.subscriptions,
        }
    }
}

/// Drives a worker.
fn drive<W: SteppedWorker + 'static>(
    engine: &Arc<Engine>,
    clock: &FakeClock,
    worker: W,
) -> Driving {
    clock.drive(Watched::new(engine, &Driven::new(worker)))
}

#[async_trait]
impl Parts for DrivenParts {
    async fn shutdown(&mut self, engine: &Engine) -> Result<ShutDown, Error> {
        // First, so that no step under way holds the worker.
        self.driving.clear();
        let outcome = match &self.worker {
            None => Ok(Drained { unfinished: 0 }),
            Some(worker) => match worker.stopped() {
                Some(stopped) => Err(stopped),
                None => worker.worker().await.drain().await,
            },
        };
        end(engine, outcome, std::mem::take(&mut self.subscriptions)).await
    }
}

/// A worker with whose failure the engine stops.
struct Watched<W> {
    engine: Arc<Engine>,
    worker: Arc<Driven<W>>,
}

impl<W> Watched<W> {
    fn new(engine: &Arc<Engine>, worker: &Arc<Driven<W>>) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            worker: Arc::clone(worker),
        })
    }
}

#[async_trait]
impl<W: SteppedWorker> Stepped for Watched<W> {
    fn next_wake(&self) -> Option<Timestamp> {
        self.worker.next_wake()
    }

    /// A client, or a transaction with a timer in it, may have committed since.
    fn before_time_passes(&self) {
        self.engine.ports.wake.due_at(Timestamp::MIN);
    }

    async fn step(&self) {
        self.worker.step().await;
        if let Some(stopped) = self.worker.stopped() {
            self.engine.fail(stopped.into());
        }
    }
}

/// The check whether an engine was started in time.
struct CheckStart {
    engine: Weak<Engine>,
    at: Timestamp,
}

#[async_trait]
impl Stepped for CheckStart {
    fn next_wake(&self) -> Option<Timestamp> {
        (self.engine.strong_count() > 0).then_some(self.at)
    }

    async fn step(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.check_start().await;
        }
    }
}
