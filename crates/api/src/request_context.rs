//! Request context: a request on its way to its handler, with the errors found so far, and the
//! responses that handlers return.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use punctual_domain::service_call::FieldErrors;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerKey};
use serde::Serialize;

use crate::problem::Problem;
use crate::serve::Connection;

/// The response of a handler, or why there is none.
pub(crate) type HandlerResult = Result<Response<Body>, Problem>;

/// The request context: what a handler knows of its request.
pub(crate) struct RequestContext {
    /// The parameters of the path, decoded.
    pub(crate) path: Vec<(String, String)>,
    /// The query's parameters, decoded, in their order.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    /// The connection that it came on, if it is served.
    pub(crate) connection: Option<Connection>,
    pub(crate) body: Bytes,
    /// The request's correlation id, given or drawn.
    pub(crate) correlation_id: CorrelationId,
    /// The same, if it was given.
    pub(crate) given_correlation_id: Option<CorrelationId>,
    /// The errors found so far. Pointers begin with `/path`, `/query` or `/header`; those
    /// into the body are plain.
    pub(crate) errors: FieldErrors,
}

impl RequestContext {
    /// A parameter of the path.
    pub(crate) fn path<T: FromStr<Err: Display>>(&mut self, name: &str) -> Option<T> {
        let text = path_value(&self.path, name);
        self.errors
            .check(&format!("/path/{name}"), text.parse::<T>())
    }

    /// The call or timer that the path names.
    pub(crate) fn key(&mut self) -> Option<TimerKey> {
        let tenant = self.path::<TenantId>("tenantId");
        let id = self.path::<ServiceCallId>("serviceCallId");
        Some(TimerKey::new(tenant?, id?))
    }

    /// The call or timer that the path names, if nothing is wrong with the request.
    pub(crate) fn checked_key(&mut self) -> Result<TimerKey, Problem> {
        let key = self.key();
        self.checked(key)
    }

    /// A parameter of the query that may be given once.
    pub(crate) fn query<T, E: Display>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let pointer = format!("/query/{name}");
        let mut given = self.query.iter().filter(|(n, _)| n == name);
        let (_, text) = given.next()?;
        if given.next().is_some() {
            self.errors.add(pointer, "is given twice: give it once");
            return None;
        }
        self.errors.check(&pointer, read(text))
    }

    /// The value, if no error was found.
    pub(crate) fn checked<T>(&mut self, value: Option<T>) -> Result<T, Problem> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(Problem::invalid(std::mem::take(&mut self.errors))),
        }
    }

    /// Adds errors in the body.
    pub(crate) fn add_all(&mut self, errors: &FieldErrors) {
        for error in errors {
            self.errors.add(error.pointer.clone(), &error.detail);
        }
    }
}

pub(crate) fn path_value<'a>(path: &'a [(String, String)], name: &str) -> &'a str {
    let found = path.iter().find(|(n, _)| n == name);
    found.map_or("", |(_, value)| value.as_str())
}

/// Adds an error for each name that is not known.
pub(crate) fn refuse_unknown<'a>(
    errors: &mut FieldErrors,
    parent: &str,
    names: impl Iterator<Item = &'a String>,
    known: &[&str],
) {
    for name in names.filter(|name| !known.contains(&name.as_str())) {
        let hint = match known {
            [] => "there are none here".to_owned(),
            known => format!("{} are known", known.join(", ")),
        };
        let pointer = format!("{parent}/{}", step(name));
        errors.add(pointer, format!("is unknown: {hint}"));
    }
}

/// A name from outside as a step of a pointer: short, printable and escaped.
pub(crate) fn step(name: &str) -> String {
    let short: String = name.chars().take(48).flat_map(char::escape_debug).collect();
    short.replace('~', "~0").replace('/', "~1")
}

/// A response with a body.
pub(crate) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// A response with a body in JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    let body = serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "failed to write a response as JSON");
        Problem::internal()
    })?;
    Ok(response(status, "application/json", body))
}

/// The same response with the address of what was created.
pub(crate) fn with_location(mut response: Response<Body>, location: &str) -> Response<Body> {
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A response without a body.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
