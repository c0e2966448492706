//! What the API is put together from.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_ports::{ClockPort, IdPort, TimerPersistencePort};
use punctual_workflows::ScheduleTimers;
use punctual_workflows::calls::{ReadCalls, SubmitCalls};

use crate::Tokens;

/// Everything that the API needs.
#[derive(Clone)]
pub struct ApiParts {
    /// Service calls, if this process has them.
    pub calls: Option<CallsApi>,
    /// Timers on their own, if they have their own database.
    pub timers: Option<TimersApi>,
    /// Who may see what.
    pub tokens: Tokens,
    /// Looks whether the process can do its work.
    pub readiness: Readiness,
    /// The metrics, in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// New correlation ids.
    pub ids: Arc<dyn IdPort>,
    /// For deadlines and for measuring.
    pub clock: Arc<dyn ClockPort>,
    /// Limits.
    pub settings: ApiSettings,
}

/// Looks whether the process can do its work.
pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Vec<ReadinessCheck>> + Send + Sync>;

/// The use cases of service calls.
#[derive(Clone)]
pub struct CallsApi {
    /// Takes and deletes calls.
    pub submit: SubmitCalls,
    /// Shows them.
    pub read: ReadCalls,
}

/// The use cases of timers on their own.
#[derive(Clone)]
pub struct TimersApi {
    /// Takes and deletes timers.
    pub schedule: ScheduleTimers,
    /// Shows them.
    pub timers: Arc<dyn TimerPersistencePort>,
}

/// One thing that has to be right for the process to do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// What was looked at: `database`, `broker`, `worker`.
    pub name: &'static str,
    /// What is wrong with it, in words that may be shown to anybody; nothing, if it is right.
    pub problem: Option<String>,
}

/// The limits of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiSettings {
    /// So many connections are open at once. When there are more, those go first whose request has
    /// been awaited for the longest time; where there are tokens, of those that have shown none,
    /// as long as they are more than a quarter.
    pub connections: usize,
    /// So many requests are carried out at once, besides health and metrics. More are answered 503.
    pub requests: usize,
    /// A body may have so many bytes.
    pub body: usize,
    /// All bodies together may have so many bytes while they are read and used, and those of one
    /// tenant a quarter of it.
    pub all_bodies: usize,
    /// At least so many bytes of a body, or its end, have to arrive in every `body_patience`.
    pub body_pace: usize,
    /// How long to wait for `body_pace`.
    pub body_patience: Duration,
    /// A request's line and headers have to be there within this time, and so has the next request
    /// on an open connection.
    pub header_timeout: Duration,
    /// A request is answered within this time, the arrival of its body included.
    pub request_timeout: Duration,
    /// A client that takes nothing of its answer for this time is cut off.
    pub write_timeout: Duration,
    /// What is under way when the process is asked to stop has this time to end.
    pub drain: Duration,
}

impl ApiSettings {
    /// The longest body: a request body of 256 KiB fits with all else also if every byte is written
    /// as an escape of six.
    pub const BODY: usize = 2 * 1_024 * 1_024;
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            connections: 1_024,
            requests: 256,
            body: Self::BODY,
            all_bodies: 32 * Self::BODY,
            body_pace: 5 * 1_024,
            body_patience: Duration::from_secs(5),
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(20),
        }
    }
}
