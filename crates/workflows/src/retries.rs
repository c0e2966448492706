//! The triage of errors: stop after a critical one, back off after any other, warn once.

use std::time::Duration;

use punctual_domain::Backoff;
use punctual_ports::PortError;

use crate::WorkerStopped;

/// Consecutive failures of one operation.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    message: &'static str,
    failures: u32,
}

impl Retries {
    /// `message` is logged after a failure.
    pub(crate) const fn new(backoff: Backoff, message: &'static str) -> Self {
        Self {
            backoff,
            message,
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
        let wait = self.backoff.after(self.failures, &message);
        if self.failures == 1 {
            tracing::warn!(%error, ?wait, "{message}; it is retried until it succeeds");
        } else {
            tracing::debug!(%error, failures = self.failures, ?wait, "{message}");
        }
        wait
    }
}
