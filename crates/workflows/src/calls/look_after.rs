//! Helping a call on to which nothing happens: whatever message was lost, the call has an end.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::call::{Start, Verdict};
use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_domain::{Backoff, EnvelopeId, Timestamp};
use punctual_ports::{CallChange, StoredCall};

use super::envelopes::wrap;
use super::{Bell, CallPorts, CallSettings, Chore, ChoreWorker};
use crate::fire_due_timers::WorkerStopped;
use crate::metric_names;

/// So many calls are looked at in one go.
const BATCH: usize = 200;

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_mins(1),
};

/// Looks at calls to which something should have happened by now: starts the overdue, asks again for
/// attempts that were not heard of, and ends those without a result.
pub struct LookAfterCalls {
    ports: CallPorts,
    settings: CallSettings,
    failures: u32,
}

impl LookAfterCalls {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> ChoreWorker<Self> {
        let chore = Self {
            ports: ports.clone(),
            settings,
            failures: 0,
        };
        // Nobody rings: what it looks for is what nobody has said.
        ChoreWorker::new(chore, &ports.clock, &Bell::default())
    }

    fn help(&self, stored: StoredCall, now: Timestamp) -> Option<CallChange> {
        let (seen, correlation_id) = (stored.version, stored.call.details().correlation_id);
        let (helped, step) = self.step_of(stored.call, now)?;
        metrics::counter!(metric_names::CALLS_HELPED, "how" => helped).increment(1);
        Some(CallChange {
            call: step.call,
            seen,
            outbox: wrap(step.outgoing, correlation_id, now, self.ports.ids.as_ref()),
        })
    }

    fn step_of(&self, call: ServiceCall, now: Timestamp) -> Option<(&'static str, CallStep)> {
        let key = call.details().key.clone();
        match call.look(now) {
            Verdict::Wait(_) => None,
            Verdict::Start(scheduled) => {
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
            Verdict::AskAgain(running) => {
                tracing::debug!(%key, asked = running.asked, "nothing was heard of an attempt: it is asked for again");
                Some(("asked_again", running.ask_again(now)))
            }
            Verdict::GiveUp(running) => {
                tracing::debug!(%key, "an attempt has no result in time: the call has failed");
                Some(("given_up", running.give_up(now)))
            }
        }
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
impl Chore for LookAfterCalls {
    async fn step(&mut self) -> Result<Duration, WorkerStopped> {
        let now = self.ports.clock.now();
        let overlooked = match self.ports.calls.overlooked(now, BATCH).await {
            Ok(overlooked) => overlooked,
            Err(error) => return self.after_failure(&error),
        };
        let is_full = overlooked.calls.len() >= BATCH;
        let helped: Vec<CallChange> = overlooked
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
            self.ports.to_publish.ring();
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
        let until_next = overlooked.next.map(|next| next.since(now));
        let poll = self.settings.polling_interval;
        Ok(until_next.map_or(poll, |wait| wait.min(poll)))
    }
}
