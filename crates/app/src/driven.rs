//! An engine that a fake clock drives: the same parts, without a single task.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_memory::{Driving, FakeClock};
use punctual_domain::Timestamp;
use punctual_ports::{Stepped, Subscription};
use punctual_workflows::{Driven, Retention, SteppedWorker, TimerWorker};

use crate::Error;
use crate::engine::Engine;
use crate::running::{Ready, ShutDown, end};

/// What the clock drives, until it is dropped.
pub(crate) struct DrivenParts {
    worker: Arc<Driven<TimerWorker>>,
    driving: Vec<Driving>,
    subscriptions: Vec<Box<dyn Subscription>>,
}

impl DrivenParts {
    pub(crate) fn new(engine: &Arc<Engine>, clock: &FakeClock, ready: Ready) -> Self {
        let worker = Driven::new(ready.worker);
        let retention = Driven::new(ready.retention);
        // What publishes losses again is not driven: the bus here is in this process, where nothing
        // that was accepted can be lost, and a broker's losses come at no time of this clock.
        let mut driving = vec![
            clock.drive(Watched::new(engine, &worker)),
            clock.drive(Watched::<Retention>::new(engine, &retention)),
        ];
        #[cfg(feature = "calls")]
        if let Some(calls) = ready.calls {
            driving.extend([
                clock.drive(Watched::new(engine, &Driven::new(calls.execute))),
                clock.drive(Watched::new(engine, &Driven::new(calls.dispatch))),
                clock.drive(Watched::new(engine, &Driven::new(calls.sweep))),
                clock.drive(Watched::new(engine, &Driven::new(calls.forget))),
            ]);
        }
        driving.extend(hints(engine).map(|hints| clock.drive(hints)));
        Self {
            worker,
            driving,
            subscriptions: ready.subscriptions,
        }
    }

    pub(crate) async fn shutdown(&mut self, engine: &Engine) -> Result<ShutDown, Error> {
        // First, so that no step under way holds the worker.
        self.driving.clear();
        let outcome = match self.worker.stopped() {
            Some(stopped) => Err(stopped),
            None => self.worker.worker().await.drain().await,
        };
        end(engine, outcome, std::mem::take(&mut self.subscriptions)).await
    }
}

/// The hints of `schedule_in`, where there are any.
fn hints(engine: &Engine) -> Option<Arc<dyn Stepped>> {
    match &engine.store {
        #[cfg(feature = "sqlite")]
        crate::store::Store::Sqlite(sqlite) => {
            Some(Arc::<crate::hints::Hints>::clone(&sqlite.hints))
        }
        crate::store::Store::Memory(_) => None,
    }
}

/// A worker whose end is everybody's.
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
