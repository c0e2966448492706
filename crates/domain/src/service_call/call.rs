//! The state machine of a service call.
//!
//! | from | event | to | rule |
//! |---|---|---|---|
//! | – | submitted | Scheduled | once for each id and idempotency key: [`CallDetails::accept`] |
//! | – | submitted at or after `due_at` | Running | the same, without a timer |
//! | Scheduled | its due time is reached | Running | only with an event reached at or after `due_at`: [`ScheduledCall::start`] |
//! | Scheduled | overdue by [`OVERDUE`] | Running | without waiting for the event any longer |
//! | Scheduled | deleted | – | nothing is executed afterwards |
//! | Running | the attempt starts | Running | its deadline starts: [`RunningCall::attempt_started`] |
//! | Running | no attempt after [`UNHEARD`] | Running | the same command is dispatched again |
//! | Running | no result by the timeout plus [`GRACE`] | Running | the same command is dispatched once more |
//! | Running | its command cannot be delivered | Failed | nothing else would end it: [`RunningCall::undeliverable`] |
//! | Running | a result, or none [`GRACE`] after the last dispatch | Succeeded, Failed | [`RunningCall::finish`] |
//! | Succeeded, Failed | – | – | final |
//!
//! The states are types, and each transition consumes the state before it: a call cannot be started
//! twice, and a finished call cannot change.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CallName, ErrorKind, ErrorMeta, Outcome, RequestSpec, Tags};
use crate::messages::{
    ServiceCallDeleted, ServiceCallFailed, ServiceCallRunning, ServiceCallScheduled,
    ServiceCallSubmitted, ServiceCallSucceeded, StartExecution,
};
use crate::text_forms::named_variants;
use crate::{CorrelationId, EnvelopeId, Message, ScheduleTimer, TimerKey, Timestamp};

/// Time after its due time at which a call is started without its event.
pub const OVERDUE: Duration = Duration::from_mins(1);
/// Time after the first dispatch by which an attempt should have started.
pub const UNHEARD: Duration = Duration::from_mins(1);
/// Time that a result may take beyond the timeout of its attempt, and again after the last dispatch.
pub const GRACE: Duration = Duration::from_secs(30);
/// Maximum interval between two dispatches of a command. The interval doubles each time, so as not to
/// lengthen a long queue of executions.
const MAX_REDISPATCH_INTERVAL: Duration = Duration::from_hours(1);

/// The properties of a call that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDetails {
    /// The key of the call.
    pub key: TimerKey,
    /// The request that the call belongs to.
    pub correlation_id: CorrelationId,
    /// The command that submitted the call.
    pub command_id: EnvelopeId,
    /// Display name.
    pub name: CallName,
    /// Tags to search by.
    pub tags: Tags,
    /// When the call was accepted.
    pub submitted_at: Timestamp,
    /// When its request is to be made.
    pub due_at: Timestamp,
    /// The request, redacted once the call is finished.
    pub request: RequestSpec,
}

/// A call waiting for its due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledCall {
    /// The properties that never change.
    pub details: CallDetails,
}

/// A call whose attempt is dispatched or in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCall {
    /// The properties that never change.
    pub details: CallDetails,
    /// When the call was started.
    pub started_at: Timestamp,
    /// The attempt: the id of the command that requests it.
    pub execution_id: EnvelopeId,
    /// The message that started the call.
    pub caused_by: EnvelopeId,
    /// Time limit of the attempt.
    pub timeout: Duration,
    /// When the attempt started, if known.
    pub attempt_started_at: Option<Timestamp>,
    /// When the command was last dispatched.
    pub dispatched_at: Timestamp,
    /// Number of dispatches of the command.
    pub dispatch_count: u32,
}

/// A call with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    details: CallDetails,
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    outcome: Outcome,
}

/// A call in any state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceCall {
    /// Waiting for its due time.
    Scheduled(ScheduledCall),
    /// Its attempt is dispatched or in flight.
    Running(RunningCall),
    /// Finished, with its outcome.
    Finished(FinishedCall),
}

named_variants! {
    /// Status of a call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum CallStatus {
        /// Waiting for its due time.
        Scheduled = "Scheduled",
        /// Its attempt is dispatched or in flight.
        Running = "Running",
        /// The target responded with 2xx.
        Succeeded = "Succeeded",
        /// Anything else.
        Failed = "Failed",
    }
}

/// Error for a text that is no status.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("status is none of Scheduled, Running, Succeeded and Failed: \"{given}\"")]
pub struct StatusError {
    given: String,
}

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Id of the envelope; a new one if `None`.
    pub id: Option<EnvelopeId>,
    /// The message that caused it.
    pub caused_by: EnvelopeId,
    /// The payload.
    pub message: Message,
}

impl Outgoing {
    /// A message that gets a new id.
    fn caused(caused_by: EnvelopeId, message: impl Into<Message>) -> Self {
        Self {
            id: None,
            caused_by,
            message: message.into(),
        }
    }
}

/// Result of a transition: the new state and the messages about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStep {
    /// The new state of the call.
    pub call: ServiceCall,
    /// Messages to publish, in this order.
    pub outgoing: Vec<Outgoing>,
}

/// Error for an event that was reached before the due time of its call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key} is due at {due_at}, which is after {reached_at}")]
pub struct NotYetReached {
    /// The key of the call.
    pub key: TimerKey,
    /// When the call is due.
    pub due_at: Timestamp,
    /// When the event was reached.
    pub reached_at: Timestamp,
}

/// Arguments of starting a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// When the event was reached.
    pub reached_at: Timestamp,
    /// The current time.
    pub now: Timestamp,
    /// Id of the attempt.
    pub execution_id: EnvelopeId,
    /// The message that starts the call.
    pub caused_by: EnvelopeId,
    /// Time limit of the attempt.
    pub timeout: Duration,
}

/// What a sweep has to do about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Nothing until this instant, or ever if `None`.
    Wait(Option<Timestamp>),
    /// Start the call: it is overdue.
    Start(ScheduledCall),
    /// Dispatch the command again: the start or the result of the attempt was not reported.
    Redispatch(RunningCall),
    /// Fail the call: its attempt has no result, even after another dispatch.
    GiveUp(RunningCall),
}

impl CallDetails {
    /// Accepts the call: the first transition. A call that is due when it is submitted starts at once, and
    /// any other waits for its timer.
    pub fn accept(self, execution_id: EnvelopeId, timeout: Duration) -> CallStep {
        if self.submitted_at < self.due_at {
            return self.schedule();
        }
        let mut outgoing = vec![self.submitted(), self.scheduled()];
        let start = Start {
            reached_at: self.submitted_at,
            now: self.submitted_at,
            execution_id,
            caused_by: self.command_id,
            timeout,
        };
        let mut step = self.start(start);
        outgoing.append(&mut step.outgoing);
        CallStep { outgoing, ..step }
    }

    /// Accepts the call, which waits for its timer.
    pub fn schedule(self) -> CallStep {
        let timer = self.message(ScheduleTimer {
            tenant_id: self.key.tenant_id.clone(),
            service_call_id: self.key.service_call_id,
            due_at: self.due_at,
            data: None,
        });
        let outgoing = vec![self.submitted(), timer, self.scheduled()];
        let call = ServiceCall::Scheduled(ScheduledCall { details: self });
        CallStep { call, outgoing }
    }

    /// Starts the call, which is due.
    fn start(self, start: Start) -> CallStep {
        let running = RunningCall {
            details: self,
            started_at: start.now,
            execution_id: start.execution_id,
            caused_by: start.caused_by,
            timeout: start.timeout,
            attempt_started_at: None,
            dispatched_at: start.now,
            dispatch_count: 1,
        };
        let key = &running.details.key;
        let event = ServiceCallRunning {
            tenant_id: key.tenant_id.clone(),
            service_call_id: key.service_call_id,
            started_at: start.now,
        };
        let event = Outgoing::caused(start.caused_by, event);
        let outgoing = vec![event, running.command()];
        let call = ServiceCall::Running(running);
        CallStep { call, outgoing }
    }

    fn submitted(&self) -> Outgoing {
        self.message(ServiceCallSubmitted {
            tenant_id: self.key.tenant_id.clone(),
            service_call_id: self.key.service_call_id,
            name: self.name.clone(),
            request_spec: self.request.redacted(),
            submitted_at: self.submitted_at,
            tags: self.tags.clone(),
        })
    }

    fn scheduled(&self) -> Outgoing {
        self.message(ServiceCallScheduled {
            tenant_id: self.key.tenant_id.clone(),
            service_call_id: self.key.service_call_id,
            due_at: self.due_at,
        })
    }

    fn message(&self, message: impl Into<Message>) -> Outgoing {
        Outgoing::caused(self.command_id, message)
    }
}

impl ScheduledCall {
    /// Starts the call, once its due time is reached.
    ///
    /// # Errors
    /// If the event was reached before the due time, such as the event of another schedule.
    pub fn start(self, start: Start) -> Result<CallStep, NotYetReached> {
        if start.reached_at < self.details.due_at {
            return Err(NotYetReached {
                key: self.details.key,
                due_at: self.details.due_at,
                reached_at: start.reached_at,
            });
        }
        Ok(self.details.start(start))
    }

    /// The messages about the deletion of the call.
    pub fn deletion(&self, deleted_at: Timestamp, caused_by: EnvelopeId) -> Outgoing {
        let event = ServiceCallDeleted {
            tenant_id: self.details.key.tenant_id.clone(),
            service_call_id: self.details.key.service_call_id,
            deleted_at,
        };
        Outgoing::caused(caused_by, event)
    }
}

impl RunningCall {
    /// The command that requests the attempt, under the same id each time.
    fn command(&self) -> Outgoing {
        let command = StartExecution {
            tenant_id: self.details.key.tenant_id.clone(),
            service_call_id: self.details.key.service_call_id,
            request_spec: self.details.request.clone(),
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        Outgoing {
            id: Some(self.execution_id),
            caused_by: self.caused_by,
            message: command.into(),
        }
    }

    /// Records the start of the attempt, and with it its deadline. The first report counts.
    #[must_use]
    pub fn attempt_started(mut self, at: Timestamp) -> Self {
        self.attempt_started_at.get_or_insert(at);
        self
    }

    /// Dispatches the same command again.
    pub fn redispatch(mut self, now: Timestamp) -> CallStep {
        self.dispatched_at = now;
        self.dispatch_count = self.dispatch_count.saturating_add(1);
        let outgoing = vec![self.command()];
        let call = ServiceCall::Running(self);
        CallStep { call, outgoing }
    }

    /// Finishes the call with an outcome.
    pub fn finish(self, outcome: Outcome, at: Timestamp, caused_by: EnvelopeId) -> CallStep {
        let (tenant_id, service_call_id) = (
            self.details.key.tenant_id.clone(),
            self.details.key.service_call_id,
        );
        let message = match outcome.clone() {
            Outcome::Succeeded(response_meta) => Message::from(ServiceCallSucceeded {
                tenant_id,
                service_call_id,
                finished_at: at,
                response_meta,
            }),
            Outcome::Failed(error_meta) => Message::from(ServiceCallFailed {
                tenant_id,
                service_call_id,
                finished_at: at,
                error_meta,
            }),
        };
        let outgoing = vec![Outgoing::caused(caused_by, message)];
        let finished = FinishedCall::restore(self.details, Some(self.started_at), at, outcome);
        let call = ServiceCall::Finished(finished);
        CallStep { call, outgoing }
    }

    /// Fails the call because no result arrived in time.
    pub fn give_up(self, now: Timestamp) -> CallStep {
        let message = format!(
            "no result within {} s of the start of the attempt, and none after another dispatch: whether the target received the request is unknown",
            self.timeout.saturating_add(GRACE).as_secs()
        );
        let (kind, caused_by) = (ErrorKind::Timeout, self.execution_id);
        self.finish(
            Outcome::Failed(ErrorMeta::new(kind, message)),
            now,
            caused_by,
        )
    }

    /// Fails the call because its command can never be delivered.
    ///
    /// # Errors
    /// With the unchanged call, if its attempt has started or is another one.
    pub fn undeliverable(
        self,
        execution_id: EnvelopeId,
        reason: &str,
        now: Timestamp,
    ) -> Result<CallStep, Box<Self>> {
        if self.execution_id != execution_id || self.attempt_started_at.is_some() {
            return Err(Box::new(self));
        }
        let message = format!("its command cannot be delivered: {reason}");
        let error = ErrorMeta::new(ErrorKind::InvalidRequest, message);
        Ok(self.finish(Outcome::Failed(error), now, execution_id))
    }

    /// When the result is due, if the attempt is known to have started.
    fn deadline(&self) -> Option<Timestamp> {
        let started_at = self.attempt_started_at?;
        Some(started_at.saturating_add(self.timeout.saturating_add(GRACE)))
    }

    /// Whether the command was dispatched again after the deadline.
    fn was_redispatched_after_deadline(&self) -> bool {
        self.deadline().is_some_and(|at| self.dispatched_at >= at)
    }

    fn next_check_at(&self) -> Timestamp {
        if self.was_redispatched_after_deadline() {
            return self.dispatched_at.saturating_add(GRACE);
        }
        if let Some(deadline) = self.deadline() {
            return deadline;
        }
        let doublings = self.dispatch_count.saturating_sub(1).min(10);
        let wait = UNHEARD
            .saturating_mul(1 << doublings)
            .min(MAX_REDISPATCH_INTERVAL);
        self.dispatched_at.saturating_add(wait)
    }
}

impl FinishedCall {
    /// A finished call, without the secrets of its request, which are no longer needed.
    pub fn restore(
        mut details: CallDetails,
        started_at: Option<Timestamp>,
        finished_at: Timestamp,
        outcome: Outcome,
    ) -> Self {
        details.request = details.request.redacted();
        Self {
            details,
            started_at,
            finished_at,
            outcome,
        }
    }

    /// The properties that never change.
    pub const fn details(&self) -> &CallDetails {
        &self.details
    }

    /// When the call was started, if it was.
    pub const fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// When the call finished.
    pub const fn finished_at(&self) -> Timestamp {
        self.finished_at
    }

    /// The outcome.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

impl ServiceCall {
    /// The properties that never change.
    pub const fn details(&self) -> &CallDetails {
        match self {
            Self::Scheduled(call) => &call.details,
            Self::Running(call) => &call.details,
            Self::Finished(call) => &call.details,
        }
    }

    /// The status.
    pub const fn status(&self) -> CallStatus {
        match self {
            Self::Scheduled(_) => CallStatus::Scheduled,
            Self::Running(_) => CallStatus::Running,
            Self::Finished(FinishedCall {
                outcome: Outcome::Succeeded(_),
                ..
            }) => CallStatus::Succeeded,
            Self::Finished(_) => CallStatus::Failed,
        }
    }

    /// When a sweep examines the call if nothing else has moved it.
    pub fn next_check_at(&self) -> Option<Timestamp> {
        match self {
            Self::Scheduled(call) => Some(call.details.due_at.saturating_add(OVERDUE)),
            Self::Running(call) => Some(call.next_check_at()),
            Self::Finished(_) => None,
        }
    }

    /// Decides what a sweep has to do about the call.
    pub fn check(self, now: Timestamp) -> Check {
        let next_check_at = self.next_check_at();
        if next_check_at.is_none_or(|at| now < at) {
            return Check::Wait(next_check_at);
        }
        match self {
            Self::Scheduled(call) => Check::Start(call),
            Self::Running(call) if call.was_redispatched_after_deadline() => Check::GiveUp(call),
            Self::Running(call) => Check::Redispatch(call),
            Self::Finished(_) => Check::Wait(None),
        }
    }
}

impl FromStr for CallStatus {
    type Err = StatusError;
    fn from_str(text: &str) -> Result<Self, StatusError> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| StatusError {
            given: crate::excerpt(text),
        })
    }
}
