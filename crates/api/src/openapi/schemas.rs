//! The shapes of what goes in and comes out. Their limits are the domain's own.

use punctual_domain::service_call::{
    CallName, CallStatus, ErrorKind, Headers, IdempotencyKey, Method, RequestBody, Tag, Tags,
    TargetUrl,
};
use punctual_domain::{TenantId, TimerData};
use punctual_workflows::calls::ReadCalls;
use serde_json::{Value, json};

use crate::problem::Kind;
use crate::{calls, timers, views};

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
/// The names of headers.
const HEADER_NAME: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";
/// The values of headers: printable ASCII and tabs, without blanks at either end.
const HEADER_VALUE: &str = r"^([!-~]([\t -~]*[!-~])?)?$";
/// Absolute, http or https, of what a URL may be written with, without a user and a fragment.
const URL: &str = r"^https?://[^\u0000-\u0020\u007f-\uffff\x22#<>@\\^`{|}]+$";

fn named(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

/// An instant as it is given.
fn instant_in(description: &str) -> Value {
    json!({
        "type": "string",
        "format": "date-time",
        "description": format!("{description} RFC 3339, from 1970 to 9998; rounded up to a millisecond."),
    })
}

/// An instant as it is shown.
fn instant() -> Value {
    json!({
        "type": "string",
        "format": "date-time",
        "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
    })
}

fn text(longest: usize, pattern: &str, description: &str) -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": longest,
        "pattern": pattern,
        "description": description,
    })
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

fn tenant() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": TenantId::MAX_LEN,
        "pattern": "^[A-Za-z0-9_-]+$",
    })
}

fn tag() -> Value {
    text(Tag::LONGEST, PRINTABLE, "A word by which calls are found.")
}

fn key() -> Value {
    let what = "By what a repetition is recognised, within its tenant.";
    text(IdempotencyKey::LONGEST, "^[ -~]*$", what)
}

/// All parameters, by name.
pub(super) fn parameters() -> Value {
    let path = |name: &str, schema: Value| json!({ "name": name, "in": "path", "required": true, "schema": schema });
    let query = |name: &str, schema: Value, what: &str| json!({ "name": name, "in": "query", "required": false, "schema": schema, "description": what });
    let header = |name: &str, schema: Value, what: &str| json!({ "name": name, "in": "header", "required": false, "schema": schema, "description": what });
    let limit = json!({
        "type": "integer",
        "minimum": 1,
        "maximum": ReadCalls::MAX_PAGE,
        "default": calls::DEFAULT_LIMIT,
    });
    let cursor = json!({ "type": "string", "minLength": 1, "maxLength": calls::LONGEST_CURSOR });
    let tags = json!({ "type": "array", "items": tag(), "maxItems": Tags::MOST });
    json!({
        "tenantId": path("tenantId", tenant()),
        "serviceCallId": path("serviceCallId", uuid()),
        "correlationId": path("correlationId", uuid()),
        "status": query("status", named("CallStatus"), "Only calls in this state."),
        "tag": query("tag", tags, "Only calls with this tag; given several times, with all of them."),
        "from": query("from", instant_in("Only calls due then or later."), "Encode a + as %2B."),
        "to": query("to", instant_in("Only calls due before."), "Encode a + as %2B."),
        "limit": query("limit", limit, "At most so many."),
        "cursor": query("cursor", cursor, "`nextCursor` of the page before."),
        "X-Correlation-Id": header("X-Correlation-Id", uuid(), "Names the request; drawn if it is absent."),
        "Idempotency-Key": header("Idempotency-Key", key(), "The same as `idempotencyKey`; if both are given they are equal."),
    })
}

/// All schemas, by name.
pub(super) fn schemas() -> Value {
    let mut schemas = json!({});
    for group in [of_requests(), of_calls(), of_timers(), of_the_rest()] {
        if let (Some(all), Value::Object(group)) = (schemas.as_object_mut(), group) {
            all.extend(group);
        }
    }
    schemas
}

fn of_requests() -> Value {
    let methods = Method::ALL.map(Method::as_str);
    let headers = json!({
        "type": "object",
        "maxProperties": Headers::MOST,
        "propertyNames": { "pattern": HEADER_NAME },
        "additionalProperties": { "type": "string", "pattern": HEADER_VALUE },
        "description": format!(
            "At most {} bytes in names and values together. Those that belong to the connection, and those \
             that are set for every call (Host, Content-Length, Idempotency-Key, X-Correlation-Id, traceparent, …), \
             are refused.",
            Headers::LONGEST
        ),
    });
    let body = json!({
        "type": "string",
        "maxLength": RequestBody::LONGEST,
        "description": format!("At most {} bytes.", RequestBody::LONGEST),
    });
    let url = json!({
        "type": "string",
        "format": "uri",
        "minLength": 1,
        "maxLength": TargetUrl::LONGEST,
        "pattern": URL,
        "description": "Absolute, http or https, without a user and a fragment, in ASCII.",
    });
    let tags = json!({ "type": "array", "items": tag(), "maxItems": Tags::MOST, "description": "Repeated ones count once." });
    let shown_body = json!({ "type": "string", "description": "Only its beginning." });
    json!({
        "RequestSpec": object(&["method", "url"], &json!({
            "method": { "type": "string", "enum": methods },
            "url": url,
            "headers": or_null(headers),
            "body": or_null(body),
        })),
        "ShownRequestSpec": object(&["method", "url"], &json!({
            "method": { "type": "string", "enum": methods },
            "url": { "type": "string", "maxLength": TargetUrl::LONGEST },
            "headers": { "type": "object", "additionalProperties": { "type": "string" } },
            "body": shown_body,
        })),
        "Submission": object(&["name", "dueAt", "requestSpec"], &json!({
            "name": text(CallName::LONGEST, PRINTABLE, "What people call it."),
            "dueAt": instant_in("When the request is to be made; in the past means now."),
            "requestSpec": named("RequestSpec"),
            "tags": or_null(tags),
            "serviceCallId": or_null(uuid()),
            "idempotencyKey": or_null(key()),
        })),
        "AcceptedCall": object(
            &["serviceCallId", "tenantId", "name", "dueAt", "submittedAt", "correlationId"],
            &json!({
                "serviceCallId": uuid(),
                "tenantId": tenant(),
                "name": { "type": "string" },
                "dueAt": instant(),
                "submittedAt": instant(),
                "correlationId": uuid(),
            }),
        ),
    })
}

fn of_calls() -> Value {
    let statuses = CallStatus::ALL.map(CallStatus::as_str);
    let summary = json!({
        "tenantId": tenant(),
        "serviceCallId": uuid(),
        "name": { "type": "string" },
        "status": named("CallStatus"),
        "tags": { "type": "array", "items": { "type": "string" } },
        "submittedAt": instant(),
        "dueAt": instant(),
        "startedAt": instant(),
        "finishedAt": instant(),
        "correlationId": uuid(),
    });
    let always = [
        "tenantId",
        "serviceCallId",
        "name",
        "status",
        "tags",
        "submittedAt",
        "dueAt",
        "correlationId",
    ];
    let mut whole = summary.clone();
    whole["requestSpec"] = named("ShownRequestSpec");
    whole["timer"] = named("Timer");
    whole["executionLog"] = json!({ "type": "array", "items": named("Attempt") });
    whole["outcome"] = named("Outcome");
    let always_whole = [&always[..], &["requestSpec", "executionLog"]].concat();
    json!({
        "CallStatus": { "type": "string", "enum": statuses },
        "CallSummary": object(&always, &summary),
        "CallPage": object(&["items"], &json!({
            "items": { "type": "array", "items": named("CallSummary") },
            "nextCursor": { "type": "string", "description": "There if there is more." },
        })),
        "Call": object(&always_whole, &whole),
        "Attempt": object(&["executionId", "state", "startedAt", "requestSpec"], &json!({
            "executionId": uuid(),
            "state": { "type": "string", "enum": views::ATTEMPT_STATES },
            "startedAt": instant(),
            "finishedAt": instant(),
            "requestSpec": named("ShownRequestSpec"),
            "responseMeta": named("ResponseMeta"),
            "errorMeta": named("ErrorMeta"),
        })),
        "Outcome": {
            "oneOf": [
                object(&["responseMeta"], &json!({ "responseMeta": named("ResponseMeta") })),
                object(&["errorMeta"], &json!({ "errorMeta": named("ErrorMeta") })),
            ],
        },
        "ResponseMeta": object(&["status", "latencyMs"], &json!({
            "status": { "type": "integer" },
            "headers": { "type": "object", "additionalProperties": { "type": "string" } },
            "bodySnippet": { "type": "string" },
            "truncated": { "type": "boolean", "description": "Whether the body is longer than that." },
            "latencyMs": { "type": "integer", "minimum": 0 },
        })),
        "ErrorMeta": object(&["kind", "latencyMs"], &json!({
            "kind": { "type": "string", "enum": ErrorKind::ALL.map(ErrorKind::as_str) },
            "message": { "type": "string" },
            "details": named("ResponseMeta"),
            "latencyMs": { "type": "integer", "minimum": 0 },
        })),
    })
}

fn of_timers() -> Value {
    let due_at = instant_in("When it is to fire; in the past means now.");
    let data = json!({
        "description": format!("Any JSON, at most {} bytes; null is none.", TimerData::MAX_LEN),
    });
    json!({
        "Timer": object(
            &["tenantId", "serviceCallId", "correlationId", "dueAt", "registeredAt", "state"],
            &json!({
                "tenantId": tenant(),
                "serviceCallId": uuid(),
                "correlationId": uuid(),
                "dueAt": instant(),
                "registeredAt": instant(),
                "reachedAt": instant(),
                "state": { "type": "string", "enum": ["Scheduled", "Reached"] },
                "data": data,
                "attempts": {
                    "description": "How many firings have failed; left out if none has.",
                    "type": "integer",
                    "minimum": 1,
                },
                "lastError": { "description": "Why the last one failed.", "type": "string" },
            }),
        ),
        "TimerWish": object(&["dueAt"], &json!({ "dueAt": due_at, "data": data })),
        "TimerBatch": object(&["timers"], &json!({
            "timers": {
                "type": "array",
                "minItems": 1,
                "maxItems": timers::MOST,
                "items": object(
                    &["serviceCallId", "dueAt"],
                    &json!({ "serviceCallId": uuid(), "dueAt": due_at, "data": data }),
                ),
            },
        })),
        "ScheduledTimer": object(
            &["tenantId", "serviceCallId", "dueAt", "correlationId", "outcome"],
            &json!({
                "tenantId": tenant(),
                "serviceCallId": uuid(),
                "dueAt": instant(),
                "correlationId": uuid(),
                "outcome": { "type": "string", "enum": ["Created", "Rescheduled"] },
            }),
        ),
        "TimerResults": object(&["results"], &json!({
            "results": {
                "type": "array",
                "items": object(&["serviceCallId", "outcome"], &json!({
                    "serviceCallId": uuid(),
                    "outcome": { "type": "string", "enum": timers::OUTCOMES },
                    "detail": { "type": "string", "description": "Why it failed." },
                })),
            },
        })),
    })
}

fn of_the_rest() -> Value {
    let step = object(
        &["at", "tenantId", "serviceCallId", "what"],
        &json!({
            "at": instant(),
            "tenantId": tenant(),
            "serviceCallId": uuid(),
            "what": { "type": "string", "description": "The type of the message that told it." },
            "messageId": uuid(),
            "causationId": uuid(),
            "publishedAt": instant(),
        }),
    );
    let check = object(
        &["name", "ok"],
        &json!({
            "name": { "type": "string" },
            "ok": { "type": "boolean" },
            "problem": { "type": "string" },
        }),
    );
    json!({
        "Trace": object(&["correlationId", "calls", "timers", "steps"], &json!({
            "correlationId": uuid(),
            "calls": { "type": "array", "items": named("CallSummary") },
            "timers": { "type": "array", "items": named("Timer") },
            "steps": { "type": "array", "items": step },
            "nextCursor": { "type": "string", "description": "There if there is more." },
        })),
        "Health": object(&["status"], &json!({ "status": { "const": "ok" } })),
        "Readiness": object(&["status", "checks"], &json!({
            "status": { "type": "string", "enum": ["ready", "notReady"] },
            "checks": { "type": "array", "items": check },
        })),
        "Problem": object(&["type", "title", "status", "detail", "correlationId"], &json!({
            "type": { "type": "string", "enum": Kind::ALL.map(Kind::type_uri) },
            "title": { "type": "string" },
            "status": { "type": "integer", "enum": Kind::ALL.map(|kind| kind.status().as_u16()) },
            "detail": { "type": "string" },
            "correlationId": uuid(),
            "errors": {
                "type": "array",
                "description": "For a 422: every field that is wrong.",
                "items": object(&["pointer", "detail"], &json!({
                    "pointer": { "type": "string", "description": "A JSON pointer into the body, or /path/…, /query/… or /header/…" },
                    "detail": { "type": "string" },
                })),
            },
        })),
    })
}
