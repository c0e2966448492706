//! Retrying: the backoffs of this crate, and the triage of errors: stop after a critical one, back off
//! after any other, warn once.

use std::hash::Hash;
use std::time::Duration;

use punctual_domain::Backoff;
use punctual_ports::{ClockPort, PortError};

use crate::WorkerStopped;

/// Backoff of a bus or a store for which timers, messages or attempts wait.
pub(crate) const PORT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// Backoff of retention.
pub(crate) const PURGE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_mins(10));
/// Backoff of one timer whose handler fails.
pub(crate) const TIMER_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_hours(1));
/// Backoff of an event that is parked during a recovery.
pub(crate) const PARKED_EVENT_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The backoffs of service calls.
#[cfg(feature = "calls")]
pub(crate) mod calls {
    use super::{Backoff, Duration};

    /// Backoff of sweeps.
    pub(crate) const SWEEP_BACKOFF: Backoff =
        Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    /// Backoff of the record of an attempt's outcome.
    pub(crate) const OUTCOME_BACKOFF: Backoff =
        Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    /// Backoff of a message that is parked in the outbox.
    pub(crate) const PARKED_MESSAGE_BACKOFF: Backoff =
        Backoff::new(Duration::from_millis(200), Duration::from_hours(1));
}

/// Consecutive failures of one operation.
#[derive(Debug)]
pub(crate) struct Retries<W = &'static str> {
    backoff: Backoff,
    message: &'static str,
    /// What is retried; by default the message names it. Different things wait for different times.
    what: W,
    failures: u32,
}

impl Retries {
    /// `message` is logged after a failure.
    pub(crate) const fn new(backoff: Backoff, message: &'static str) -> Self {
        Self::of(message, backoff, message)
    }
}

impl<W: Hash> Retries<W> {
    /// The same for one of many operations that fail together.
    pub(crate) const fn of(what: W, backoff: Backoff, message: &'static str) -> Self {
        Self {
            backoff,
            message,
            what,
            failures: 0,
        }
    }

    pub(crate) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// How long to wait before the next try; fails after a critical error.
    pub(crate) fn failed(&mut self, error: PortError) -> Result<Duration, WorkerStopped> {
        if error.kind().is_critical() {
            return Err(WorkerStopped { cause: error });
        }
        Ok(self.back_off(&error))
    }

    /// How long to wait before the next try, whatever the error.
    pub(crate) fn back_off(&mut self, error: &PortError) -> Duration {
        let message = self.message;
        self.failures = self.failures.saturating_add(1);
        let wait = self.backoff.after(self.failures, &self.what);
        if self.failures == 1 {
            tracing::warn!(%error, ?wait, "{message}; it is retried until it succeeds");
        } else {
            tracing::debug!(%error, failures = self.failures, ?wait, "{message}");
        }
        wait
    }

    /// Repeats an operation until it succeeds; fails after a critical error.
    pub(crate) async fn until_success<T, F>(
        mut self,
        clock: &dyn ClockPort,
        mut operation: impl FnMut() -> F,
    ) -> Result<T, WorkerStopped>
    where
        F: Future<Output = Result<T, PortError>>,
    {
        loop {
            match operation().await {
                Ok(done) => return Ok(done),
                Err(error) => clock.sleep_for(self.failed(error)?).await,
            }
        }
    }
}
