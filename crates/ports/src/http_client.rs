//! The HTTP client that makes the request of a service call.

use async_trait::async_trait;
use punctual_domain::service_call::{ErrorKind, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, TimerKey};

/// The single attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAttempt {
    /// Identifies the attempt; sent to the target as `Idempotency-Key`.
    pub execution_id: EnvelopeId,
    /// The key of the call.
    pub key: TimerKey,
    /// The request that the call belongs to; sent to the target as `X-Correlation-Id`, and within
    /// `traceparent`.
    pub correlation_id: CorrelationId,
    /// The HTTP request to send.
    pub request: RequestSpec,
}

/// An HTTP response, as received.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers, in their order, as text.
    pub headers: Vec<(String, String)>,
    /// The body, or its first [`HttpResponse::KEPT`] bytes.
    pub body: Vec<u8>,
    /// Whether `body` is only the start of the body.
    pub truncated: bool,
}

impl HttpResponse {
    /// Maximum number of bytes kept of a body.
    pub const KEPT: usize = 64 * 1_024;
    /// Maximum number of bytes of a body, which is read to its end to know that it is complete.
    pub const LONGEST: usize = 16 * 1_024 * 1_024;
}

/// Without headers and body, which may be secret.
impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body", &format_args!("{} bytes", self.body.len()))
            .field("truncated", &self.truncated)
            .finish()
    }
}

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpFailure {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// Description, which may contain the host, but not the rest of the URL, headers or body.
    pub message: String,
}

/// Makes HTTP requests.
///
/// # Contract
/// - `attempt` sends the request at most once: it does not retry, follow a redirect, or try another
///   address once anything of the request may have been sent.
/// - It connects only to addresses that the adapter's policy allows, after checking them; a target that
///   is not allowed is `TargetNotAllowed`, and nothing is sent to it.
/// - It sends the request's method, URL, headers and body unchanged, and in addition `Host`,
///   `Idempotency-Key` (the execution id), `X-Correlation-Id`, `traceparent` and what the protocol
///   needs. Nothing is decompressed.
/// - Any complete response is a response, whatever its status. A response is complete when its body ends
///   where its length or last chunk says, or else with the connection. A body that ends earlier, or has
///   more than [`HttpResponse::LONGEST`] bytes, is `ConnectionLost`. The first [`HttpResponse::KEPT`]
///   bytes of a complete one are kept.
/// - It has no timeout of its own: the caller drops the future when time is up, which closes the
///   connection and sends no more. No attempt blocks another.
#[async_trait]
pub trait HttpClientPort: Send + Sync {
    /// Makes one attempt.
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure>;
}
