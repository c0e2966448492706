//! Timers on their own over HTTP.

use std::sync::Arc;

use axum::http::StatusCode;
use punctual_domain::service_call::FieldErrors;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerData, TimerKey, Timestamp};
use punctual_ports::{DeleteOutcome, PortError, SaveOutcome};
use punctual_workflows::TimerRequest;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::parse;
use crate::parts::TimersApi;
use crate::problem::{Kind, Problem};
use crate::request_context::{
    HandlerResult, RequestContext, json, no_content, step, with_location,
};
use crate::router::Api;
use crate::strict;

/// Maximum number of timers in one batch.
pub(crate) const MAX_BATCH: usize = 1_000;

/// An object whose values are still texts: data keeps every digit that it was given with.
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

/// A call's timer belongs to its call: without it, or with another due time, the call would be made late
/// or not at all.
async fn refuse_timer_of_call(api: &Api, key: &TimerKey) -> Result<(), Problem> {
    let Some(calls) = &api.parts.calls else {
        return Ok(());
    };
    let are_there = calls.read.are_there(vec![key.clone()]).await?;
    if !are_there.contains(&true) {
        return Ok(());
    }
    let TimerKey {
        tenant_id,
        service_call_id,
    } = key;
    Err(Problem::conflict(format!(
        "the timer belongs to a service call, and goes with it: see \
         /api/tenants/{tenant_id}/service-calls/{service_call_id}"
    )))
}

/// Which of these ids are of service calls, or were: nobody would be told of such a timer, also after
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
    let wish = read_wish(&mut context.errors, "", &fields, &["dueAt", "data"]);
    let (key, (due_at, data)) = context.checked(key.zip(wish))?;
    let of_calls = belong_to_calls(&api, vec![key.clone()]).await?;
    if of_calls.contains(&true) {
        refuse_timer_of_call(&api, &key).await?;
        return Err(Problem::conflict(
            "the id was that of a service call, which was deleted: choose another id for a timer",
        ));
    }
    let request = TimerRequest {
        key: key.clone(),
        due_at,
        correlation_id: Some(context.correlation_id),
        data,
    };
    let saved = timers.schedule.schedule(vec![request]).await?;
    let outcome = saved
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(no_answer()))?;
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
    let location = format!(
        "/api/tenants/{}/timers/{}",
        key.tenant_id, key.service_call_id
    );
    let view = ScheduledTimerView {
        tenant_id: key.tenant_id,
        service_call_id: key.service_call_id,
        due_at,
        correlation_id: context.correlation_id,
        outcome: name(outcome),
    };
    let response = json(status, &view)?;
    Ok(match status {
        StatusCode::CREATED => with_location(response, &location),
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
    let wishes = read_batch(&mut context.errors, &fields);
    let (tenant, wishes) = context.checked(tenant.zip(wishes))?;
    let key = |id: &ServiceCallId| TimerKey::new(tenant.clone(), *id);
    let keys = wishes.iter().map(|(id, _)| key(id)).collect();
    let of_calls = belong_to_calls(&api, keys).await?;
    let ids: Vec<ServiceCallId> = wishes.iter().map(|(id, _)| *id).collect();
    let batch = wishes
        .into_iter()
        .zip(&of_calls)
        .filter(|(_, is_of_call)| !**is_of_call)
        .map(|((id, (due_at, data)), _)| TimerRequest {
            key: key(&id),
            due_at,
            correlation_id: Some(context.correlation_id),
            data,
        })
        .collect();
    let mut saved = timers.schedule.schedule(batch).await?.into_iter();
    let results = ids
        .into_iter()
        .zip(of_calls)
        .map(|(service_call_id, is_of_call)| {
            let failed = |detail| ("Failed", Some(detail));
            let (outcome, detail) = if is_of_call {
                failed("its id is, or was, that of a service call: choose another one")
            } else {
                match saved.next().unwrap_or_else(|| Err(no_answer())) {
                    Ok(outcome) => (name(outcome), None),
                    Err(error) => {
                        tracing::warn!(%error, "a timer of a batch could not be stored");
                        failed("it could not be stored now: send it again")
                    }
                }
            };
            TimerResult {
                service_call_id,
                outcome,
                detail,
            }
        })
        .collect();
    json(StatusCode::OK, &TimerResults { results })
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
    let deleted = timers.schedule.cancel(vec![key]).await?;
    let outcome = deleted.into_iter().next();
    match outcome.unwrap_or_else(|| Err(no_answer()))? {
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

fn no_answer() -> PortError {
    PortError::new(
        punctual_ports::PortErrorKind::Unavailable,
        "schedule timers",
        "the store gave no answer",
    )
}

type Wish = (Timestamp, Option<TimerData>);

fn read_batch(errors: &mut FieldErrors, fields: &Fields) -> Option<Vec<(ServiceCallId, Wish)>> {
    refuse_unknown(errors, "", fields, &["timers"]);
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
    let mut wishes = Vec::with_capacity(list.len());
    for (number, item) in list.iter().enumerate() {
        let place = format!("/timers/{number}");
        let Ok(fields) = serde_json::from_str::<Fields>(item.get()) else {
            errors.add(place, "is not an object with each name once");
            continue;
        };
        let pointer = format!("{place}/serviceCallId");
        let id = read_text(errors, &pointer, field(&fields, "serviceCallId"))
            .and_then(|text| errors.check(&pointer, text.parse::<ServiceCallId>()));
        let known = ["serviceCallId", "dueAt", "data"];
        let wish = read_wish(errors, &place, &fields, &known);
        wishes.extend(id.zip(wish));
    }
    Some(wishes)
}

fn read_wish(
    errors: &mut FieldErrors,
    place: &str,
    fields: &Fields,
    known: &[&str],
) -> Option<Wish> {
    refuse_unknown(errors, place, fields, known);
    let pointer = format!("{place}/dueAt");
    let due_at = read_text(errors, &pointer, field(fields, "dueAt"))
        .and_then(|text| errors.check(&pointer, text.parse::<Timestamp>()));
    // Null is no data, as in messages.
    let given = field(fields, "data").filter(|data| data.get() != "null");
    let data = match given {
        None => None,
        Some(data) => {
            let data = TimerData::from_json(data.get());
            Some(errors.check(&format!("{place}/data"), data)?)
        }
    };
    Some((due_at?, data))
}

fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a RawValue> {
    fields.0.get(name).map(AsRef::as_ref)
}

fn read_text(errors: &mut FieldErrors, pointer: &str, value: Option<&RawValue>) -> Option<String> {
    let Some(value) = value.filter(|value| value.get() != "null") else {
        errors.add(pointer, "is missing");
        return None;
    };
    let text = serde_json::from_str::<String>(value.get());
    errors.check(pointer, text.map_err(|_| "has to be a text"))
}

fn refuse_unknown(errors: &mut FieldErrors, place: &str, fields: &Fields, known: &[&str]) {
    for name in fields
        .0
        .keys()
        .filter(|name| !known.contains(&name.as_str()))
    {
        let known = known.join(", ");
        let pointer = format!("{place}/{}", step(name));
        errors.add(pointer, format!("is unknown: {known} are known"));
    }
}
