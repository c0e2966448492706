//! What is written about each route: what it does, what it takes, how it answers if all is right.

use axum::http::Method;
use serde_json::{Value, json};

use super::correlation_header;
use crate::ApiSettings;
use crate::routes::Route;

/// What is written about a route. A test fails if nothing is.
pub(super) fn written(route: &Route) -> Value {
    let place = route
        .template
        .trim_start_matches("/api/tenants/{tenantId}")
        .trim_start_matches('/');
    match (&route.method, place) {
        (&Method::POST, "service-calls") => submit(),
        (&Method::GET, "service-calls") => list(),
        (&Method::GET, "service-calls/{serviceCallId}") => show(),
        (&Method::DELETE, "service-calls/{serviceCallId}") => delete(),
        (&Method::POST, "timers:batch") => schedule_all(),
        (&Method::PUT, "timers/{serviceCallId}") => schedule(),
        (&Method::GET, "timers/{serviceCallId}") => show_timer(),
        (&Method::DELETE, "timers/{serviceCallId}") => delete_timer(),
        (&Method::GET, "api/correlations/{correlationId}") => trace(),
        (&Method::GET, "healthz") => health(),
        (&Method::GET, "readyz") => ready(),
        (&Method::GET, "metrics") => metrics(),
        (&Method::GET, "openapi.json") => openapi(),
        _ => json!({ "responses": {} }),
    }
}

fn answer(description: &str, schema: &str) -> Value {
    json!({
        "description": description,
        "headers": { "X-Correlation-Id": correlation_header() },
        "content": {
            "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } },
        },
    })
}

fn no_content(description: &str) -> Value {
    json!({
        "description": description,
        "headers": { "X-Correlation-Id": correlation_header() },
    })
}

fn with_location(mut answer: Value, what: &str) -> Value {
    answer["headers"]["Location"] = json!({
        "description": format!("The address of the {what}."),
        "required": true,
        "schema": { "type": "string", "format": "uri-reference" },
    });
    answer
}

fn conflict(description: &str) -> Value {
    json!({
        "description": description,
        "headers": { "X-Correlation-Id": correlation_header() },
        "content": {
            "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } },
        },
    })
}

fn body(schema: &str, example: &Value) -> Value {
    json!({
        "required": true,
        "description": format!("At most {} bytes of JSON.", ApiSettings::BODY),
        "content": {
            "application/json": {
                "schema": { "$ref": format!("#/components/schemas/{schema}") },
                "example": example,
            },
        },
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

fn submit() -> Value {
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
    let mut accepted = with_location(
        answer(
            "The call is stored and will be made once. For a repetition, the same answer as the \
             first time, byte for byte, and nothing new.",
            "AcceptedCall",
        ),
        "call",
    );
    accepted["links"] = json!({ "show": link("showCall"), "delete": link("deleteCall") });
    json!({
        "operationId": "submitCall",
        "tags": ["service calls"],
        "summary": "Submit a service call",
        "description": "A `dueAt` in the past means now. A submission with the same idempotency key, or the \
                        same `serviceCallId`, and the same content is a repetition; with another content \
                        it is a conflict. After the call is gone, deleted or removed with age, both are a conflict for as long as it is remembered.",
        "parameters": [{ "$ref": "#/components/parameters/Idempotency-Key" }],
        "requestBody": body("Submission", &example),
        "responses": {
            "202": accepted,
            "409": conflict("The id or the key was used for another call, or for one that is gone; the detail says which."),
        },
    })
}

fn list() -> Value {
    let parameters: Vec<Value> = ["status", "tag", "from", "to", "limit", "cursor"]
        .iter()
        .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }))
        .collect();
    json!({
        "operationId": "listCalls",
        "tags": ["service calls"],
        "summary": "List the service calls of a tenant",
        "description": "The latest due first. A call that is there from the first page to the last is on \
                        exactly one of them, whatever happens to others meanwhile.",
        "parameters": parameters,
        "responses": { "200": answer("A page.", "CallPage") },
    })
}

fn show() -> Value {
    json!({
        "operationId": "showCall",
        "tags": ["service calls"],
        "summary": "Show a service call with its timer, its attempt and its outcome",
        "description": "Secrets are not shown: the values of headers and query parameters whose names speak of \
                        tokens, keys, cookies, passwords and the like are blotted out, and only the beginning \
                        of the body is there.",
        "responses": { "200": answer("The call.", "Call") },
    })
}

fn delete() -> Value {
    json!({
        "operationId": "deleteCall",
        "tags": ["service calls"],
        "summary": "Delete a service call before its due time",
        "responses": {
            "204": no_content("The call is gone, and its request will not be made."),
            "409": conflict("The call is Running, or has finished: it was left alone."),
        },
    })
}

fn schedule_all() -> Value {
    let example = json!({
        "timers": [
            { "serviceCallId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e", "dueAt": "2026-12-24T18:00:00Z" },
            { "serviceCallId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8f", "dueAt": "2026-12-24T18:00:01Z", "data": { "order": 7 } },
        ],
    });
    json!({
        "operationId": "scheduleTimers",
        "tags": ["timers"],
        "summary": "Schedule timers on their own, or move them",
        "description": "All or none are taken as far as their form goes; then each has its own result, in \
                        their order. Where timers belong to service calls, this is 404.",
        "requestBody": body("TimerBatch", &example),
        "responses": { "200": answer("What became of each.", "TimerResults") },
    })
}

fn schedule() -> Value {
    let example = json!({ "dueAt": "2026-12-24T18:00:00Z", "data": { "order": 7 } });
    json!({
        "operationId": "scheduleTimer",
        "tags": ["timers"],
        "summary": "Schedule a timer on its own, or move it",
        "description": "Where timers belong to service calls, this is 404.",
        "requestBody": body("TimerWish", &example),
        "responses": {
            "200": answer("The timer was there, and has a new schedule.", "ScheduledTimer"),
            "201": with_location(answer("A new timer is stored and will fire.", "ScheduledTimer"), "timer"),
            "409": conflict("The timer has fired, or its id is or was that of a service call: another one needs another id."),
        },
    })
}

fn show_timer() -> Value {
    json!({
        "operationId": "showTimer",
        "tags": ["timers"],
        "summary": "Show a timer on its own",
        "responses": { "200": answer("The timer.", "Timer") },
    })
}

fn delete_timer() -> Value {
    json!({
        "operationId": "deleteTimer",
        "tags": ["timers"],
        "summary": "Delete a timer on its own before it fires",
        "responses": {
            "204": no_content("The timer is gone, and will not fire."),
            "409": conflict("The timer has fired, or is firing, or belongs to a service call: it was left alone."),
        },
    })
}

fn trace() -> Value {
    let parameters = ["limit", "cursor"]
        .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }));
    json!({
        "operationId": "showTrace",
        "tags": ["traces"],
        "summary": "Show the life of one request, in order",
        "description": "Across tenants, so it needs a token of all tenants where tokens are set up. A page has up to \
                        `limit` calls and timers by tenant and id, each call together with its timer, and all \
                        that happened to them, by time.",
        "parameters": parameters,
        "responses": { "200": answer("What is known of the request.", "Trace") },
    })
}

fn health() -> Value {
    json!({
        "operationId": "health",
        "tags": ["status"],
        "summary": "Whether the process lives",
        "responses": { "200": answer("It does.", "Health") },
    })
}

fn ready() -> Value {
    json!({
        "operationId": "ready",
        "tags": ["status"],
        "summary": "Whether the process can do its work",
        "responses": {
            "200": answer("It can.", "Readiness"),
            "503": answer("It cannot; the checks say why.", "Readiness"),
        },
    })
}

fn metrics() -> Value {
    json!({
        "operationId": "metrics",
        "tags": ["status"],
        "summary": "The metrics, for Prometheus",
        "responses": {
            "200": {
                "description": "Prometheus' text format. No label has an id or a tenant.",
                "headers": { "X-Correlation-Id": correlation_header() },
                "content": { "text/plain": { "schema": { "type": "string" } } },
            },
        },
    })
}

fn openapi() -> Value {
    json!({
        "operationId": "openapi",
        "tags": ["status"],
        "summary": "This document",
        "responses": {
            "200": {
                "description": "OpenAPI 3.1.",
                "headers": { "X-Correlation-Id": correlation_header() },
                "content": { "application/json": { "schema": { "type": "object" } } },
            },
        },
    })
}
