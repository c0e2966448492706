//! Operations: what each route does, what it takes, and how it answers if all is right.

use punctual_domain::TimerEntry;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::bodies::{Submission, TimerBatch, TimerRequest};
use super::schemas::Schemas;
use super::{PROBLEM, reference_to_parameter};
use crate::ApiSettings;
use crate::instances::InstancesView;
use crate::problem::ProblemView;
use crate::status::{Health, ReadinessView};
use crate::timers::{ScheduledTimerView, TimerResults};
use crate::views::{AcceptedCall, CallPage, FullCallView, TraceView};

fn operation(id: &str, summary: &str, responses: &Value) -> Value {
    json!({ "operationId": id, "summary": summary, "responses": responses })
}

fn no_content(description: &str) -> Value {
    json!({
        "description": description,
        "headers": { "X-Correlation-Id": { "$ref": "#/components/headers/X-Correlation-Id" } },
    })
}

pub(super) fn content(description: &str, media_type: &str, schema: &Value) -> Value {
    let mut response = no_content(description);
    response["content"] = json!({ media_type: { "schema": schema } });
    response
}

fn answer<View: JsonSchema>(schemas: &mut Schemas, description: &str) -> Value {
    content(description, "application/json", &schemas.of_view::<View>())
}

fn conflict(schemas: &mut Schemas, description: &str) -> Value {
    let schema = schemas.of_view::<ProblemView<'_>>();
    content(description, PROBLEM, &schema)
}

fn with_location(mut answer: Value, what: &str) -> Value {
    answer["headers"]["Location"] = json!({
        "description": format!("The address of the {what}."),
        "required": true,
        "schema": { "type": "string", "format": "uri-reference" },
    });
    answer
}

fn body<Body: JsonSchema>(schemas: &mut Schemas, example: &Value) -> Value {
    let schema = schemas.of_input::<Body>();
    json!({
        "required": true,
        "description": format!("At most {} bytes of JSON.", ApiSettings::BODY),
        "content": { "application/json": { "schema": schema, "example": example } },
    })
}

fn link(operation: &str) -> Value {
    json!({
        "operationId": operation,
        "parameters": {
            "tenantId": "$request.path.tenantId",
            "serviceCallId": "$response.body#/serviceCallId",
        },
    })
}

pub(crate) fn submit(schemas: &mut Schemas) -> Value {
    let example = json!({
        "name": "remind Ada of her appointment",
        "dueAt": "2026-12-24T18:00:00Z",
        "requestSpec": {
            "method": "POST",
            "url": "https://example.com/reminders",
            "headers": { "Content-Type": "application/json" },
            "body": "{\"to\":\"ada\"}",
        },
        "tags": ["reminder"],
        "idempotencyKey": "appointment-4711",
    });
    let accepted = answer::<AcceptedCall>(
        schemas,
        "The call is stored and will be made once. For a repetition, the same answer as the first \
         time, byte for byte, and nothing new.",
    );
    let mut accepted = with_location(accepted, "call");
    accepted["links"] = json!({ "show": link("showCall"), "delete": link("deleteCall") });
    json!({
        "operationId": "submitCall",
        "summary": "Submit a service call",
        "description": "A `dueAt` in the past means now. A submission with the same idempotency key, or the \
                        same `serviceCallId`, and the same content is a repetition; with another content \
                        it is a conflict. After the call is deleted, or removed with age, both are a conflict \
                        for as long as it is remembered.",
        "parameters": [reference_to_parameter("Idempotency-Key")],
        "requestBody": body::<Submission>(schemas, &example),
        "responses": {
            "202": accepted,
            "409": conflict(schemas, "The id or the key was used for another call, or for one that is deleted, or the id for a timer on its own; the detail says which."),
        },
    })
}

pub(crate) fn list(schemas: &mut Schemas) -> Value {
    json!({
        "operationId": "listCalls",
        "summary": "List the service calls of a tenant",
        "description": "The latest due first. A call that exists from the first page to the last is on \
                        exactly one of them, whatever happens to others meanwhile.",
        "responses": { "200": answer::<CallPage>(schemas, "A page.") },
    })
}

pub(crate) fn show(schemas: &mut Schemas) -> Value {
    json!({
        "operationId": "showCall",
        "summary": "Show a service call with its timer, its attempt and its outcome",
        "description": "Secrets are redacted: the values of headers and query parameters whose names speak of \
                        tokens, keys, cookies, passwords and the like, and all but the beginning of the body.",
        "responses": { "200": answer::<FullCallView>(schemas, "The call.") },
    })
}

pub(crate) fn delete(schemas: &mut Schemas) -> Value {
    let responses = json!({
        "204": no_content("The call is deleted, and its request will not be made."),
        "409": conflict(schemas, "The call is Running, or has finished: it was left alone."),
    });
    operation(
        "deleteCall",
        "Delete a service call before its due time",
        &responses,
    )
}

pub(crate) fn schedule_all(schemas: &mut Schemas) -> Value {
    let example = json!({
        "timers": [
            { "serviceCallId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e", "dueAt": "2026-12-24T18:00:00Z" },
            { "serviceCallId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8f", "dueAt": "2026-12-24T18:00:01Z", "data": { "order": 7 } },
        ],
    });
    json!({
        "operationId": "scheduleTimers",
        "summary": "Schedule timers on their own, or move them",
        "description": "All or none are accepted as far as their form goes; then each has its own result, in \
                        their order. Where timers belong to service calls, this is 404.",
        "requestBody": body::<TimerBatch>(schemas, &example),
        "responses": { "200": answer::<TimerResults>(schemas, "The result of each.") },
    })
}

pub(crate) fn schedule(schemas: &mut Schemas) -> Value {
    let example = json!({ "dueAt": "2026-12-24T18:00:00Z", "data": { "order": 7 } });
    let created = answer::<ScheduledTimerView>(schemas, "A new timer is stored and will fire.");
    json!({
        "operationId": "scheduleTimer",
        "summary": "Schedule a timer on its own, or move it",
        "description": "Where timers belong to service calls, this is 404.",
        "requestBody": body::<TimerRequest>(schemas, &example),
        "responses": {
            "200": answer::<ScheduledTimerView>(schemas, "The timer existed, and has a new schedule."),
            "201": with_location(created, "timer"),
            "409": conflict(schemas, "The timer has fired, or its id is or was that of a service call: another one needs another id."),
        },
    })
}

pub(crate) fn show_timer(schemas: &mut Schemas) -> Value {
    let responses = json!({ "200": answer::<TimerEntry>(schemas, "The timer.") });
    operation("showTimer", "Show a timer on its own", &responses)
}

pub(crate) fn delete_timer(schemas: &mut Schemas) -> Value {
    let responses = json!({
        "204": no_content("The timer is deleted, and will not fire."),
        "409": conflict(schemas, "The timer has fired, or is firing, or belongs to a service call: it was left alone."),
    });
    operation(
        "deleteTimer",
        "Delete a timer on its own before it fires",
        &responses,
    )
}

pub(crate) fn trace(schemas: &mut Schemas) -> Value {
    json!({
        "operationId": "showTrace",
        "summary": "Show the life of one request, in order",
        "description": "Across tenants, so it needs a token of all tenants where tokens are set up. A page has up to \
                        `limit` calls and timers by tenant and id, each call together with its timer, and all \
                        that happened to them, by time.",
        "responses": { "200": answer::<TraceView>(schemas, "What is known of the request.") },
    })
}

pub(crate) fn instances(schemas: &mut Schemas) -> Value {
    json!({
        "operationId": "listInstances",
        "summary": "List the processes that share the work",
        "description": "Those that have said within fifteen seconds that they live, at most a thousand. On a \
                        database file that is this one alone. It needs a token of all tenants where tokens are \
                        set up.",
        "responses": { "200": answer::<InstancesView>(schemas, "The instances that live.") },
    })
}

pub(crate) fn health(schemas: &mut Schemas) -> Value {
    let responses = json!({ "200": answer::<Health>(schemas, "It does.") });
    operation("health", "Whether the process lives", &responses)
}

pub(crate) fn ready(schemas: &mut Schemas) -> Value {
    let responses = json!({
        "200": answer::<ReadinessView<'_>>(schemas, "It can."),
        "503": answer::<ReadinessView<'_>>(schemas, "It cannot; the checks say why."),
    });
    operation("ready", "Whether the process can do its work", &responses)
}

pub(crate) fn metrics(_: &mut Schemas) -> Value {
    let description = "Prometheus' text format. No label has an id or a tenant.";
    let responses =
        json!({ "200": content(description, "text/plain", &json!({ "type": "string" })) });
    operation("metrics", "The metrics, for Prometheus", &responses)
}

pub(crate) fn openapi(_: &mut Schemas) -> Value {
    let responses =
        json!({ "200": content("OpenAPI 3.1.", "application/json", &json!({ "type": "object" })) });
    operation("openapi", "This document", &responses)
}
