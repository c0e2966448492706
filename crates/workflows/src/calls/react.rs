//! What orchestration does when the timer or an execution tells it something.
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
use super::outcome::{answer_of, no_answer};
use super::{CallPorts, CallSettings};
use crate::log_limiter::LogLimiter;
use crate::metric_names;

/// How often somebody else may be quicker before the message is left for later.
const ROUNDS: usize = 8;
/// More of a reason would only fill the log.
const LONGEST_REASON: usize = 200;

/// Starts calls when their due time is reached, and ends them with their results.
#[derive(Clone)]
pub struct ReactToEvents {
    ports: CallPorts,
    settings: CallSettings,
    failures: Arc<LogLimiter>,
}

/// Which messages are about one call, by their places in the batch.
type ByCall = BTreeMap<TimerKey, Vec<usize>>;

impl ReactToEvents {
    /// On these adapters.
    pub fn new(ports: &CallPorts, settings: CallSettings) -> Self {
        Self {
            ports: ports.clone(),
            settings,
            failures: Arc::default(),
        }
    }

    /// A change was made: what it means for the figures and the log.
    fn tell_of(&self, made: &Made) {
        if let Some(late) = made.began_late_by {
            metrics::histogram!(metric_names::CALL_LATENESS).record(late.as_secs_f64());
        }
        let Some((status, failure)) = &made.finished else {
            return;
        };
        metrics::counter!(metric_names::CALLS_FINISHED, "status" => *status).increment(1);
        if let Some(failure) = failure
            && let Some(left_out) = self.failures.try_acquire(self.ports.clock.monotonic())
        {
            let reason = failure.message.as_deref().unwrap_or_default();
            let reason: String = reason.chars().take(LONGEST_REASON).collect();
            tracing::info!(
                key = %made.key,
                kind = failure.kind.as_str(),
                reason,
                left_out,
                "a call has failed"
            );
        }
    }

    /// One look at the calls and one change of those that change; gives back what somebody else was
    /// quicker at.
    async fn round(
        &self,
        batch: &[MessageEnvelope],
        open: ByCall,
        answers: &mut [Answer],
    ) -> Result<ByCall, PortError> {
        let keys: Vec<TimerKey> = open.keys().cloned().collect();
        let found = self.ports.calls.find(keys).await?;
        let mut changes = Vec::new();
        let mut changing = Vec::new();
        let mut made = Vec::new();
        for ((key, places), stored) in open.into_iter().zip(found) {
            let has_begun = stored.as_ref().is_some_and(has_begun);
            let change = stored.and_then(|stored| self.apply(stored, batch, &places));
            match change {
                Some(change) => {
                    made.push(Made::by(&change, has_begun, batch, &places));
                    changes.push(change);
                    changing.push((key, places));
                }
                // Nothing to do is done, and so is what is about a call that is gone.
                None => {
                    for at in places {
                        answers[at] = Answer::Done;
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
        for (((key, places), outcome), made) in changing.into_iter().zip(outcomes?).zip(made) {
            let answer = match outcome {
                Ok(ChangeOutcome::Changed) => {
                    self.tell_of(&made);
                    Answer::Done
                }
                Ok(_) => {
                    outdated.insert(key, places);
                    continue;
                }
                Err(error) => answer_of(&error),
            };
            for at in places {
                answers[at] = answer.clone();
            }
        }
        Ok(outdated)
    }

    /// The change that messages make to a call, if any.
    fn apply(
        &self,
        stored: StoredCall,
        batch: &[MessageEnvelope],
        places: &[usize],
    ) -> Option<CallChange> {
        let StoredCall { call, version } = stored;
        let correlation_id = call.details().correlation_id;
        let (mut call, before) = (call.clone(), call);
        let mut outgoing = Vec::new();
        for at in places {
            call = self.apply_one(call, &batch[*at], &mut outgoing);
        }
        if call == before {
            return None;
        }
        let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
        Some(CallChange {
            call,
            seen: version,
            outbox: wrap(outgoing, correlation_id, now, ids),
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
                run_on(running, envelope.id, message, outgoing)
            }
            (call, message) => {
                tracing::debug!(
                    key = %call.details().key,
                    status = %call.status(),
                    message = message.type_name(),
                    "a message changes nothing any more"
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

/// What a message means for a call whose request is being made.
fn run_on(
    running: RunningCall,
    cause: EnvelopeId,
    message: &Message,
    outgoing: &mut Vec<Outgoing>,
) -> ServiceCall {
    let (execution_id, outcome, at) = match message {
        Message::ExecutionStarted(event) if event.execution_id == running.execution_id => {
            return ServiceCall::Running(running.attempt_began(event.started_at));
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
        tracing::warn!(%execution_id, "the result of an attempt that was not asked for is ignored");
        return ServiceCall::Running(running);
    }
    let mut step = running.finish(outcome, at, cause);
    outgoing.append(&mut step.outgoing);
    step.call
}

fn has_begun(stored: &StoredCall) -> bool {
    matches!(&stored.call, ServiceCall::Running(running) if running.attempt_began_at.is_some())
}

/// What a change does that figures and the log tell of.
struct Made {
    key: TimerKey,
    /// How long after the due time the request was begun, if that was heard just now.
    began_late_by: Option<Duration>,
    finished: Option<(&'static str, Option<ErrorMeta>)>,
}

impl Made {
    /// `has_begun`: that the attempt began was heard before.
    fn by(
        change: &CallChange,
        has_begun: bool,
        batch: &[MessageEnvelope],
        places: &[usize],
    ) -> Self {
        let details = change.call.details();
        let began = places.iter().find_map(|at| match &batch[*at].message {
            Message::ExecutionStarted(event) if !has_begun => Some(event.started_at),
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
            began_late_by: began.map(|began| began.since(details.due_at)),
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
        for (at, envelope) in batch.iter().enumerate() {
            let message = &envelope.message;
            if concerns_calls(message) {
                let key = TimerKey::new(message.tenant_id().clone(), message.service_call_id());
                open.entry(key).or_default().push(at);
            } else {
                answers[at] = Answer::Poison {
                    reason: format!("{} is not for orchestration", message.type_name()),
                };
            }
        }
        for _ in 0..ROUNDS {
            if open.is_empty() {
                break;
            }
            let places: Vec<usize> = open.values().flatten().copied().collect();
            match self.round(&batch, open, &mut answers).await {
                Ok(outdated) => open = outdated,
                Err(error) => {
                    tracing::warn!(%error, "events could not be applied and are left for later");
                    let answer = answer_of(&error);
                    for at in places {
                        answers[at] = answer.clone();
                    }
                    break;
                }
            }
        }
        answers
    }
}
