//! The HTTP request of an attempt.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method as HyperMethod, Request, Uri};
use punctual_domain::service_call::{ErrorKind, Method, RequestBody};
use punctual_ports::{HttpAttempt, HttpFailure};

use crate::failure::failure;

const USER_AGENT: &str = concat!("punctual/", env!("CARGO_PKG_VERSION"));

/// The complete request of an attempt.
///
/// The body is one piece, so that the connection writes it with its length.
pub(crate) fn request(attempt: &HttpAttempt) -> Result<Request<Full<Bytes>>, HttpFailure> {
    let spec = &attempt.request;
    let body = spec.body.as_ref().map(RequestBody::as_str);
    let uri = Uri::builder()
        .path_and_query(spec.url.path_and_query().as_ref())
        .build()
        .map_err(|_| cannot_be_made("its path"))?;
    let mut request = Request::new(Full::new(Bytes::from(body.unwrap_or_default().to_owned())));
    *request.method_mut() = method(spec.method);
    *request.uri_mut() = uri;
    *request.headers_mut() = headers(attempt)?;
    Ok(request)
}

const fn method(method: Method) -> HyperMethod {
    match method {
        Method::Get => HyperMethod::GET,
        Method::Post => HyperMethod::POST,
        Method::Put => HyperMethod::PUT,
        Method::Patch => HyperMethod::PATCH,
        Method::Delete => HyperMethod::DELETE,
    }
}

fn headers(attempt: &HttpAttempt) -> Result<HeaderMap, HttpFailure> {
    let spec = &attempt.request;
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, value(&spec.url.authority())?);
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    for (name, given) in spec.headers.iter() {
        let name: HeaderName = name.parse().map_err(|_| cannot_be_made("a header"))?;
        headers.insert(name, value(given)?);
    }
    // After the headers of the caller, to override them.
    let ours = [
        ("idempotency-key", attempt.execution_id.to_string()),
        ("x-correlation-id", attempt.correlation_id.to_string()),
        ("traceparent", traceparent(attempt)),
    ];
    for (name, given) in ours {
        headers.insert(HeaderName::from_static(name), value(&given)?);
    }
    if let Some(length) = content_length(attempt) {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

/// Targets expect a length even without a body, if the method usually has one.
fn content_length(attempt: &HttpAttempt) -> Option<usize> {
    match (&attempt.request.body, attempt.request.method) {
        (Some(body), _) => Some(body.as_str().len()),
        (None, Method::Post | Method::Put | Method::Patch) => Some(0),
        (None, Method::Get | Method::Delete) => None,
    }
}

/// W3C Trace Context: the trace is the correlation, the parent is this attempt. Neither may be all zeros.
fn traceparent(attempt: &HttpAttempt) -> String {
    let execution = attempt.execution_id.as_uuid();
    let (upper, lower) = execution.as_u64_pair();
    let trace = match attempt.correlation_id.as_uuid().as_u128() {
        0 => execution.as_u128().max(1),
        trace => trace,
    };
    // The lower half is the random one.
    let parent = match lower {
        0 => upper.max(1),
        lower => lower,
    };
    format!("00-{trace:032x}-{parent:016x}-01")
}

fn value(text: &str) -> Result<HeaderValue, HttpFailure> {
    HeaderValue::from_str(text).map_err(|_| cannot_be_made("the value of a header"))
}

/// Without the value, which may be secret.
fn cannot_be_made(part: &str) -> HttpFailure {
    let message = format!("{part} cannot be written as HTTP: use printable ASCII");
    failure(ErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use punctual_domain::service_call::{Headers, RequestSpec};
    use punctual_domain::{CorrelationId, EnvelopeId, TenantId, TimerKey};
    use uuid::Uuid;

    use super::*;

    fn traceparent_of(correlation: u128, execution: u128) -> String {
        traceparent(&HttpAttempt {
            execution_id: EnvelopeId::from_uuid(Uuid::from_u128(execution)),
            key: TimerKey::named(TenantId::default(), "a"),
            correlation_id: CorrelationId::from_uuid(Uuid::from_u128(correlation)),
            request: RequestSpec {
                method: Method::Get,
                url: "http://a".parse().unwrap(),
                headers: Headers::default(),
                body: None,
            },
        })
    }

    #[test]
    fn a_traceparent_is_valid_whatever_the_ids() {
        let (upper, lower) = ("00000000000000aa", "00000000000000bb");
        let execution = (0xaa << 64) | 0xbb;
        let correlation = "0000000000000000000000000000000c";
        for (said, made) in [
            (
                format!("00-{correlation}-{lower}-01"),
                traceparent_of(0xc, execution),
            ),
            (
                format!("00-{upper}{lower}-{lower}-01"),
                traceparent_of(0, execution),
            ),
            (
                format!("00-{correlation}-{upper}-01"),
                traceparent_of(0xc, 0xaa << 64),
            ),
            (format!("00-{:032x}-{:016x}-01", 1, 1), traceparent_of(0, 0)),
        ] {
            assert_eq!(made, said);
        }
    }
}
