//! What is shown of calls: never a secret, whatever the store gives.

use punctual_domain::service_call::{
    CallName, CallStatus, ErrorMeta, Outcome, RequestSpec, ResponseMeta, ServiceCall, Tags,
};
use punctual_domain::{CorrelationId, EnvelopeId, ServiceCallId, TenantId, TimerEntry, Timestamp};
use punctual_ports::{ExecutionEntry, ExecutionState, PageCursor, Receipt};
use punctual_workflows::calls::{CallView, Trace, TraceStep};
use serde::Serialize;

/// What is told to whoever submits: the same, byte for byte, each time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Accepted {
    pub(crate) service_call_id: ServiceCallId,
    pub(crate) tenant_id: TenantId,
    pub(crate) name: CallName,
    pub(crate) due_at: Timestamp,
    pub(crate) submitted_at: Timestamp,
    pub(crate) correlation_id: CorrelationId,
}

impl Accepted {
    pub(crate) fn new(
        tenant_id: TenantId,
        name: CallName,
        due_at: Timestamp,
        receipt: Receipt,
    ) -> Self {
        Self {
            service_call_id: receipt.service_call_id,
            tenant_id,
            name,
            due_at,
            submitted_at: receipt.submitted_at,
            correlation_id: receipt.correlation_id,
        }
    }
}

/// A call in a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    name: CallName,
    status: CallStatus,
    tags: Tags,
    submitted_at: Timestamp,
    due_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    correlation_id: CorrelationId,
}

impl From<&ServiceCall> for Summary {
    fn from(call: &ServiceCall) -> Self {
        let details = call.details();
        let (started_at, finished_at) = match call {
            ServiceCall::Scheduled(_) => (None, None),
            ServiceCall::Running(running) => (Some(running.started_at), None),
            ServiceCall::Finished(done) => (done.started_at(), Some(done.finished_at())),
        };
        Self {
            tenant_id: details.key.tenant_id.clone(),
            service_call_id: details.key.service_call_id,
            name: details.name.clone(),
            status: call.status(),
            tags: details.tags.clone(),
            submitted_at: details.submitted_at,
            due_at: details.due_at,
            started_at,
            finished_at,
            correlation_id: details.correlation_id,
        }
    }
}

/// A page of a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) items: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A call with all that belongs to it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Whole {
    #[serde(flatten)]
    summary: Summary,
    request_spec: RequestSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<TimerEntry>,
    execution_log: Vec<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Ending>,
}

impl From<CallView> for Whole {
    fn from(view: CallView) -> Self {
        let outcome = match &view.call {
            ServiceCall::Finished(done) => Some(Ending::from(done.outcome())),
            _ => None,
        };
        Self {
            summary: Summary::from(&view.call),
            request_spec: view.call.details().request.redacted(),
            timer: view.timer,
            execution_log: view.attempts.into_iter().map(Attempt::from).collect(),
            outcome,
        }
    }
}

/// How a call or an attempt ended: one of the two.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ending {
    #[serde(skip_serializing_if = "Option::is_none")]
    response_meta: Option<ResponseMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_meta: Option<ErrorMeta>,
}

impl From<&Outcome> for Ending {
    fn from(outcome: &Outcome) -> Self {
        match outcome.clone() {
            Outcome::Succeeded(response) => Self {
                response_meta: Some(response),
                error_meta: None,
            },
            Outcome::Failed(error) => Self {
                response_meta: None,
                error_meta: Some(error),
            },
        }
    }
}

/// An attempt.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    execution_id: EnvelopeId,
    state: &'static str,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    request_spec: RequestSpec,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ending: Option<Ending>,
}

/// The states of an attempt, by name.
pub(crate) const ATTEMPT_STATES: [&str; 4] = ["Waiting", "Attempted", "Succeeded", "Failed"];

impl From<ExecutionEntry> for Attempt {
    fn from(entry: ExecutionEntry) -> Self {
        let (state, finished_at, ending) = match entry.state {
            ExecutionState::Waiting => ("Waiting", None, None),
            ExecutionState::Attempted => ("Attempted", None, None),
            ExecutionState::Finished {
                finished_at,
                outcome,
            } => {
                let state = match &outcome {
                    Outcome::Succeeded(_) => "Succeeded",
                    Outcome::Failed(_) => "Failed",
                };
                (state, Some(finished_at), Some(Ending::from(&outcome)))
            }
        };
        Self {
            execution_id: entry.key.execution_id,
            state,
            started_at: entry.started_at,
            finished_at,
            // The store has done so; once more costs little.
            request_spec: entry.request.redacted(),
            ending,
        }
    }
}

/// The life of one request, as it may be shown to whoever may see all tenants.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traced {
    correlation_id: CorrelationId,
    calls: Vec<Summary>,
    timers: Vec<TimerEntry>,
    steps: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    at: Timestamp,
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<EnvelopeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<EnvelopeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<Timestamp>,
}

impl From<Trace> for Traced {
    fn from(trace: Trace) -> Self {
        Self {
            correlation_id: trace.correlation_id,
            calls: trace.calls.iter().map(Summary::from).collect(),
            timers: trace.timers,
            steps: trace.steps.into_iter().map(Step::from).collect(),
            next_cursor: trace.next.map(|key| PageCursor::after_key(&key).0),
        }
    }
}

impl From<TraceStep> for Step {
    fn from(step: TraceStep) -> Self {
        Self {
            at: step.at,
            tenant_id: step.key.tenant_id,
            service_call_id: step.key.service_call_id,
            what: step.what,
            message_id: step.message_id,
            causation_id: step.causation_id,
            published_at: step.published_at,
        }
    }
}
