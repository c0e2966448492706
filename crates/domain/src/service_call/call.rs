//! A service call and what can happen to it.
//!
//! | from | what happens | to | rule |
//! |---|---|---|---|
//! | – | submitted | Scheduled | once for each id and idempotency key |
//! | Scheduled | its due time is reached | Running | only with an event reached at or after `due_at`: [`ScheduledCall::start`] |
//! | Scheduled | overdue by [`OVERDUE`] | Running | the event is not waited for any longer |
//! | Scheduled | deleted | – | nothing is executed after that |
//! | Running | the attempt begins | Running | its deadline begins: [`RunningCall::attempt_began`] |
//! | Running | no attempt after [`UNHEARD`] | Running | the same command goes out again |
//! | Running | no result in time and [`GRACE`] | Running | the same command goes out once more |
//! | Running | its command cannot be delivered | Failed | nobody else would end it: [`RunningCall::undeliverable`] |
//! | Running | a result, or none [`GRACE`] after that | Succeeded, Failed | [`RunningCall::finish`] |
//! | Succeeded, Failed | – | – | final |
//!
//! The states are types, and each transition consumes the state before it: a call cannot be started
//! twice, and what has finished cannot change.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CallName, ErrorKind, ErrorMeta, Outcome, RequestSpec, Tags};
use crate::messages::{
    ServiceCallDeleted, ServiceCallFailed, ServiceCallRunning, ServiceCallScheduled,
    ServiceCallSubmitted, ServiceCallSucceeded, StartExecution,
};
use crate::{CorrelationId, EnvelopeId, Message, ScheduleTimer, TimerKey, Timestamp};

/// So long after its due time a call is started although nobody has said that it is due.
pub const OVERDUE: Duration = Duration::from_mins(1);
/// So long after its command went out an attempt should have begun.
pub const UNHEARD: Duration = Duration::from_mins(1);
/// So long after an attempt's time is over its result may still come, and so long after it was asked
/// for once more.
pub const GRACE: Duration = Duration::from_secs(30);
/// A command that is not heard goes out again after twice as long each time, but not rarer than this:
/// a long queue of executions must not be made longer by our asking.
const RAREST: Duration = Duration::from_hours(1);

/// What is known of a call from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDetails {
    /// Whose call, and which.
    pub key: TimerKey,
    /// The request that it belongs to.
    pub correlation_id: CorrelationId,
    /// The command that brought it.
    pub command_id: EnvelopeId,
    /// What people call it.
    pub name: CallName,
    /// By what it is found.
    pub tags: Tags,
    /// When it was accepted.
    pub submitted_at: Timestamp,
    /// When its request is to be made.
    pub due_at: Timestamp,
    /// The request; once it has finished, only what may be shown of it.
    pub request: RequestSpec,
}

/// A call that waits for its due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledCall {
    /// What is known of it.
    pub details: CallDetails,
}

/// A call whose request is to be made, or is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCall {
    /// What is known of it.
    pub details: CallDetails,
    /// When it was started.
    pub started_at: Timestamp,
    /// The one attempt: the id of the command that asks for it.
    pub execution_id: EnvelopeId,
    /// The message that started it.
    pub caused_by: EnvelopeId,
    /// How long the attempt may take.
    pub timeout: Duration,
    /// When the attempt began, if that was heard.
    pub attempt_began_at: Option<Timestamp>,
    /// When the command last went out.
    pub dispatched_at: Timestamp,
    /// How often the command went out.
    pub dispatch_count: u32,
}

/// A call that has its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    details: CallDetails,
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    outcome: Outcome,
}

/// A call in whichever state it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceCall {
    /// It waits for its due time.
    Scheduled(ScheduledCall),
    /// Its request is to be made, or is being made.
    Running(RunningCall),
    /// It has its outcome.
    Finished(FinishedCall),
}

/// The name of a call's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallStatus {
    /// It waits for its due time.
    Scheduled,
    /// Its request is to be made, or is being made.
    Running,
    /// The target answered with 2xx.
    Succeeded,
    /// Anything else.
    Failed,
}

/// A text is no status.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("status is none of Scheduled, Running, Succeeded and Failed: \"{given}\"")]
pub struct StatusError {
    given: String,
}

/// A message to go out, under an id that is fixed or any new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its envelope's id, if it matters.
    pub id: Option<EnvelopeId>,
    /// What caused it.
    pub caused_by: EnvelopeId,
    /// What it says.
    pub message: Message,
}

/// A call after something happened to it, and what is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStep {
    /// The call as it is now.
    pub call: ServiceCall,
    /// What goes out, in this order.
    pub outgoing: Vec<Outgoing>,
}

/// An event says that a call is due before it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key} is due at {due_at}, which is after {reached_at}")]
pub struct NotYetReached {
    /// Which call.
    pub key: TimerKey,
    /// When it is due.
    pub due_at: Timestamp,
    /// When it was said to be.
    pub reached_at: Timestamp,
}

/// What the start of a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// When the due time was noticed.
    pub reached_at: Timestamp,
    /// The time now.
    pub now: Timestamp,
    /// Names the attempt.
    pub execution_id: EnvelopeId,
    /// The message that starts it.
    pub caused_by: EnvelopeId,
    /// How long the attempt may take.
    pub timeout: Duration,
}

/// What is to be done about a call that was looked at because nothing happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Nothing, until this instant; never, if there is none.
    Wait(Option<Timestamp>),
    /// It is overdue: start it.
    Start(ScheduledCall),
    /// Its attempt was not heard of, or its result was not: ask again.
    Redispatch(RunningCall),
    /// Its attempt has no result, also after it was asked for once more: give it up.
    GiveUp(RunningCall),
}

impl CallDetails {
    /// A call is accepted: the beginning of its life, and what is told of it.
    pub fn schedule(self) -> CallStep {
        let (tenant_id, service_call_id) = (self.key.tenant_id.clone(), self.key.service_call_id);
        let outgoing = vec![
            self.says(ServiceCallSubmitted {
                tenant_id: tenant_id.clone(),
                service_call_id,
                name: self.name.clone(),
                request_spec: self.request.redacted(),
                submitted_at: self.submitted_at,
                tags: self.tags.clone(),
            }),
            self.says(ScheduleTimer {
                tenant_id: tenant_id.clone(),
                service_call_id,
                due_at: self.due_at,
                data: None,
            }),
            self.says(ServiceCallScheduled {
                tenant_id,
                service_call_id,
                due_at: self.due_at,
            }),
        ];
        let call = ServiceCall::Scheduled(ScheduledCall { details: self });
        CallStep { call, outgoing }
    }

    fn says(&self, message: impl Into<Message>) -> Outgoing {
        Outgoing {
            id: None,
            caused_by: self.command_id,
            message: message.into(),
        }
    }
}

impl ScheduledCall {
    /// The due time is reached: the request is to be made.
    ///
    /// # Errors
    /// If the event was reached before the due time, which another schedule's may be.
    pub fn start(self, start: Start) -> Result<CallStep, NotYetReached> {
        if start.reached_at < self.details.due_at {
            return Err(NotYetReached {
                key: self.details.key,
                due_at: self.details.due_at,
                reached_at: start.reached_at,
            });
        }
        let running = RunningCall {
            details: self.details,
            started_at: start.now,
            execution_id: start.execution_id,
            caused_by: start.caused_by,
            timeout: start.timeout,
            attempt_began_at: None,
            dispatched_at: start.now,
            dispatch_count: 1,
        };
        let key = &running.details.key;
        let told = ServiceCallRunning {
            tenant_id: key.tenant_id.clone(),
            service_call_id: key.service_call_id,
            started_at: start.now,
        };
        let told = Outgoing {
            id: None,
            caused_by: start.caused_by,
            message: told.into(),
        };
        let outgoing = vec![told, running.command()];
        let call = ServiceCall::Running(running);
        Ok(CallStep { call, outgoing })
    }

    /// What is told when it is deleted.
    pub fn deletion(&self, deleted_at: Timestamp, caused_by: EnvelopeId) -> Outgoing {
        let event = ServiceCallDeleted {
            tenant_id: self.details.key.tenant_id.clone(),
            service_call_id: self.details.key.service_call_id,
            deleted_at,
        };
        Outgoing {
            id: None,
            caused_by,
            message: event.into(),
        }
    }
}

impl RunningCall {
    /// The command for the one attempt, under the same id each time.
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

    /// The attempt has begun, and its deadline with it. Heard twice, the first time counts.
    #[must_use]
    pub fn attempt_began(mut self, at: Timestamp) -> Self {
        self.attempt_began_at.get_or_insert(at);
        self
    }

    /// Nothing was heard of the attempt: the same command goes out again.
    pub fn redispatch(mut self, now: Timestamp) -> CallStep {
        self.dispatched_at = now;
        self.dispatch_count = self.dispatch_count.saturating_add(1);
        let outgoing = vec![self.command()];
        let call = ServiceCall::Running(self);
        CallStep { call, outgoing }
    }

    /// The outcome is there, because of some message.
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
        let outgoing = vec![Outgoing {
            id: None,
            caused_by,
            message,
        }];
        let finished = FinishedCall::restore(self.details, Some(self.started_at), at, outcome);
        let call = ServiceCall::Finished(finished);
        CallStep { call, outgoing }
    }

    /// No result came in time: it has failed.
    pub fn give_up(self, now: Timestamp) -> CallStep {
        let message = format!(
            "no result within {} s of the beginning of the attempt, and none when it was asked for once more: whether the target got the request is not known",
            self.timeout.saturating_add(GRACE).as_secs()
        );
        let (kind, caused_by) = (ErrorKind::Timeout, self.execution_id);
        self.finish(
            Outcome::Failed(ErrorMeta::new(kind, message)),
            now,
            caused_by,
        )
    }

    /// The command for its attempt can never be delivered, so that nobody will make it: it has failed.
    ///
    /// # Errors
    /// With the call as it is, if the attempt has begun or is another one.
    pub fn undeliverable(
        self,
        execution_id: EnvelopeId,
        reason: &str,
        now: Timestamp,
    ) -> Result<CallStep, Box<Self>> {
        if self.execution_id != execution_id || self.attempt_began_at.is_some() {
            return Err(Box::new(self));
        }
        let message = format!("its command cannot be delivered: {reason}");
        let error = ErrorMeta::new(ErrorKind::InvalidRequest, message);
        Ok(self.finish(Outcome::Failed(error), now, execution_id))
    }

    /// When the result should have been heard, if the beginning was.
    fn deadline(&self) -> Option<Timestamp> {
        let began_at = self.attempt_began_at?;
        Some(began_at.saturating_add(self.timeout.saturating_add(GRACE)))
    }

    /// Whether the deadline is over and the result was asked for since.
    fn was_asked_in_vain(&self) -> bool {
        self.deadline().is_some_and(|at| self.dispatched_at >= at)
    }

    fn next_check_at(&self) -> Timestamp {
        if self.was_asked_in_vain() {
            return self.dispatched_at.saturating_add(GRACE);
        }
        if let Some(deadline) = self.deadline() {
            return deadline;
        }
        let doublings = self.dispatch_count.saturating_sub(1).min(10);
        let wait = UNHEARD.saturating_mul(1 << doublings).min(RAREST);
        self.dispatched_at.saturating_add(wait)
    }
}

impl FinishedCall {
    /// A finished call, as it was kept or as it becomes: without what was secret about its request,
    /// which nobody needs any more.
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

    /// What is known of it.
    pub const fn details(&self) -> &CallDetails {
        &self.details
    }

    /// When it was started, if it was.
    pub const fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// When it got its outcome.
    pub const fn finished_at(&self) -> Timestamp {
        self.finished_at
    }

    /// Its outcome.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

impl ServiceCall {
    /// What is known of it from the beginning.
    pub const fn details(&self) -> &CallDetails {
        match self {
            Self::Scheduled(call) => &call.details,
            Self::Running(call) => &call.details,
            Self::Finished(call) => &call.details,
        }
    }

    /// The name of its state.
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

    /// When somebody should look whether something that ought to have happened has not.
    pub fn next_check_at(&self) -> Option<Timestamp> {
        match self {
            Self::Scheduled(call) => Some(call.details.due_at.saturating_add(OVERDUE)),
            Self::Running(call) => Some(call.next_check_at()),
            Self::Finished(_) => None,
        }
    }

    /// Looks whether something that ought to have happened has not.
    pub fn check(self, now: Timestamp) -> Check {
        let next_check_at = self.next_check_at();
        if next_check_at.is_none_or(|at| now < at) {
            return Check::Wait(next_check_at);
        }
        match self {
            Self::Scheduled(call) => Check::Start(call),
            Self::Running(call) if call.was_asked_in_vain() => Check::GiveUp(call),
            Self::Running(call) => Check::Redispatch(call),
            Self::Finished(_) => Check::Wait(None),
        }
    }
}

impl CallStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Scheduled,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
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

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
