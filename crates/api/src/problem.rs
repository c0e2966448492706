//! Problems: errors as `application/problem+json` (RFC 9457).
//!
//! A detail says what would be right. It never has the words of a store or a handler: those go to the
//! log, under the same correlation id.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use punctual_domain::CorrelationId;
use punctual_domain::service_call::{FieldError, FieldErrors};
use punctual_ports::{PortError, PortErrorKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::request_context::response;

/// The kinds of problems, each with its status, the end of its `type` and its title.
macro_rules! kinds {
    ($($kind:ident, $status:ident, $slug:literal, $title:literal;)*) => {
        /// The kind of a problem; each is one `type`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// All kinds, for the document and the tests.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$kind,)*];

            pub(crate) const fn status(self) -> StatusCode {
                match self {
                    $(Self::$kind => StatusCode::$status,)*
                }
            }

            /// The `type` by which programs recognise it.
            pub(crate) const fn type_uri(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!("urn:punctual:problem:", $slug),)*
                }
            }

            pub(crate) const fn title(self) -> &'static str {
                match self {
                    $(Self::$kind => $title,)*
                }
            }
        }
    };
}

kinds! {
    Malformed, BAD_REQUEST, "malformed", "The request cannot be read";
    Unauthorized, UNAUTHORIZED, "unauthorized", "A valid token is needed";
    NotFound, NOT_FOUND, "not-found", "There is no such thing";
    MethodNotAllowed, METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not known here";
    Timeout, REQUEST_TIMEOUT, "timeout", "The request did not arrive in time";
    Conflict, CONFLICT, "conflict", "It contradicts what is there";
    TooLarge, PAYLOAD_TOO_LARGE, "too-large", "The body is too long";
    UnsupportedMediaType, UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The body is not JSON";
    Invalid, UNPROCESSABLE_ENTITY, "invalid", "Some fields are wrong";
    Internal, INTERNAL_SERVER_ERROR, "internal", "Something broke";
    Unavailable, SERVICE_UNAVAILABLE, "unavailable", "It cannot be done now";
}

/// An error, before it is a response.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    header: Option<Box<(header::HeaderName, HeaderValue)>>,
    closes: bool,
    /// The error of the store, for the log.
    cause: Option<Box<PortError>>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            header: None,
            closes: false,
            cause: None,
        }
    }

    /// The problem of what is absent and of what is another tenant's alike.
    pub(crate) fn not_found() -> Self {
        Self::new(
            Kind::NotFound,
            "there is nothing under this address that you may see",
        )
    }

    pub(crate) fn invalid(errors: FieldErrors) -> Self {
        let errors: Vec<FieldError> = errors.into();
        let detail = match errors.len() {
            1 => "one field is wrong: see errors".to_owned(),
            n => format!("{n} fields are wrong: see errors"),
        };
        Self {
            errors,
            ..Self::new(Kind::Invalid, detail)
        }
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            Kind::Internal,
            "the log says more under this correlation id",
        )
    }

    /// A problem that may be over after some seconds.
    pub(crate) fn unavailable(detail: impl Into<String>, retry_after: u32) -> Self {
        Self::new(Kind::Unavailable, detail)
            .with_header(header::RETRY_AFTER, HeaderValue::from(retry_after))
    }

    pub(crate) fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Closes the connection after the response: nothing else that the client sends is read.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// The error of the store, if it is the cause.
    pub(crate) fn cause(&self) -> Option<&PortError> {
        self.cause.as_deref()
    }

    pub(crate) fn into_response(self, correlation_id: CorrelationId) -> Response<Body> {
        let view = ProblemView {
            r#type: self.kind.type_uri(),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            correlation_id,
            errors: self.errors,
        };
        let body = serde_json::to_vec(&view).unwrap_or_default();
        let mut response = response(self.kind.status(), "application/problem+json", body);
        let headers = response.headers_mut();
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(header) = self.header {
            headers.insert(header.0, header.1);
        }
        response
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        let operation = error.operation();
        let mut problem = match error.kind() {
            PortErrorKind::Busy | PortErrorKind::Overloaded => Self::unavailable(
                format!("failed to {operation}: too much is going on, try again"),
                1,
            ),
            PortErrorKind::StorageFull => Self::unavailable(
                format!("failed to {operation}: there is no room left to store anything"),
                60,
            ),
            PortErrorKind::Rejected => {
                let mut errors = FieldErrors::default();
                errors.add("", error.reason());
                Self::invalid(errors)
            }
            PortErrorKind::Broken => Self::internal(),
            _ => Self::unavailable(
                format!("failed to {operation}: the store does not answer now, try again"),
                5,
            ),
        };
        if problem.kind != Kind::Invalid {
            problem.cause = Some(Box::new(error));
        }
        problem
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemView<'a> {
    #[schemars(extend("enum" = Kind::ALL.iter().map(|kind| kind.type_uri()).collect::<Vec<_>>()))]
    r#type: &'static str,
    title: &'static str,
    #[schemars(extend("enum" = Kind::ALL.iter().map(|kind| kind.status().as_u16()).collect::<Vec<_>>()))]
    status: u16,
    detail: &'a str,
    correlation_id: CorrelationId,
    /// For a 422: every field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_port_has_its_status_and_says_when_to_retry() {
        for (kind, status, again) in [
            (PortErrorKind::Unavailable, 503, Some("5")),
            (PortErrorKind::Busy, 503, Some("1")),
            (PortErrorKind::Overloaded, 503, Some("1")),
            (PortErrorKind::StorageFull, 503, Some("60")),
            (PortErrorKind::Stopped, 503, Some("5")),
            (PortErrorKind::Broken, 500, None),
            (PortErrorKind::Rejected, 422, None),
        ] {
            let error = PortError::new(kind, "submit a call", "/secret/path is full");
            let problem = Problem::from(error);
            assert_eq!(problem.kind.status().as_u16(), status, "{kind:?}");
            let id = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e".parse().unwrap();
            if kind != PortErrorKind::Rejected {
                assert!(!problem.detail.contains("/secret"), "{}", problem.detail);
            }
            let response = problem.into_response(id);
            let given = response.headers().get(header::RETRY_AFTER);
            assert_eq!(given.map(|v| v.to_str().unwrap()), again, "{kind:?}");
        }
    }

    #[test]
    fn each_kind_has_a_type_of_its_own() {
        for (number, kind) in Kind::ALL.iter().enumerate() {
            for other in &Kind::ALL[..number] {
                assert_ne!(kind.type_uri(), other.type_uri());
                assert_ne!(kind.status(), other.status());
            }
        }
    }
}
