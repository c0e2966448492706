//! Request bodies, as the document describes them. Handlers read them field by field, so that every
//! mistake is reported at once; the comments here are the document's descriptions.
#![expect(
    dead_code,
    reason = "these types have a schema, and no value is made of them"
)]

use punctual_domain::service_call::{
    CallName, Headers, IdempotencyKey, Method, RequestBody, Tags, TargetUrl,
};
use punctual_domain::{ServiceCallId, TimerData, Timestamp};
use schemars::JsonSchema;

use crate::timers::MAX_BATCH;

/// A service call to be made.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Submission {
    /// What people call it.
    name: CallName,
    /// When the request is to be made; in the past means now. RFC 3339, from 1970 to 9998; rounded up
    /// to a millisecond.
    due_at: Timestamp,
    request_spec: RequestSpec,
    /// Words by which calls are found. Repeated ones count once.
    tags: Option<Tags>,
    service_call_id: Option<ServiceCallId>,
    /// By what a repetition is recognised, within its tenant.
    idempotency_key: Option<IdempotencyKey>,
}

/// The HTTP request of a call.
#[derive(JsonSchema)]
struct RequestSpec {
    method: Method,
    url: TargetUrl,
    headers: Option<Headers>,
    body: Option<RequestBody>,
}

/// A timer to be scheduled or moved.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct TimerRequest {
    /// When it is to fire; in the past means now. RFC 3339, from 1970 to 9998; rounded up to a
    /// millisecond.
    due_at: Timestamp,
    data: Option<TimerData>,
}

/// Timers to be scheduled or moved together.
#[derive(JsonSchema)]
pub(super) struct TimerBatch {
    #[schemars(length(min = 1, max = MAX_BATCH))]
    timers: Vec<BatchedTimer>,
}

/// A timer of a batch.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct BatchedTimer {
    service_call_id: ServiceCallId,
    #[schemars(flatten)]
    request: TimerRequest,
}
