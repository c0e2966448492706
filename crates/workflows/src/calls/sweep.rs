//! Rescuing stuck calls: whatever message was lost, the call finishes.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::call::{Check, GRACE, RunningCall, Start};
use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_domain::{EnvelopeId, Timestamp};
use punctual_ports::{CallChange, PortError, StoredCall};

use super::envelopes::wrap;
use super::{CallPorts, CallSettings};
use crate::retries::Retries;
use crate::retries::calls::SWEEP_BACKOFF;
use crate::{BackgroundTask, BackgroundWorker, Notifier, metric_names};

/// Maximum number of calls in one batch.
const BATCH: usize = 200;

/// A step this late was delayed by more than a busy machine: the process was suspended, or the clock
/// was set.
const SUSPENDED: Duration = Duration::from_secs(10);

/// Finds stuck calls: starts the overdue, redispatches attempts of which no event arrived, and fails
/// those without a result in time.
pub struct CallSweeper {
    ports: CallPorts,
    settings: CallSettings,
    /// When the next step is due, and since when no step was much too late.
    next_step: Option<Timestamp>,
    awake_since: Timestamp,
}

impl CallSweeper {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
            next_step: None,
            awake_since: Timestamp::MIN,
        };
        let retries = Retries::new(SWEEP_BACKOFF, "stuck calls could not be rescued");
        BackgroundWorker::new(task, &ports.clock, &Notifier::default(), retries)
    }

    fn rescue(&self, stored: StoredCall, now: Timestamp) -> Option<CallChange> {
        let (expected_version, correlation_id) =
            (stored.version, stored.call.details().correlation_id);
        let (how, step) = self.step_of(stored.call, now)?;
        metrics::counter!(metric_names::CALLS_RESCUED, "how" => how).increment(1);
        Some(CallChange {
            call: step.call,
            expected_version,
            outbox: wrap(step.outgoing, correlation_id, now, self.ports.ids.as_ref()),
            listeners: self.ports.listeners,
        })
    }

    fn step_of(&self, call: ServiceCall, now: Timestamp) -> Option<(&'static str, CallStep)> {
        let key = call.details().key.clone();
        match call.check(now) {
            Check::Wait(_) => None,
            Check::Start(scheduled) => {
                tracing::debug!(%key, "a call is overdue without an event of its timer: it is started");
                let start = Start {
                    reached_at: now,
                    now,
                    execution_id: EnvelopeId::from_uuid(self.ports.ids.next_id()),
                    caused_by: scheduled.details.command_id,
                    timeout: self.settings.timeout,
                };
                Some(("started", scheduled.start(start).ok()?))
            }
            Check::Redispatch(running) => {
                tracing::debug!(%key, dispatch_count = running.dispatch_count, "no event of an attempt or of its result arrived: it is redispatched");
                Some(("redispatched", running.redispatch(now)))
            }
            Check::GiveUp(running) if self.may_be_running(&running) => {
                tracing::debug!(%key, "an attempt has no result, and may still be running: it is redispatched");
                Some(("redispatched", running.redispatch(now)))
            }
            Check::GiveUp(running) => {
                tracing::debug!(%key, "an attempt has no result in time: the call has failed");
                Some(("given_up", running.give_up(now)))
            }
        }
    }

    /// Whether an attempt may still be running: a suspended process handled no event, and the attempt
    /// may have its complete timeout left.
    fn may_be_running(&self, running: &RunningCall) -> bool {
        let longest = running.timeout.saturating_add(GRACE);
        running.dispatched_at < self.awake_since.saturating_add(longest)
    }

    async fn sweep(&self, now: Timestamp) -> Result<Duration, PortError> {
        let stuck = self.ports.calls.find_stuck(now, BATCH).await?;
        let is_full = stuck.calls.len() >= BATCH;
        let rescued: Vec<CallChange> = stuck
            .calls
            .into_iter()
            .filter_map(|stored| self.rescue(stored, stuck.as_of))
            .collect();
        let has_rescued = !rescued.is_empty();
        if has_rescued {
            // One line for all: after a downtime there may be very many.
            tracing::warn!(
                calls = rescued.len(),
                "calls were rescued because messages about them are late or lost"
            );
            let changed = self.ports.calls.change(rescued).await;
            self.ports.to_publish.notify();
            // A call that was changed meanwhile needs no rescue.
            for one in changed? {
                one?;
            }
        }
        // The next check of rescued calls is not in this result.
        if is_full || has_rescued {
            return Ok(Duration::ZERO);
        }
        let until_next = stuck.next.map(|next| next.since(stuck.as_of));
        let poll = self.settings.polling_interval;
        Ok(until_next.map_or(poll, |wait| wait.min(poll)))
    }
}

#[async_trait]
impl BackgroundTask for CallSweeper {
    async fn step(&mut self) -> Result<Duration, PortError> {
        let now = self.ports.clock.now();
        // Before the first step no event was handled either; and a clock that was set back delays the
        // end of no call.
        let is_late = self.next_step.is_none_or(|at| now.since(at) >= SUSPENDED);
        if is_late || now < self.awake_since {
            self.awake_since = now;
        }
        self.sweep(now).await
    }

    fn next_step_at(&mut self, at: Timestamp) {
        self.next_step = Some(at);
    }
}
