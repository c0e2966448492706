//! The clock of an engine, and how the engine runs on it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::Timestamp;
use punctual_ports::{Backend, CallStores, ClockPort, IdPort, TimerStores};
use tokio::runtime::Handle;

use crate::engine::Engine;
use crate::running::{Parts, Ready, spawn};
use crate::{Error, ErrorKind};

/// The clock of an engine, with all that depends on which one it is.
pub(crate) trait EngineClock: Send + Sync {
    fn port(&self) -> Arc<dyn ClockPort>;

    /// The time, rounded up to the millisecond, where [`ClockPort::now`] truncates.
    fn now_rounded_up(&self) -> Timestamp;

    /// Whether it is advanced by the test: it stands still while an engine is being built.
    fn is_fake(&self) -> bool;

    fn ids(&self) -> Arc<dyn IdPort>;

    /// A bus inside this process.
    fn bus(&self, concurrency: usize) -> InProcessBus;

    /// The ports of a store of timers.
    fn timer_stores(&self, store: &dyn Backend) -> TimerStores {
        store.timer_stores()
    }

    /// The ports of a store of service calls, if it is one.
    fn call_stores(&self, store: &dyn Backend) -> Option<CallStores> {
        store.call_stores()
    }

    /// Begins to fire.
    fn run(&self, engine: &Arc<Engine>, ready: Ready) -> Box<dyn Parts>;

    /// Calls [`Engine::check_start`] once, after a time, unless the engine was started or dropped by then.
    /// What it answers is kept until then.
    fn check_start_after(&self, patience: Duration, engine: &Arc<Engine>) -> Box<dyn Any + Send>;
}

/// The machine's clock: the engine runs as tasks of the caller's runtime.
pub(crate) struct OnSystemClock {
    clock: SystemClock,
    runtime: Handle,
}

impl OnSystemClock {
    /// The machine's clock, on the runtime that we are called in.
    pub(crate) fn start() -> Result<Self, Error> {
        let runtime = current_runtime()?;
        let clock = SystemClock::start().map_err(|error| {
            let what = format!("no thread can be started for the clock: {error}");
            Error::new(ErrorKind::Unavailable, what)
        })?;
        Ok(Self { clock, runtime })
    }
}

impl EngineClock for OnSystemClock {
    fn port(&self) -> Arc<dyn ClockPort> {
        Arc::new(self.clock.clone())
    }

    fn now_rounded_up(&self) -> Timestamp {
        self.clock.now().next()
    }

    fn is_fake(&self) -> bool {
        false
    }

    fn ids(&self) -> Arc<dyn IdPort> {
        Arc::new(UuidIds)
    }

    fn bus(&self, concurrency: usize) -> InProcessBus {
        InProcessBus::with_concurrency(Handlers::Spawned(self.runtime.clone()), concurrency)
    }

    fn run(&self, engine: &Arc<Engine>, ready: Ready) -> Box<dyn Parts> {
        spawn(&self.runtime, engine, ready)
    }

    fn check_start_after(&self, patience: Duration, engine: &Arc<Engine>) -> Box<dyn Any + Send> {
        let (clock, no_longer_waits) = (self.clock.clone(), engine.no_longer_waits());
        let engine = Arc::downgrade(engine);
        self.runtime.spawn(async move {
            tokio::select! {
                () = no_longer_waits => {}
                () = clock.sleep_for(patience) => {
                    if let Some(engine) = engine.upgrade() {
                        engine.check_start().await;
                    }
                }
            }
        });
        // It ends by itself.
        Box::new(())
    }
}

/// The tokio runtime that we are called in.
pub(crate) fn current_runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        let what = "there is no tokio runtime here: call this inside one, for example under #[tokio::main]";
        Error::new(ErrorKind::Config, what)
    })
}
