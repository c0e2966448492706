//! How one HTTP request is made.

use async_trait::async_trait;
use punctual_domain::service_call::{ErrorKind, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, TimerKey};

/// The one attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAttempt {
    /// Names the attempt; the target gets it as `Idempotency-Key`.
    pub execution_id: EnvelopeId,
    /// Whose call, and which.
    pub key: TimerKey,
    /// The request that it belongs to; the target gets it as `X-Correlation-Id`, and within
    /// `traceparent`.
    pub correlation_id: CorrelationId,
    /// What is to be sent.
    pub request: RequestSpec,
}

/// What came back, as it came.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers, in their order, as text.
    pub headers: Vec<(String, String)>,
    /// The beginning of the body: all of it, or [`HttpResponse::KEPT`] bytes.
    pub body: Vec<u8>,
    /// Whether the body was longer than what is kept of it.
    pub truncated: bool,
}

impl HttpResponse {
    /// The most bytes of a body that are kept.
    pub const KEPT: usize = 64 * 1_024;
    /// The most bytes that a body may have: it is read to its end, to know that it came whole.
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

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpFailure {
    /// What kind of failure it was.
    pub kind: ErrorKind,
    /// What happened, in words: the host may be in it, the rest of the URL, headers and body not.
    pub message: String,
}

/// Makes HTTP requests.
///
/// # Contract
/// - `attempt` sends the request at most once: no retry, no redirect is followed, no other address
///   is tried once anything of the request may have been sent.
/// - It connects to addresses that the adapter's policy allows, and to none before that was
///   checked; a target that is not allowed is `TargetNotAllowed`, and nothing was sent to it.
/// - It sends the request's method, URL, headers and body as they are, and besides `Host`,
///   `Idempotency-Key` (the execution id), `X-Correlation-Id`, `traceparent` and what the protocol
///   needs. Nothing is decompressed.
/// - Any whole response is a response, whatever its status. Whole is one whose body came to the end
///   that its length or its last chunk says, or to the end of the connection if it says none. A body
///   that is cut before, or has more than [`HttpResponse::LONGEST`] bytes, is `ConnectionLost`. Of a
///   whole one, [`HttpResponse::KEPT`] bytes are kept.
/// - It has no time limit of its own: whoever calls drops the future when time is up, and then the
///   connection is closed and no more is sent. Whatever it does for one attempt holds up no other.
#[async_trait]
pub trait HttpClientPort: Send + Sync {
    /// Makes one attempt.
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure>;
}
