//! Views: the JSON of calls and traces, from which the OpenAPI document takes its schemas.
//!
//! A view never has a secret, whatever the store returns. The comments of its fields are the
//! document's descriptions.

use punctual_domain::service_call::{
    CallName, CallStatus, ErrorMeta, Headers, Method, Outcome, RequestBody, RequestSpec,
    ResponseMeta, ServiceCall, Tags, TargetUrl,
};
use punctual_domain::{CorrelationId, EnvelopeId, ServiceCallId, TenantId, TimerEntry, Timestamp};
use punctual_ports::{ExecutionEntry, ExecutionState, PageCursor};
use punctual_workflows::calls::{CallView, Trace, TraceStep};
use schemars::JsonSchema;
use serde::Serialize;

/// The answer to a submission: the same, byte for byte, each time.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AcceptedCall {
    pub(crate) service_call_id: ServiceCallId,
    pub(crate) tenant_id: TenantId,
    pub(crate) name: CallName,
    pub(crate) due_at: Timestamp,
    pub(crate) submitted_at: Timestamp,
    pub(crate) correlation_id: CorrelationId,
}

/// A call in a list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallSummary {
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

impl From<&ServiceCall> for CallSummary {
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
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallPage {
    pub(crate) items: Vec<CallSummary>,
    /// Present if there is another page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A call with its timer, its attempts and its outcome.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Call")]
pub(crate) struct FullCallView {
    #[serde(flatten)]
    summary: CallSummary,
    request_spec: RequestSpecView,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<TimerEntry>,
    execution_log: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeView>,
}

impl From<CallView> for FullCallView {
    fn from(view: CallView) -> Self {
        let outcome = match &view.call {
            ServiceCall::Finished(done) => Some(OutcomeView::from(done.outcome().clone())),
            _ => None,
        };
        Self {
            summary: CallSummary::from(&view.call),
            request_spec: RequestSpecView::from(&view.call.details().request),
            timer: view.timer,
            execution_log: view.attempts.into_iter().map(AttemptView::from).collect(),
            outcome,
        }
    }
}

/// A request without its secrets.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RequestSpecView {
    method: Method,
    url: TargetUrl,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    /// Only its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<RequestBody>,
}

impl From<&RequestSpec> for RequestSpecView {
    fn from(request: &RequestSpec) -> Self {
        let redacted = request.redacted();
        Self {
            method: redacted.method,
            url: redacted.url,
            headers: redacted.headers,
            body: redacted.body,
        }
    }
}

/// How a call ended.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Outcome")]
enum OutcomeView {
    ResponseMeta(ResponseMeta),
    ErrorMeta(ErrorMeta),
}

impl From<Outcome> for OutcomeView {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded(response) => Self::ResponseMeta(response),
            Outcome::Failed(error) => Self::ErrorMeta(error),
        }
    }
}

/// An attempt to make the request of a call.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Attempt")]
struct AttemptView {
    execution_id: EnvelopeId,
    state: AttemptState,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    request_spec: RequestSpecView,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_meta: Option<ResponseMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_meta: Option<ErrorMeta>,
}

#[derive(Serialize, JsonSchema)]
enum AttemptState {
    Waiting,
    Attempted,
    Succeeded,
    Failed,
}

impl From<ExecutionEntry> for AttemptView {
    fn from(entry: ExecutionEntry) -> Self {
        let mut view = Self {
            execution_id: entry.key.execution_id,
            state: AttemptState::Waiting,
            started_at: entry.started_at,
            finished_at: None,
            // The store holds it redacted; once more costs little.
            request_spec: RequestSpecView::from(&entry.request),
            response_meta: None,
            error_meta: None,
        };
        match entry.state {
            ExecutionState::Waiting => {}
            ExecutionState::Attempted => view.state = AttemptState::Attempted,
            ExecutionState::Finished {
                finished_at,
                outcome,
            } => {
                view.finished_at = Some(finished_at);
                match outcome {
                    Outcome::Succeeded(response) => {
                        view.state = AttemptState::Succeeded;
                        view.response_meta = Some(response);
                    }
                    Outcome::Failed(error) => {
                        view.state = AttemptState::Failed;
                        view.error_meta = Some(error);
                    }
                }
            }
        }
        view
    }
}

/// A trace: the life of one request, for holders of a token of all tenants.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Trace")]
pub struct TraceView {
    correlation_id: CorrelationId,
    calls: Vec<CallSummary>,
    timers: Vec<TimerEntry>,
    steps: Vec<TraceStepView>,
    /// Present if there is another page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A step of a trace: something that happened to a call or a timer.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceStep")]
struct TraceStepView {
    at: Timestamp,
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    /// The type of the message that reported it.
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<EnvelopeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<EnvelopeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<Timestamp>,
}

impl From<Trace> for TraceView {
    fn from(trace: Trace) -> Self {
        Self {
            correlation_id: trace.correlation_id,
            calls: trace.calls.iter().map(CallSummary::from).collect(),
            timers: trace.timers,
            steps: trace.steps.into_iter().map(TraceStepView::from).collect(),
            next_cursor: trace.next.map(|key| PageCursor::after_key(&key).0),
        }
    }
}

impl From<TraceStep> for TraceStepView {
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
