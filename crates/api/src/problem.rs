//! What goes wrong, as `application/problem+json` (RFC 9457).
//!
//! A detail says what would be right. It never has what a store or a handler said in its own words:
//! that goes to the log, under the same correlation id.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use punctual_domain::CorrelationId;
use punctual_domain::service_call::{FieldError, FieldErrors};
use punctual_ports::{PortError, PortErrorKind};
use serde::Serialize;

/// The kinds of problems; each is one `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Malformed,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    Timeout,
    Conflict,
    TooLarge,
    UnsupportedMediaType,
    Invalid,
    Internal,
    Unavailable,
}

impl Kind {
    /// All of them, for the document and the tests.
    pub(crate) const ALL: [Self; 11] = [
        Self::Malformed,
        Self::Unauthorized,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::Conflict,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::Invalid,
        Self::Internal,
        Self::Unavailable,
    ];

    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What programs recognise it by.
    pub(crate) const fn type_uri(self) -> &'static str {
        match self {
            Self::Malformed => "urn:punctual:problem:malformed",
            Self::Unauthorized => "urn:punctual:problem:unauthorized",
            Self::NotFound => "urn:punctual:problem:not-found",
            Self::MethodNotAllowed => "urn:punctual:problem:method-not-allowed",
            Self::Timeout => "urn:punctual:problem:timeout",
            Self::Conflict => "urn:punctual:problem:conflict",
            Self::TooLarge => "urn:punctual:problem:too-large",
            Self::UnsupportedMediaType => "urn:punctual:problem:unsupported-media-type",
            Self::Invalid => "urn:punctual:problem:invalid",
            Self::Internal => "urn:punctual:problem:internal",
            Self::Unavailable => "urn:punctual:problem:unavailable",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Malformed => "The request cannot be read",
            Self::Unauthorized => "A valid token is needed",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "The method is not known here",
            Self::Timeout => "The request did not arrive in time",
            Self::Conflict => "It contradicts what is there",
            Self::TooLarge => "The body is too long",
            Self::UnsupportedMediaType => "The body is not JSON",
            Self::Invalid => "Some fields are wrong",
            Self::Internal => "Something broke",
            Self::Unavailable => "It cannot be done now",
        }
    }
}

/// Something that went wrong, before it is an answer.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    header: Option<Box<(header::HeaderName, HeaderValue)>>,
    closes: bool,
    /// What the store said, for the log.
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

    /// For what is absent and for what is another tenant's: nobody can tell one from the other.
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

    /// Not now, but after so many seconds.
    pub(crate) fn unavailable(detail: impl Into<String>, retry_after: u32) -> Self {
        Self::new(Kind::Unavailable, detail)
            .with_header(header::RETRY_AFTER, HeaderValue::from(retry_after))
    }

    pub(crate) fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Whatever else the client sends on this connection is not to be read.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// What the store said, where it is the store's fault.
    pub(crate) fn cause(&self) -> Option<&PortError> {
        self.cause.as_deref()
    }

    pub(crate) fn into_response(self, correlation_id: CorrelationId) -> Response<Body> {
        let shown = Shown {
            r#type: self.kind.type_uri(),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            correlation_id,
            errors: self
                .errors
                .iter()
                .map(|error| ShownError {
                    pointer: &error.pointer,
                    detail: &error.detail,
                })
                .collect(),
        };
        let body = serde_json::to_vec(&shown).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.kind.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(header) = self.header {
            headers.insert(header.0, header.1);
        }
        response
    }
}

impl From<FieldErrors> for Problem {
    fn from(errors: FieldErrors) -> Self {
        Self::invalid(errors)
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    correlation_id: CorrelationId,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ShownError<'a>>,
}

#[derive(Serialize)]
struct ShownError<'a> {
    pointer: &'a str,
    detail: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_port_has_its_status_and_says_when_to_come_again() {
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
