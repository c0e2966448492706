//! Helping a call on to which nothing happens: whatever message was lost, the call has an end.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::call::{Check, GRACE, RunningCall, Start};
use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_domain::{Backoff, EnvelopeId, Timestamp};
use punctual_ports::{CallChange, StoredCall};

use super::envelopes::wrap;
use super::{BackgroundTask, BackgroundWorker, CallPorts, CallSettings, Notifier};
use crate::fire_due_timers::WorkerStopped;
use crate::metric_names;

/// So many calls are looked at in one go.
const BATCH: usize = 200;

/// A step that comes so late was held up by more than a busy machine: the process was suspended, or
/// the clock was set.
const SUSPENDED: Duration = Duration::from_secs(10);

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_mins(1),
};

/// Looks at calls to which something should have happened by now: starts the overdue, asks again for
/// attempts that were not heard of and for results, and ends those that have none.
pub struct CallSweeper {
    ports: CallPorts,
    settings: CallSettings,
    failures: u32,
    /// When the next step should be, and since when none came much later than it should.
    next_step: Option<Timestamp>,
    awake_since: Timestamp,
}

impl CallSweeper {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
            failures: 0,
            next_step: None,
            awake_since: Timestamp::MIN,
        };
        // Nobody rings: what it looks for is what nobody has said.
        BackgroundWorker::new(task, &ports.clock, &Notifier::default())
    }

    fn help(&self, stored: StoredCall, now: Timestamp) -> Option<CallChange> {
        let (seen, correlation_id) = (stored.version, stored.call.details().correlation_id);
        let (helped, step) = self.step_of(stored.call, now)?;
        metrics::counter!(metric_names::CALLS_RESCUED, "how" => helped).increment(1);
        Some(CallChange {
            call: step.call,
            seen,
            outbox: wrap(step.outgoing, correlation_id, now, self.ports.ids.as_ref()),
        })
    }

    fn step_of(&self, call: ServiceCall, now: Timestamp) -> Option<(&'static str, CallStep)> {
        let key = call.details().key.clone();
        match call.check(now) {
            Check::Wait(_) => None,
            Check::Start(scheduled) => {
                tracing::debug!(%key, "a call is overdue, and nobody has said so: it is started");
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
                tracing::debug!(%key, dispatch_count = running.dispatch_count, "nothing was heard of an attempt or of its result: it is asked for again");
                Some(("redispatched", running.redispatch(now)))
            }
            Check::GiveUp(running) if self.may_go_on(&running) => {
                tracing::debug!(%key, "an attempt has no result, and may still go on: it is asked for again");
                Some(("redispatched", running.redispatch(now)))
            }
            Check::GiveUp(running) => {
                tracing::debug!(%key, "an attempt has no result in time: the call has failed");
                Some(("given_up", running.give_up(now)))
            }
        }
    }

    /// While this process was suspended, nobody here could hear an answer, and an attempt that was under
    /// way has all of its time left at worst. Its result is asked for once that is over.
    fn may_go_on(&self, running: &RunningCall) -> bool {
        let longest = running.timeout.saturating_add(GRACE);
        running.dispatched_at < self.awake_since.saturating_add(longest)
    }

    fn after_failure(
        &mut self,
        error: &punctual_ports::PortError,
    ) -> Result<Duration, WorkerStopped> {
        if error.kind().is_critical() {
            let cause = error.clone();
            return Err(WorkerStopped { cause });
        }
        self.failures = self.failures.saturating_add(1);
        let wait = AFTER_FAILURE.after(self.failures, &"look after calls");
        tracing::warn!(%error, ?wait, "calls could not be looked after");
        Ok(wait)
    }
}

#[async_trait]
impl BackgroundTask for CallSweeper {
    async fn step(&mut self) -> Result<Duration, WorkerStopped> {
        let now = self.ports.clock.now();
        // Before its first step it did not see anything either; and no clock that was set back keeps calls
        // from their end.
        let is_late = self.next_step.is_none_or(|at| now.since(at) >= SUSPENDED);
        if is_late || now < self.awake_since {
            self.awake_since = now;
        }
        let rest = self.sweep(now).await?;
        self.next_step = Some(self.ports.clock.now().saturating_add(rest));
        Ok(rest)
    }
}

impl CallSweeper {
    async fn sweep(&mut self, now: Timestamp) -> Result<Duration, WorkerStopped> {
        let find_stuck = match self.ports.calls.find_stuck(now, BATCH).await {
            Ok(find_stuck) => find_stuck,
            Err(error) => return self.after_failure(&error),
        };
        let is_full = find_stuck.calls.len() >= BATCH;
        let helped: Vec<CallChange> = find_stuck
            .calls
            .into_iter()
            .filter_map(|stored| self.help(stored, now))
            .collect();
        let has_helped = !helped.is_empty();
        if has_helped {
            // One line for all: after a downtime there may be very many.
            tracing::warn!(
                calls = helped.len(),
                "calls were helped on because messages about them are late or lost"
            );
            let changed = self.ports.calls.change(helped).await;
            self.ports.to_publish.notify();
            // What somebody else has changed meanwhile needs no help.
            let failed = match changed {
                Ok(changed) => changed.into_iter().find_map(Result::err),
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                return self.after_failure(&error);
            }
        }
        self.failures = 0;
        // Those that were helped have another time by now, which the answer does not know.
        if is_full || has_helped {
            return Ok(Duration::ZERO);
        }
        let until_next = find_stuck.next.map(|next| next.since(now));
        let poll = self.settings.polling_interval;
        Ok(until_next.map_or(poll, |wait| wait.min(poll)))
    }
}
