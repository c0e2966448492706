//! Whether an engine fires, and a warning from one that holds timers and was never started.

use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::Weak;
use std::time::Duration;

#[cfg(feature = "testing")]
use async_trait::async_trait;
#[cfg(feature = "testing")]
use punctual_domain::Timestamp;
#[cfg(feature = "testing")]
use punctual_ports::Stepped;
use thiserror::Error;

use crate::clock::Clock;
use crate::engine::Engine;

/// Why nobody is told of timers that are due now. Timers are accepted and stored in any case, unless the
/// engine has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReady {
    /// [`start`](crate::Punctual::start) was not called, or has not returned yet.
    #[error("the engine was not started: call `start`, and keep what it returns")]
    NotStarted,
    /// The engine was shut down, or has stopped by itself; with the reason.
    #[error("{0}")]
    Stopped(String),
    /// The broker is away or not as it has to be; with the reason.
    #[error("{0}")]
    Bus(String),
}

/// How long an engine with timers may wait for its start before it warns.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks, once, whether the engine was started in time. Ends with the engine, and keeps nothing alive.
pub(crate) fn expect_start(engine: &Arc<Engine>) {
    if !engine.begins_to_expect_start() {
        return;
    }
    let weak = Arc::downgrade(engine);
    match &engine.clock {
        Clock::System { runtime, .. } => {
            let (clock, no_longer_waits) = (engine.clock.port(), engine.no_longer_waits());
            runtime.spawn(async move {
                tokio::select! {
                    () = no_longer_waits => {}
                    () = clock.sleep_for(PATIENCE) => {
                        if let Some(engine) = weak.upgrade() {
                            engine.check_start().await;
                        }
                    }
                }
            });
        }
        #[cfg(feature = "testing")]
        Clock::Fake(clock) => {
            let at = engine.ports.clock.now().saturating_add(PATIENCE);
            engine.keep_until_start(clock.drive(Arc::new(ExpectStart { engine: weak, at })));
        }
    }
}

/// The check, driven by a fake clock.
#[cfg(feature = "testing")]
struct ExpectStart {
    engine: Weak<Engine>,
    at: Timestamp,
}

#[cfg(feature = "testing")]
#[async_trait]
impl Stepped for ExpectStart {
    fn next_wake(&self) -> Option<Timestamp> {
        (self.engine.strong_count() > 0).then_some(self.at)
    }

    async fn step(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.check_start().await;
        }
    }
}
