//! How orchestration handles the events of timers and executions.
//!
//! A batch costs one read and one write, however many messages are in it: the messages about one
//! call are applied to it one after the other, in memory, and the call is written once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::call::{Outgoing, Start};
use punctual_domain::service_call::{ErrorMeta, Outcome, RunningCall, ScheduledCall, ServiceCall};
use punctual_domain::{EnvelopeId, Message, MessageEnvelope, TimerKey};
use punctual_ports::{Answer, CallChange, ChangeOutcome, MessageHandler, PortError, StoredCall};

use super::envelopes::wrap;
use super::{CallPorts, CallSettings};
use crate::answers::{answer_of, no_answer, unexpected};
use crate::{LogLimiter, metric_names};

/// Maximum number of tries to change calls that others change at the same time.
const TRIES: usize = 8;
/// Maximum length of a reason in the log.
const LONGEST_REASON: usize = 200;

/// Starts calls when their due time is reached, and finishes them with their outcomes.
#[derive(Clone)]
pub struct ReactToEvents {
    ports: CallPorts,
    settings: CallSettings,
    failure_log: Arc<LogLimiter>,
}

/// The messages about each call, by their indexes in the batch.
type ByCall = BTreeMap<TimerKey, Vec<usize>>;

impl ReactToEvents {
    /// On these adapters.
    pub fn new(ports: &CallPorts, settings: CallSettings) -> Self {
        Self {
            ports: ports.clone(),
            settings,
            failure_log: Arc::default(),
        }
    }

    /// Records a committed change in the metrics and the log.
    fn record(&self, effect: &Effect) {
        if let Some(late) = effect.lateness {
            metrics::histogram!(metric_names::CALL_LATENESS).record(late.as_secs_f64());
        }
        let Some((status, failure)) = &effect.finished else {
            return;
        };
        metrics::counter!(metric_names::CALLS_FINISHED, "status" => *status).increment(1);
        if let Some(failure) = failure
            && let Some(left_out) = self.failure_log.try_acquire(self.ports.clock.monotonic())
        {
            let reason = failure.message.as_deref().unwrap_or_default();
            let reason: String = reason.chars().take(LONGEST_REASON).collect();
            tracing::info!(
                key = %effect.key,
                kind = failure.kind.as_str(),
                reason,
                left_out,
                "a call has failed"
            );
        }
    }

    /// One read of the calls and one write of their changes; returns the calls that were changed by
    /// others in between.
    async fn try_apply(
        &self,
        batch: &[MessageEnvelope],
        open: ByCall,
        answers: &mut [Answer],
    ) -> Result<ByCall, PortError> {
        let keys: Vec<TimerKey> = open.keys().cloned().collect();
        let found = self.ports.calls.find(keys).await?;
        let mut changes = Vec::new();
        let mut changing = Vec::new();
        let mut effects = Vec::new();
        for ((key, indexes), stored) in open.into_iter().zip(found) {
            let was_started = stored.as_ref().is_some_and(was_started);
            let change = stored.and_then(|stored| self.apply(stored, batch, &indexes));
            match change {
                Some(change) => {
                    effects.push(Effect::of(&change, was_started, batch, &indexes));
                    changes.push(change);
                    changing.push((key, indexes));
                }
                // A message that changes nothing is done, and so is one about a deleted call.
                None => {
                    for index in indexes {
                        answers[index] = Answer::Done;
                    }
                }
            }
        }
        if changes.is_empty() {
            return Ok(ByCall::new());
        }
        let outcomes = self.ports.calls.change(changes).await;
        self.ports.to_publish.notify();
        let mut outdated = ByCall::new();
        for (((key, indexes), outcome), effect) in changing.into_iter().zip(outcomes?).zip(effects)
        {
            let answer = match outcome {
                Ok(ChangeOutcome::Changed) => {
                    self.record(&effect);
                    Answer::Done
                }
                Ok(_) => {
                    outdated.insert(key, indexes);
                    continue;
                }
                Err(error) => answer_of(&error),
            };
            for index in indexes {
                answers[index] = answer.clone();
            }
        }
        Ok(outdated)
    }

    /// The change that these messages make to a call, if any.
    fn apply(
        &self,
        stored: StoredCall,
        batch: &[MessageEnvelope],
        indexes: &[usize],
    ) -> Option<CallChange> {
        let StoredCall { call, version } = stored;
        let correlation_id = call.details().correlation_id;
        let (mut call, before) = (call.clone(), call);
        let mut outgoing = Vec::new();
        for index in indexes {
            call = self.apply_one(call, &batch[*index], &mut outgoing);
        }
        if call == before {
            return None;
        }
        let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
        Some(CallChange {
            call,
            expected_version: version,
            outbox: wrap(outgoing, correlation_id, now, ids),
            listeners: self.ports.listeners,
        })
    }

    fn apply_one(
        &self,
        call: ServiceCall,
        envelope: &MessageEnvelope,
        outgoing: &mut Vec<Outgoing>,
    ) -> ServiceCall {
        match (call, &envelope.message) {
            (ServiceCall::Scheduled(scheduled), Message::DueTimeReached(event)) => {
                let start = Start {
                    reached_at: event.reached_at,
                    now: self.ports.clock.now(),
                    execution_id: EnvelopeId::from_uuid(self.ports.ids.next_id()),
                    caused_by: envelope.id,
                    timeout: self.settings.timeout,
                };
                start_call(scheduled, start, outgoing)
            }
            (ServiceCall::Running(running), message) => {
                apply_to_running(running, envelope.id, message, outgoing)
            }
            (call, message) => {
                tracing::debug!(
                    key = %call.details().key,
                    status = %call.status(),
                    message = message.type_name(),
                    "a message changes nothing"
                );
                call
            }
        }
    }
}

fn start_call(scheduled: ScheduledCall, start: Start, outgoing: &mut Vec<Outgoing>) -> ServiceCall {
    match scheduled.clone().start(start) {
        Ok(mut step) => {
            outgoing.append(&mut step.outgoing);
            step.call
        }
        Err(error) => {
            tracing::warn!(%error, "an event comes before the due time of its call and is ignored");
            ServiceCall::Scheduled(scheduled)
        }
    }
}

/// Applies a message to a running call.
fn apply_to_running(
    running: RunningCall,
    cause: EnvelopeId,
    message: &Message,
    outgoing: &mut Vec<Outgoing>,
) -> ServiceCall {
    let (execution_id, outcome, at) = match message {
        Message::ExecutionStarted(event) if event.execution_id == running.execution_id => {
            return ServiceCall::Running(running.attempt_started(event.started_at));
        }
        Message::ExecutionSucceeded(event) => (
            event.execution_id,
            Outcome::Succeeded(event.response_meta.clone()),
            event.finished_at,
        ),
        Message::ExecutionFailed(event) => (
            event.execution_id,
            Outcome::Failed(event.error_meta.clone()),
            event.finished_at,
        ),
        _ => return ServiceCall::Running(running),
    };
    if execution_id != running.execution_id {
        tracing::warn!(%execution_id, "the result of an attempt that was not dispatched is ignored");
        return ServiceCall::Running(running);
    }
    let mut step = running.finish(outcome, at, cause);
    outgoing.append(&mut step.outgoing);
    step.call
}

fn was_started(stored: &StoredCall) -> bool {
    matches!(&stored.call, ServiceCall::Running(running) if running.attempt_started_at.is_some())
}

/// What the metrics and the log record of a change.
struct Effect {
    key: TimerKey,
    /// How long after the due time the attempt started, if this change says so.
    lateness: Option<Duration>,
    finished: Option<(&'static str, Option<ErrorMeta>)>,
}

impl Effect {
    /// `was_started`: the start of the attempt was recorded before.
    fn of(
        change: &CallChange,
        was_started: bool,
        batch: &[MessageEnvelope],
        indexes: &[usize],
    ) -> Self {
        let details = change.call.details();
        let started_at = indexes
            .iter()
            .find_map(|index| match &batch[*index].message {
                Message::ExecutionStarted(event) if !was_started => Some(event.started_at),
                _ => None,
            });
        let finished = match &change.call {
            ServiceCall::Finished(call) => {
                let failure = match call.outcome() {
                    Outcome::Failed(failure) => Some(failure.clone()),
                    Outcome::Succeeded(_) => None,
                };
                Some((change.call.status().as_str(), failure))
            }
            _ => None,
        };
        Self {
            key: details.key.clone(),
            lateness: started_at.map(|at| at.since(details.due_at)),
            finished,
        }
    }
}

const fn concerns_calls(message: &Message) -> bool {
    matches!(
        message,
        Message::DueTimeReached(_)
            | Message::ExecutionStarted(_)
            | Message::ExecutionSucceeded(_)
            | Message::ExecutionFailed(_)
    )
}

#[async_trait]
impl MessageHandler for ReactToEvents {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = vec![no_answer(); batch.len()];
        let mut open = ByCall::new();
        for (index, envelope) in batch.iter().enumerate() {
            let message = &envelope.message;
            if concerns_calls(message) {
                let key = TimerKey::new(message.tenant_id().clone(), message.service_call_id());
                open.entry(key).or_default().push(index);
            } else {
                answers[index] = unexpected(message, "an event for orchestration");
            }
        }
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let indexes: Vec<usize> = open.values().flatten().copied().collect();
            match self.try_apply(&batch, open, &mut answers).await {
                Ok(outdated) => open = outdated,
                Err(error) => {
                    tracing::warn!(%error, "events could not be applied and are left for later");
                    let answer = answer_of(&error);
                    for index in indexes {
                        answers[index] = answer.clone();
                    }
                    break;
                }
            }
        }
        answers
    }
}
