//! Purging old calls, messages and tombstones, in small batches.

use std::time::Duration;

use async_trait::async_trait;
use punctual_ports::PortError;

use super::{CallPorts, CallSettings};
use crate::retries::{PURGE_BACKOFF, Retries};
use crate::{BackgroundTask, BackgroundWorker, Notifier, metric_names};

/// Maximum number of rows of each kind in one batch.
const BATCH: usize = 200;
/// Pause between two batches, so that no other write waits long for the store.
const BETWEEN_BATCHES: Duration = Duration::from_millis(250);
/// Idle interval when nothing is left to purge.
const EVERY: Duration = Duration::from_mins(10);
/// How much longer attempts are kept than commands for them are accepted, where nothing else tells that one
/// was made ([`AcceptExecutions::forgetting_after`]): clocks may differ by less.
///
/// [`AcceptExecutions::forgetting_after`]: super::AcceptExecutions::forgetting_after
const ATTEMPTS_LONGER: Duration = Duration::from_hours(24);

/// Purges finished calls, published messages and remembered submissions after their retention time, and
/// attempts whose calls are elsewhere.
pub struct CallRetention {
    ports: CallPorts,
    settings: CallSettings,
}

impl CallRetention {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
        };
        let retries = Retries::new(PURGE_BACKOFF, "old calls could not be purged");
        BackgroundWorker::new(task, &ports.clock, &Notifier::default(), retries)
    }
}

#[async_trait]
impl BackgroundTask for CallRetention {
    async fn step(&mut self) -> Result<Duration, PortError> {
        let now = self.ports.clock.now();
        let before = now.saturating_sub(self.settings.keep);
        let calls = self.ports.calls.purge(before, now, BATCH).await?;
        let messages = self.ports.outbox.purge(before, BATCH).await?;
        let before = before.saturating_sub(ATTEMPTS_LONGER);
        let attempts = self.ports.executions.purge(before, BATCH).await?;
        let purged = [calls, messages, attempts];
        metrics::counter!(metric_names::CALL_ROWS_PURGED)
            .increment(purged.iter().sum::<usize>() as u64);
        let is_full = purged.iter().any(|count| *count >= BATCH);
        Ok(if is_full { BETWEEN_BATCHES } else { EVERY })
    }
}
