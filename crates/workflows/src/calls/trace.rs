//! The life of one request, in order: what happened to its calls, their timers and attempts.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, EnvelopeId, TimerEntry, TimerKey, TimerState, Timestamp};
use punctual_ports::{ExecutionState, PortError, PublishedMessage};

use super::ReadCalls;
use super::read::ATTEMPTS;

/// So many calls and timers of one request are shown.
const MOST: usize = 100;
/// So many messages of one call.
const MESSAGES: usize = 100;

/// What is known of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The request.
    pub correlation_id: CorrelationId,
    /// Its calls, by the time of their submission.
    pub calls: Vec<ServiceCall>,
    /// Its timers, those of its calls included.
    pub timers: Vec<TimerEntry>,
    /// What happened, in order.
    pub steps: Vec<TraceStep>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// When.
    pub at: Timestamp,
    /// To which call or timer.
    pub key: TimerKey,
    /// What: the type of the message that told it.
    pub what: &'static str,
    /// The message, if it is one that was put into the outbox.
    pub message_id: Option<EnvelopeId>,
    /// What caused it, if that is known.
    pub causation_id: Option<EnvelopeId>,
    /// When it was published, if it was.
    pub published_at: Option<Timestamp>,
}

impl ReadCalls {
    /// The trace of a request; empty if nothing is known of it.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn trace(&self, correlation_id: CorrelationId) -> Result<Trace, PortError> {
        let calls = self
            .ports
            .calls
            .find_by_correlation(correlation_id, MOST)
            .await?;
        let timers = self
            .ports
            .timers
            .find_by_correlation(correlation_id, MOST)
            .await?;
        let mut steps = Vec::new();
        for call in &calls {
            let key = call.details().key.clone();
            let messages = self.ports.outbox.about(key.clone(), MESSAGES).await?;
            steps.extend(messages.into_iter().map(|message| told(&key, message)));
            for attempt in self.ports.executions.entries(key.clone(), ATTEMPTS).await? {
                // Its messages tell the rest; that it waits, no message tells.
                if attempt.state == ExecutionState::Waiting {
                    steps.push(seen(&key, "ExecutionAccepted", attempt.started_at));
                }
            }
        }
        for timer in &timers {
            steps.extend(of_timer(timer, &calls));
        }
        // A stable sort: what happened in the same millisecond stays in the order of its causes.
        steps.sort_by_key(|step| (step.at, phase(step.what)));
        Ok(Trace {
            correlation_id,
            calls,
            timers,
            steps,
        })
    }
}

/// Messages and timers come from two places, and a due time that is noticed in the millisecond of
/// what comes before or after it belongs between them.
fn phase(what: &str) -> u8 {
    match what {
        "ServiceCallSubmitted" | "ScheduleTimer" | "ServiceCallScheduled" => 0,
        "DueTimeReached" => 1,
        _ => 2,
    }
}

fn told(key: &TimerKey, message: PublishedMessage) -> TraceStep {
    let envelope = message.envelope;
    TraceStep {
        at: envelope.timestamp,
        key: key.clone(),
        what: envelope.message.type_name(),
        message_id: Some(envelope.id),
        causation_id: envelope.metadata.causation_id,
        published_at: message.published_at,
    }
}

fn seen(key: &TimerKey, what: &'static str, at: Timestamp) -> TraceStep {
    TraceStep {
        at,
        key: key.clone(),
        what,
        message_id: None,
        causation_id: None,
        published_at: None,
    }
}

/// A timer's own life: its registration, unless that was told by a call's message, and its firing.
fn of_timer(timer: &TimerEntry, calls: &[ServiceCall]) -> Vec<TraceStep> {
    let scheduled = timer.timer();
    let key = &scheduled.key;
    let mut steps = Vec::new();
    if !calls.iter().any(|call| call.details().key == *key) {
        steps.push(seen(
            key,
            "ScheduleTimer",
            scheduled.registration.registered_at,
        ));
    }
    if timer.state() == TimerState::Reached
        && let Some(reached_at) = timer.reached_at()
    {
        steps.push(seen(key, "DueTimeReached", reached_at));
    }
    steps
}
