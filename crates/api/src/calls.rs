//! Service calls over HTTP.

use std::sync::Arc;

use axum::http::StatusCode;
use punctual_domain::service_call::{
    CallStatus, IdempotencyKey, Submission, Tag, Tags, UnknownFields,
};
use punctual_domain::{TenantId, TimerKey, Timestamp};
use punctual_ports::{CallPageQuery, ConflictField, PageCursor, SubmitOutcome};
use punctual_workflows::calls::{DeleteCallOutcome, ReadCalls};
use serde_json::Value;

use crate::body::parse;
use crate::parts::CallsApi;
use crate::problem::{Kind, Problem};
use crate::request_context::{HandlerResult, RequestContext, json, no_content, with_location};
use crate::router::Api;
use crate::strict::Strict;
use crate::timers;
use crate::views::{AcceptedCall, CallPage, CallSummary, FullCallView};

/// The number of calls on a page, unless the client sets one.
pub(crate) const DEFAULT_LIMIT: usize = 50;
/// Maximum number of characters of a cursor.
pub(crate) const MAX_CURSOR: usize = 200;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

fn calls(api: &Api) -> Result<&CallsApi, Problem> {
    api.parts.calls.as_ref().ok_or_else(|| {
        Problem::new(
            Kind::NotFound,
            "this process takes no service calls: ask one that runs the module orchestration, or api alone on its database",
        )
    })
}

pub(crate) async fn submit(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let calls = calls(&api)?;
    let Strict(body) = parse(&context.body)?;
    let tenant = context.path::<TenantId>("tenantId");
    let key = header_key(&mut context, &body);
    let read = Submission::read(
        tenant.clone().unwrap_or_default(),
        &body,
        UnknownFields::Refused,
    );
    let submission = match read {
        Ok(submission) => tenant.map(|_| submission),
        Err(errors) => {
            context.add_all(&errors);
            None
        }
    };
    let mut submission = context.checked(submission)?;
    submission.idempotency_key = submission.idempotency_key.or(key);
    let (tenant, name) = (submission.tenant_id.clone(), submission.name.clone());
    let due_at = submission.due_at;
    if let Some(id) = submission.service_call_id {
        refuse_id_of_timer(&api, TimerKey::new(tenant.clone(), id)).await?;
    }
    let outcome = calls
        .submit
        .submit(submission, Some(context.correlation_id))
        .await?;
    let receipt = match outcome {
        SubmitOutcome::Accepted(receipt) => receipt,
        SubmitOutcome::Repeated(receipt) => {
            let key = TimerKey::new(tenant.clone(), receipt.service_call_id);
            if !calls.read.are_there(vec![key]).await?.contains(&true) {
                return Err(Problem::conflict(format!(
                    "the same was submitted before as service call {}, which was deleted since, or has finished \
                     so long ago that it was removed: give a new key or id for a new call",
                    receipt.service_call_id
                )));
            }
            receipt
        }
        SubmitOutcome::Conflict { field, by } => {
            return Err(Problem::conflict(match field {
                ConflictField::Id => format!(
                    "the id {by} was used for another service call: leave it out, or give a new one"
                ),
                ConflictField::Key => format!(
                    "the idempotency key was used for service call {by}, which differs from this one: \
                     give a new key for a new call"
                ),
            }));
        }
        _ => return Err(Problem::internal()),
    };
    let key = TimerKey::new(tenant.clone(), receipt.service_call_id);
    let accepted = AcceptedCall {
        service_call_id: receipt.service_call_id,
        tenant_id: tenant,
        name,
        due_at,
        submitted_at: receipt.submitted_at,
        correlation_id: receipt.correlation_id,
    };
    let response = json(StatusCode::ACCEPTED, &accepted)?;
    Ok(with_location(response, &address(&key)))
}

/// The address of a call.
pub(crate) fn address(key: &TimerKey) -> String {
    let (tenant, id) = (&key.tenant_id, key.service_call_id);
    format!("/api/tenants/{tenant}/service-calls/{id}")
}

/// A call has a timer with its own id. One that was scheduled without a call would be moved to the
/// call's due time, and its owner would not hear of it.
async fn refuse_id_of_timer(api: &Api, key: TimerKey) -> Result<(), Problem> {
    let Some(timers) = &api.parts.timers else {
        return Ok(());
    };
    if timers.timers.find(key.clone()).await?.is_none() {
        return Ok(());
    }
    let was_submitted = calls(api)?.read.were_submitted(vec![key.clone()]).await?;
    if was_submitted.contains(&true) {
        return Ok(());
    }
    let address = timers::address(&key);
    Err(Problem::conflict(format!(
        "serviceCallId is the id of a timer that belongs to no service call, see {address}: \
         leave it out, or give a new one"
    )))
}

/// The idempotency key of the header. If the body has one too, both have to be the same.
fn header_key(context: &mut RequestContext, body: &Value) -> Option<IdempotencyKey> {
    const POINTER: &str = "/header/Idempotency-Key";
    let mut given = context.headers.get_all(IDEMPOTENCY_KEY).iter();
    let (first, second) = (given.next()?, given.next());
    if second.is_some() {
        context.errors.add(POINTER, "is given twice: give it once");
        return None;
    }
    let text = first.to_str().unwrap_or("\u{fffd}").to_owned();
    let key = context.errors.check(POINTER, IdempotencyKey::new(text))?;
    match body.get("idempotencyKey").and_then(Value::as_str) {
        Some(other) if other != key.as_str() => {
            context.errors.add(
                "/idempotencyKey",
                "is another than in the header Idempotency-Key: give one of them, or the same",
            );
            None
        }
        _ => Some(key),
    }
}

pub(crate) async fn list(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let calls = calls(&api)?;
    let query = page_query(&mut context, &calls.read);
    let query = context.checked(query)?;
    let page = calls.read.page(query).await?;
    let page = CallPage {
        items: page.calls.iter().map(CallSummary::from).collect(),
        next_cursor: page.next.map(|PageCursor(cursor)| cursor),
    };
    json(StatusCode::OK, &page)
}

fn page_query(context: &mut RequestContext, calls: &ReadCalls) -> Option<CallPageQuery> {
    let tenant = context.path::<TenantId>("tenantId");
    let status = context.query("status", str::parse::<CallStatus>);
    let (from, to) = (
        context.query("from", read_instant),
        context.query("to", read_instant),
    );
    let limit = context.query("limit", read_limit);
    let after = context.query("cursor", |text| {
        let cursor = PageCursor(text.to_owned());
        let checked = calls.check_cursor(&cursor);
        checked
            .map(|()| cursor)
            .map_err(|error| error.reason().to_owned())
    });
    let tags = read_tags(context);
    Some(CallPageQuery {
        tenant_id: tenant?,
        status,
        tags,
        from,
        to,
        limit: limit.unwrap_or(DEFAULT_LIMIT),
        after,
    })
}

fn read_instant(text: &str) -> Result<Timestamp, String> {
    text.parse::<Timestamp>().map_err(|error| {
        // A + of a zone that is not encoded arrives as a blank.
        let hint = if text.contains(' ') {
            "; a + has to be written as %2B"
        } else {
            ""
        };
        format!("{error}{hint}")
    })
}

pub(crate) fn read_limit(text: &str) -> Result<usize, String> {
    let most = ReadCalls::MAX_PAGE;
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<usize>() {
        Ok(limit) if digits && (1..=most).contains(&limit) => Ok(limit),
        _ => Err(format!("is not a number from 1 to {most}")),
    }
}

fn read_tags(context: &mut RequestContext) -> Vec<Tag> {
    let mut tags = Vec::new();
    for (_, text) in context.query.iter().filter(|(name, _)| name == "tag") {
        tags.extend(context.errors.check("/query/tag", Tag::new(text.as_str())));
    }
    match Tags::new(tags) {
        Ok(tags) => tags.iter().cloned().collect(),
        Err(error) => {
            context.errors.add("/query/tag", error);
            Vec::new()
        }
    }
}

pub(crate) async fn show(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let calls = calls(&api)?;
    let key = context.checked_key()?;
    match calls.read.find(key).await? {
        Some(view) => json(StatusCode::OK, &FullCallView::from(view)),
        None => Err(Problem::not_found()),
    }
}

pub(crate) async fn delete(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let calls = calls(&api)?;
    let key = context.checked_key()?;
    // Without an id of its own the deletion belongs to the request that submitted the call.
    let outcome = calls
        .submit
        .delete(key, context.given_correlation_id)
        .await?;
    match outcome {
        DeleteCallOutcome::Deleted => Ok(no_content()),
        DeleteCallOutcome::NotFound => Err(Problem::not_found()),
        DeleteCallOutcome::TooLate(status) => Err(Problem::conflict(format!(
            "the service call is {status}: only one that is Scheduled can be deleted"
        ))),
        _ => Err(Problem::internal()),
    }
}
