//! Which clock the engine goes by, and what that means for how it runs.

use std::sync::Arc;

#[cfg(feature = "testing")]
use punctual_adapters_memory::FakeClock;
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock};
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::runtime::Handle;

use crate::{Error, ErrorKind};

/// The clock.
#[derive(Clone)]
pub(crate) enum Clock {
    /// The machine's: the engine runs as tasks of the caller's runtime.
    System { clock: SystemClock, runtime: Handle },
    /// One that is moved by hand and drives the engine while it moves.
    #[cfg(feature = "testing")]
    Fake(FakeClock),
}

impl Clock {
    /// The machine's clock, on the runtime that we are called in.
    pub(crate) fn system() -> Result<Self, Error> {
        let runtime = current_runtime()?;
        let clock = SystemClock::start().map_err(|error| {
            let what = format!("no thread can be started for the clock: {error}");
            Error::new(ErrorKind::Unavailable, what)
        })?;
        Ok(Self::System { clock, runtime })
    }

    pub(crate) fn port(&self) -> Arc<dyn ClockPort> {
        match self {
            Self::System { clock, .. } => Arc::new(clock.clone()),
            #[cfg(feature = "testing")]
            Self::Fake(clock) => Arc::new(clock.clone()),
        }
    }

    /// A bus inside this process: on the machine's clock handlers run as tasks, on a fake one in the
    /// same order in every run.
    pub(crate) fn bus(&self, concurrency: usize) -> InProcessBus {
        let handlers = match self {
            Self::System { runtime, .. } => Handlers::Spawned(runtime.clone()),
            #[cfg(feature = "testing")]
            Self::Fake(_) => Handlers::Inline,
        };
        InProcessBus::with_concurrency(handlers, concurrency)
    }

    /// The time, rounded up to the millisecond, where [`ClockPort::now`] truncates.
    pub(crate) fn now_rounded_up(&self) -> Timestamp {
        match self {
            Self::System { clock, .. } => clock.now().next(),
            #[cfg(feature = "testing")]
            Self::Fake(clock) => Timestamp::MIN.saturating_add(clock.exact()),
        }
    }
}

/// The tokio runtime that we are called in.
pub(crate) fn current_runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        let what = "there is no tokio runtime here: call this inside one, for example under #[tokio::main]";
        Error::new(ErrorKind::Config, what)
    })
}
