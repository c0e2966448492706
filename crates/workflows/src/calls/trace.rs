//! The trace of one request: what happened to its calls, their timers and attempts, in order.

use std::collections::BTreeSet;

use punctual_domain::messages::Phase;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, EnvelopeId, TimerEntry, TimerKey, TimerState, Timestamp};
use punctual_ports::{ExecutionState, PortError, PublishedMessage};

use super::ReadCalls;
use super::read::ATTEMPTS;

/// Maximum number of messages of one call.
const MESSAGES: usize = 100;

/// The trace of one request, or a page of it: all about some of its calls and timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The request.
    pub correlation_id: CorrelationId,
    /// Its calls, in the order of keys.
    pub calls: Vec<ServiceCall>,
    /// Its timers, those of its calls included, in the order of keys.
    pub timers: Vec<TimerEntry>,
    /// What happened to them, in the order of time.
    pub steps: Vec<TraceStep>,
    /// After which key there are more.
    pub next: Option<TimerKey>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// When.
    pub at: Timestamp,
    /// To which call or timer.
    pub key: TimerKey,
    /// What: the type of its message.
    pub what: &'static str,
    /// The message, if it is one that was put into the outbox.
    pub message_id: Option<EnvelopeId>,
    /// What caused it, if that is known.
    pub causation_id: Option<EnvelopeId>,
    /// When it was published, if it was.
    pub published_at: Option<Timestamp>,
}

impl ReadCalls {
    /// The trace of a request: all about `limit` of its keys, after one if it is given. Empty if
    /// nothing more is known of it. A call and its timer have one key, so they are on one page.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn trace(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Trace, PortError> {
        let limit = limit.clamp(1, Self::MAX_PAGE);
        // One more of each shows whether there are more keys, and the first of both are the first of all.
        let (calls, timers) = (&self.ports.calls, &self.ports.timers);
        let mut calls = calls
            .find_by_correlation(correlation_id, after.clone(), limit + 1)
            .await?;
        let mut timers = timers
            .find_by_correlation(correlation_id, after, limit + 1)
            .await?;
        let keys: BTreeSet<&TimerKey> = calls
            .iter()
            .map(|call| &call.details().key)
            .chain(timers.iter().map(|timer| &timer.timer().key))
            .collect();
        let has_more = keys.len() > limit;
        let last = keys.into_iter().nth(limit - 1).cloned();
        let next = last.filter(|_| has_more);
        if let Some(last) = &next {
            calls.retain(|call| call.details().key <= *last);
            timers.retain(|timer| timer.timer().key <= *last);
        }
        let mut steps = Vec::new();
        for call in &calls {
            let key = call.details().key.clone();
            let messages = self.ports.outbox.about(key.clone(), MESSAGES).await?;
            steps.extend(
                messages
                    .into_iter()
                    .map(|message| message_step(&key, message)),
            );
            for attempt in self.ports.executions.entries(key.clone(), ATTEMPTS).await? {
                // Its messages are the other steps; there is none for an attempt that waits.
                if attempt.state == ExecutionState::Waiting {
                    let accepted = row_step(&key, "ExecutionAccepted", attempt.started_at);
                    steps.push((Phase::AfterDueTime, accepted));
                }
            }
        }
        for timer in &timers {
            steps.extend(timer_steps(timer, &calls));
        }
        // A stable sort: what happened in the same millisecond stays in the order of its causes.
        steps.sort_by_key(|(phase, step)| (step.at, *phase));
        Ok(Trace {
            correlation_id,
            calls,
            timers,
            steps: steps.into_iter().map(|(_, step)| step).collect(),
            next,
        })
    }
}

/// A step with its phase: messages and timers are read from two tables, and a due time that is
/// noticed in the millisecond of what comes before or after it belongs between them.
type PhasedStep = (Phase, TraceStep);

fn message_step(key: &TimerKey, message: PublishedMessage) -> PhasedStep {
    let envelope = message.envelope;
    let step = TraceStep {
        at: envelope.timestamp,
        key: key.clone(),
        what: envelope.message.type_name(),
        message_id: Some(envelope.id),
        causation_id: envelope.metadata.causation_id,
        published_at: message.published_at,
    };
    (envelope.message.phase(), step)
}

fn row_step(key: &TimerKey, what: &'static str, at: Timestamp) -> TraceStep {
    TraceStep {
        at,
        key: key.clone(),
        what,
        message_id: None,
        causation_id: None,
        published_at: None,
    }
}

/// The steps of a timer: its registration, unless a call's message is that step, and its firing.
fn timer_steps(timer: &TimerEntry, calls: &[ServiceCall]) -> Vec<PhasedStep> {
    let scheduled = timer.timer();
    let key = &scheduled.key;
    let mut steps = Vec::new();
    if !calls.iter().any(|call| call.details().key == *key) {
        let registered_at = scheduled.registration.registered_at;
        let scheduled = row_step(key, "ScheduleTimer", registered_at);
        steps.push((Phase::BeforeDueTime, scheduled));
    }
    if timer.state() == TimerState::Reached
        && let Some(reached_at) = timer.reached_at()
    {
        let reached = row_step(key, "DueTimeReached", reached_at);
        steps.push((Phase::AtDueTime, reached));
    }
    steps
}
