//! Timers on their own over HTTP.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::StatusCode;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerData, TimerKey, Timestamp};
use punctual_ports::{DeleteOutcome, PortError, PortErrorKind, SaveOutcome};
use punctual_workflows::TimerRequest;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::parse;
use crate::parts::TimersApi;
use crate::problem::{Kind, Problem};
use crate::request_context::{
    HandlerResult, RequestContext, json, no_content, refuse_unknown, with_location,
};
use crate::router::Api;
use crate::{calls, strict};

/// Maximum number of timers in one batch.
pub(crate) const MAX_BATCH: usize = 1_000;

/// An object whose values are not parsed yet: data keeps every digit that it was given with.
type Fields = strict::Fields<Box<RawValue>>;

fn timers(api: &Api) -> Result<&TimersApi, Problem> {
    api.parts.timers.as_ref().ok_or_else(|| {
        Problem::new(
            Kind::NotFound,
            "there are no timers on their own here: in this database timers belong to service calls, \
             so submit a service call",
        )
    })
}

/// Refuses the timer of a call: without it, or with another due time, the call would be made late or not
/// at all.
async fn refuse_timer_of_call(api: &Api, key: &TimerKey) -> Result<(), Problem> {
    let Some(calls) = &api.parts.calls else {
        return Ok(());
    };
    let are_there = calls.read.are_there(vec![key.clone()]).await?;
    if !are_there.contains(&true) {
        return Ok(());
    }
    let address = calls::address(key);
    Err(Problem::conflict(format!(
        "the timer belongs to a service call, and goes with it: see {address}"
    )))
}

/// The address of a timer.
pub(crate) fn address(key: &TimerKey) -> String {
    let (tenant, id) = (&key.tenant_id, key.service_call_id);
    format!("/api/tenants/{tenant}/timers/{id}")
}

/// Which of these ids are of service calls, or were: such a timer would have no receiver, also after
/// its call was deleted.
async fn belong_to_calls(api: &Api, keys: Vec<TimerKey>) -> Result<Vec<bool>, Problem> {
    match &api.parts.calls {
        None => Ok(vec![false; keys.len()]),
        Some(calls) => Ok(calls.read.were_submitted(keys).await?),
    }
}

/// The outcomes of a schedule, by name.
const OUTCOMES: [&str; 4] = ["Created", "Rescheduled", "AlreadyReached", "Failed"];

/// A timer that was scheduled or moved.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ScheduledTimer")]
pub(crate) struct ScheduledTimerView {
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    due_at: Timestamp,
    correlation_id: CorrelationId,
    #[schemars(extend("enum" = OUTCOMES[..2]))]
    outcome: &'static str,
}

pub(crate) async fn schedule(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let timers = timers(&api)?;
    let fields: Fields = parse(&context.body)?;
    let key = context.key();
    let request = read_request(&mut context, key, "", &fields, &["dueAt", "data"]);
    let request = context.checked(request)?;
    let (key, due_at) = (request.key.clone(), request.due_at);
    if belong_to_calls(&api, vec![key.clone()])
        .await?
        .contains(&true)
    {
        refuse_timer_of_call(&api, &key).await?;
        return Err(Problem::conflict(
            "the id was that of a service call, which was deleted: choose another id for a timer",
        ));
    }
    let outcome = only(timers.schedule.schedule(vec![request]).await?)?;
    let status = match outcome {
        SaveOutcome::Created => StatusCode::CREATED,
        SaveOutcome::Rescheduled => StatusCode::OK,
        SaveOutcome::AlreadyReached => {
            return Err(Problem::conflict(
                "the timer has fired: choose another id for another timer",
            ));
        }
        SaveOutcome::NoParent => {
            return Err(Problem::conflict(
                "there is no service call that the timer would belong to",
            ));
        }
        _ => return Err(Problem::internal()),
    };
    let address = address(&key);
    let view = ScheduledTimerView {
        tenant_id: key.tenant_id,
        service_call_id: key.service_call_id,
        due_at,
        correlation_id: context.correlation_id,
        outcome: name(outcome),
    };
    let response = json(status, &view)?;
    Ok(match status {
        StatusCode::CREATED => with_location(response, &address),
        _ => response,
    })
}

/// The results of a batch, one for each timer in its order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TimerResults {
    results: Vec<TimerResult>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TimerResult {
    service_call_id: ServiceCallId,
    #[schemars(extend("enum" = OUTCOMES))]
    outcome: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

pub(crate) async fn schedule_all(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let timers = timers(&api)?;
    let fields: Fields = parse(&context.body)?;
    let tenant = context.path::<TenantId>("tenantId");
    let requests = read_batch(&mut context, tenant.as_ref(), &fields);
    let requests = context.checked(requests)?;
    let keys: Vec<TimerKey> = requests.iter().map(|it| it.key.clone()).collect();
    let of_calls = belong_to_calls(&api, keys.clone()).await?;
    let batch = requests.into_iter().zip(&of_calls);
    let batch = batch.filter(|(_, is_of_call)| !**is_of_call);
    let batch = batch.map(|(request, _)| request).collect();
    let saved = timers.schedule.schedule(batch).await?;
    warn_of_failures(&saved);
    let mut saved = saved.into_iter();
    let results = keys
        .into_iter()
        .zip(of_calls)
        .map(|(key, is_of_call)| {
            let failed = |detail| ("Failed", Some(detail));
            let (outcome, detail) = if is_of_call {
                failed("its id is, or was, that of a service call: choose another one")
            } else {
                match saved.next().unwrap_or_else(|| Err(no_answer())) {
                    Ok(outcome) => (name(outcome), None),
                    Err(_) => failed("it could not be stored now: send it again"),
                }
            };
            TimerResult {
                service_call_id: key.service_call_id,
                outcome,
                detail,
            }
        })
        .collect();
    json(StatusCode::OK, &TimerResults { results })
}

/// One line for a batch: what keeps one of them from being stored mostly keeps all.
fn warn_of_failures(saved: &[Result<SaveOutcome, PortError>]) {
    let mut errors = saved.iter().filter_map(|one| one.as_ref().err());
    if let Some(first) = errors.next() {
        let failed = 1 + errors.count();
        let of = saved.len();
        tracing::warn!(failed, of, error = %first, "timers of a batch could not be stored");
    }
}

pub(crate) async fn show(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let timers = timers(&api)?;
    let key = context.checked_key()?;
    match timers.timers.find(key).await? {
        Some(timer) => json(StatusCode::OK, &timer),
        None => Err(Problem::not_found()),
    }
}

pub(crate) async fn delete(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let timers = timers(&api)?;
    let key = context.checked_key()?;
    refuse_timer_of_call(&api, &key).await?;
    match only(timers.schedule.cancel(vec![key]).await?)? {
        DeleteOutcome::Deleted => Ok(no_content()),
        DeleteOutcome::NotFound => Err(Problem::not_found()),
        DeleteOutcome::Firing => Err(Problem::conflict("the timer is firing at this moment")),
        DeleteOutcome::AlreadyReached => Err(Problem::conflict("the timer has fired already")),
        _ => Err(Problem::internal()),
    }
}

const fn name(outcome: SaveOutcome) -> &'static str {
    match outcome {
        SaveOutcome::Created => "Created",
        SaveOutcome::Rescheduled => "Rescheduled",
        SaveOutcome::AlreadyReached => "AlreadyReached",
        _ => "Failed",
    }
}

/// The result of a batch of one.
fn only<T>(results: Vec<Result<T, PortError>>) -> Result<T, PortError> {
    let first = results.into_iter().next();
    first.unwrap_or_else(|| Err(no_answer()))
}

fn no_answer() -> PortError {
    PortError::new(
        PortErrorKind::Unavailable,
        "schedule timers",
        "the store gave no answer",
    )
}

fn read_batch(
    context: &mut RequestContext,
    tenant: Option<&TenantId>,
    fields: &Fields,
) -> Option<Vec<TimerRequest>> {
    let errors = &mut context.errors;
    refuse_unknown(errors, "", fields.0.keys(), &["timers"]);
    let Some(list) = field(fields, "timers") else {
        errors.add("/timers", "is missing");
        return None;
    };
    let Ok(list) = serde_json::from_str::<Vec<Box<RawValue>>>(list.get()) else {
        errors.add("/timers", "is not a list");
        return None;
    };
    if list.is_empty() || list.len() > MAX_BATCH {
        let given = list.len();
        errors.add(
            "/timers",
            format!("has {given} timers: give 1 to {MAX_BATCH}"),
        );
        return None;
    }
    let mut requests = Vec::with_capacity(list.len());
    for (number, item) in list.iter().enumerate() {
        let parent = format!("/timers/{number}");
        let Ok(fields) = serde_json::from_str::<Fields>(item.get()) else {
            let error = "is not an object with each name once";
            context.errors.add(parent, error);
            continue;
        };
        let id = read_text::<ServiceCallId>(context, &parent, &fields, "serviceCallId");
        let key = tenant
            .zip(id)
            .map(|(tenant, id)| TimerKey::new(tenant.clone(), id));
        let known = ["serviceCallId", "dueAt", "data"];
        requests.extend(read_request(context, key, &parent, &fields, &known));
    }
    Some(requests)
}

fn read_request(
    context: &mut RequestContext,
    key: Option<TimerKey>,
    parent: &str,
    fields: &Fields,
    known: &[&str],
) -> Option<TimerRequest> {
    refuse_unknown(&mut context.errors, parent, fields.0.keys(), known);
    let due_at = read_text::<Timestamp>(context, parent, fields, "dueAt");
    let data = match field(fields, "data") {
        None => None,
        Some(data) => {
            let data = TimerData::from_json(data.get());
            Some(context.errors.check(&format!("{parent}/data"), data)?)
        }
    };
    Some(TimerRequest {
        key: key?,
        due_at: due_at?,
        correlation_id: Some(context.correlation_id),
        data,
    })
}

/// A field, if it is given. Null is none, as in messages.
fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a RawValue> {
    let value = fields.0.get(name)?;
    (value.get() != "null").then_some(value)
}

fn read_text<T: FromStr<Err: Display>>(
    context: &mut RequestContext,
    parent: &str,
    fields: &Fields,
    name: &str,
) -> Option<T> {
    let (errors, pointer) = (&mut context.errors, format!("{parent}/{name}"));
    let Some(value) = field(fields, name) else {
        errors.add(pointer, "is missing");
        return None;
    };
    let text = serde_json::from_str::<String>(value.get());
    let text = errors.check(&pointer, text.map_err(|_| "has to be a text"))?;
    errors.check(&pointer, text.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_which_many_fail_is_one_line() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt().with_ansi(false);
        let lines = lines.with_writer(Arc::new(log.reopen().unwrap()));
        let full = |_| {
            let kind = PortErrorKind::StorageFull;
            Err(PortError::new(kind, "schedule timers", "no room"))
        };
        let mut saved: Vec<_> = (0..7).map(full).collect();
        saved.push(Ok(SaveOutcome::Created));
        tracing::subscriber::with_default(lines.finish(), || {
            warn_of_failures(&saved[7..]);
            warn_of_failures(&saved);
        });
        let logged = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(logged.lines().count(), 1, "{logged}");
        assert!(logged.contains("failed=7 of=8 "), "{logged}");
        assert!(logged.contains("no room"), "{logged}");
    }
}
