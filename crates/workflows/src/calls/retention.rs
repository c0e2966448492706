//! Removing calls, messages and memories that are older than anybody wants to know, in small bites.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Backoff;
use punctual_ports::PortError;

use super::{BackgroundTask, BackgroundWorker, CallPorts, CallSettings, Notifier};
use crate::fire_due_timers::WorkerStopped;
use crate::metric_names;

/// So many rows are removed in one go.
const BITE: usize = 200;
/// Between two bites, so that nobody waits long for the store.
const BETWEEN_BITES: Duration = Duration::from_millis(250);
/// When nothing old is left.
const EVERY: Duration = Duration::from_mins(10);

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_mins(10),
};

/// Removes finished calls, published messages and remembered submissions after their time.
pub struct CallRetention {
    ports: CallPorts,
    settings: CallSettings,
    failures: u32,
}

impl CallRetention {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
            failures: 0,
        };
        BackgroundWorker::new(task, &ports.clock, &Notifier::default())
    }

    /// Removes one bite, and tells whether there may be more.
    async fn batch(&self) -> Result<bool, PortError> {
        let now = self.ports.clock.now();
        let before = now.saturating_sub(self.settings.keep);
        let calls = self.ports.calls.purge(before, now, BITE).await?;
        let messages = self.ports.outbox.purge(before, BITE).await?;
        metrics::counter!(metric_names::CALL_ROWS_PURGED).increment((calls + messages) as u64);
        Ok(calls >= BITE || messages >= BITE)
    }
}

#[async_trait]
impl BackgroundTask for CallRetention {
    async fn step(&mut self) -> Result<Duration, WorkerStopped> {
        match self.batch().await {
            Ok(is_full) => {
                self.failures = 0;
                Ok(if is_full { BETWEEN_BITES } else { EVERY })
            }
            Err(cause) if cause.kind().is_critical() => Err(WorkerStopped { cause }),
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = AFTER_FAILURE.after(self.failures, &"call retention");
                tracing::warn!(%error, ?wait, "old calls could not be removed");
                Ok(wait)
            }
        }
    }
}
