//! Mapping of errors to the kinds of failure.
//!
//! Errors of libraries are classified and never printed: their text may contain parts of the request or the
//! response.

use std::error::Error;
use std::io;

use punctual_domain::service_call::ErrorKind;
use punctual_ports::{HttpFailure, HttpResponse};

use crate::tls;
use crate::wire::TooMuch;

/// A failure, whose message may name the host and nothing else of the request.
pub(crate) fn failure(kind: ErrorKind, message: impl Into<String>) -> HttpFailure {
    HttpFailure {
        kind,
        message: message.into(),
    }
}

/// The connection ended early.
pub(crate) fn lost(host: &str) -> HttpFailure {
    let message = format!("{host} ended the connection before its response was complete");
    failure(ErrorKind::ConnectionLost, message)
}

/// The response is too long: its end was not read.
pub(crate) fn too_long(host: &str) -> HttpFailure {
    let most = HttpResponse::LONGEST >> 20;
    let message = format!(
        "{host} answered with more than {most} MiB: the connection was ended before the response was complete"
    );
    failure(ErrorKind::ConnectionLost, message)
}

fn bad_response(host: &str, what: &str) -> HttpFailure {
    failure(ErrorKind::BadResponse, format!("{host} {what}"))
}

/// The failure for an error of hyper.
pub(crate) fn of_hyper(host: &str, error: &hyper::Error) -> HttpFailure {
    if error.is_user() {
        let message = "the request cannot be written as HTTP";
        return failure(ErrorKind::InvalidRequest, message);
    }
    if let Some(cause) = causes(error).find_map(|cause| cause.downcast_ref()) {
        return of_io(host, cause);
    }
    // A request that was not started is "canceled" because of another error.
    let mut inner = causes(error).filter_map(|cause| cause.downcast_ref());
    let error: &hyper::Error = inner.next().unwrap_or(error);
    if error.is_parse() {
        let what =
            "answered with what is not HTTP/1.1, or has more than 100 headers or 64 KiB of them";
        return bad_response(host, what);
    }
    let is_end = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    if is_end || error.source().is_some() {
        return lost(host);
    }
    // The one case without a name in hyper: bytes before the request.
    bad_response(host, "sent something before it was asked")
}

fn of_io(host: &str, error: &io::Error) -> HttpFailure {
    let inner = error.get_ref();
    let is_too_much = |inner: &(dyn Error + Send + Sync + 'static)| inner.is::<TooMuch>();
    if inner.is_some_and(is_too_much) {
        return bad_response(host, "sent more than an answer of that length needs");
    }
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return tls::refused(host, error);
    }
    match error.kind() {
        // This is how hyper reports a malformed chunk.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            bad_response(host, "answered with a body that is not HTTP/1.1")
        }
        _ => lost(host),
    }
}

fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}
