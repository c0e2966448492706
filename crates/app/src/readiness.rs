//! Whether an engine fires, and a warning from one that holds timers and was never started.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::engine::Engine;

/// Why timers that are due now do not reach their receiver. Timers are accepted and stored in any case, unless the
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
    /// For five seconds no poll for due timers has succeeded; with the name of the store.
    #[error("{0}")]
    Polls(String),
}

/// How long polls for due timers may go unanswered. A restart of a database takes less, as a rule.
const POLL_PATIENCE: Duration = Duration::from_secs(5);

/// Why an engine whose polls have been unanswered for so long is not ready, if so.
pub(crate) fn unanswered_polls(store: &str, since: Option<Duration>) -> Result<(), NotReady> {
    match since {
        Some(since) if since > POLL_PATIENCE => Err(NotReady::Polls(format!(
            "{store}: no poll for due timers has succeeded for {} s",
            since.as_secs()
        ))),
        _ => Ok(()),
    }
}

/// How long an engine with timers may wait for its start before it warns.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks, once, whether the engine was started in time. Ends with the engine, and keeps nothing alive.
pub(crate) fn expect_start(engine: &Arc<Engine>) {
    if engine.begins_to_expect_start() {
        let check = engine.clock.check_start_after(PATIENCE, engine);
        engine.keep_until_start(check);
    }
}
