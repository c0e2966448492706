//! The OpenAPI document, made from the table of routes and from the types of bodies and views.
//!
//! Which answers a route has, and when, stands in no type: that is written in `operations.rs`.

mod bodies;
pub(crate) mod operations;
mod schemas;

use serde_json::{Map, Value, json};

use crate::problem::{Kind, ProblemView};
use crate::routes::{Access, Route, routes};
use operations::content;
pub(crate) use schemas::Schemas;

/// The media type of problems.
const PROBLEM: &str = "application/problem+json";

const ABOUT: &str = "Schedules HTTP calls and timers, makes each call once, and reports its outcome.\n\n\
Every error is an `application/problem+json` (RFC 9457) with a `type` that programs can rely on, a `detail` \
that says what would be right, and the `correlationId` under which the log says more. For a 422, `errors` \
names every field that is wrong: a JSON pointer into the body, or `/path/…`, `/query/…` or `/header/…` for what \
is not in the body.\n\n\
`X-Correlation-Id` is taken from the request, or drawn, and always returned.\n\n\
Where tokens are set up, everything below `/api` needs one: `Authorization: Bearer …`. A token is good for one \
tenant, or for all. What belongs to another tenant answers exactly like what does not exist: 404. Health, metrics \
and this document need no token; nothing of a tenant is in them.\n\n\
Fields and query parameters that are not known are refused, so that a misspelt one is not silently ignored. \
A request whose line and headers are longer than 64 KiB is answered 431 by the server itself, without a body.";

/// The document.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes() {
        let path = paths
            .entry(route.template)
            .or_insert_with(|| json!({ "parameters": path_parameters(route) }));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    let parameters = schemas::parameters(&mut schemas);
    let responses = problems(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "service calls", "description": "HTTP requests that are made once, at their due time." },
            { "name": "timers", "description": "Timers on their own, where they have their own database." },
            { "name": "traces", "description": "The life of one request." },
            { "name": "status", "description": "How the process is." },
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the tenant in the path, or of all tenants. \
                                    Not needed where no tokens are set up.",
                },
            },
            "headers": {
                "X-Correlation-Id": {
                    "description": "Names the request through all that it caused.",
                    "required": true,
                    "schema": { "type": "string", "format": "uuid" },
                },
            },
            "parameters": parameters,
            "responses": responses,
            "schemas": schemas.into_definitions(),
        },
    })
}

/// The parameters of the path, as references.
fn path_parameters(route: &Route) -> Vec<Value> {
    let mut parameters: Vec<Value> = route
        .template
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        .map(reference_to_parameter)
        .collect();
    if route.access != Access::Open {
        parameters.push(reference_to_parameter("X-Correlation-Id"));
    }
    parameters
}

fn reference_to_parameter(name: &str) -> Value {
    json!({ "$ref": format!("#/components/parameters/{name}") })
}

/// An operation: what stands in the table, joined with what is written about the route.
fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut operation = (route.operation)(schemas);
    operation["tags"] = json!([route.tag]);
    if !route.query.is_empty() {
        let parameters = route.query.iter().copied().map(reference_to_parameter);
        operation["parameters"] = parameters.collect();
    }
    let mut kinds = vec![
        Kind::Malformed,
        Kind::MethodNotAllowed,
        Kind::Internal,
        Kind::Unavailable,
    ];
    if route.access != Access::Open {
        kinds.extend([Kind::Unauthorized, Kind::NotFound, Kind::Invalid]);
        operation["security"] = json!([{ "token": [] }, {}]);
    }
    if route.body {
        kinds.extend([Kind::TooLarge, Kind::UnsupportedMediaType, Kind::Timeout]);
    }
    for kind in kinds {
        let status = kind.status().as_u16().to_string();
        if operation["responses"].get(&status).is_none() {
            operation["responses"][status] =
                json!({ "$ref": format!("#/components/responses/{kind:?}") });
        }
    }
    operation
}

/// The responses of problems, one for each kind.
fn problems(schemas: &mut Schemas) -> Value {
    let schema = schemas.of_view::<ProblemView<'_>>();
    let mut responses = Map::new();
    for kind in Kind::ALL {
        let mut response = content(kind.title(), PROBLEM, &schema);
        response["content"][PROBLEM]["example"] = json!({
            "type": kind.type_uri(),
            "title": kind.title(),
            "status": kind.status().as_u16(),
            "detail": "what is wrong, and what would be right",
            "correlationId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e",
        });
        let schema = match kind {
            Kind::Unauthorized => Some(("WWW-Authenticate", json!({ "type": "string" }))),
            Kind::MethodNotAllowed => Some(("Allow", json!({ "type": "string" }))),
            Kind::Unavailable => Some((
                "Retry-After",
                json!({ "type": "integer", "minimum": 1, "description": "seconds" }),
            )),
            _ => None,
        };
        if let Some((header, schema)) = schema {
            response["headers"][header] = json!({ "schema": schema });
        }
        responses.insert(format!("{kind:?}"), response);
    }
    Value::Object(responses)
}
