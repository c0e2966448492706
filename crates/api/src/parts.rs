//! The parts of the API: use cases, ports and limits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_ports::{ClockPort, IdPort, Instance, PortError, TimerPersistencePort};
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
    /// The tokens that are accepted.
    pub tokens: Tokens,
    /// The readiness of the process.
    pub readiness: Readiness,
    /// The instances that live, this one included.
    pub instances: Instances,
    /// The metrics, in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The source of correlation ids.
    pub ids: Arc<dyn IdPort>,
    /// The clock of deadlines and durations.
    pub clock: Arc<dyn ClockPort>,
    /// The limits.
    pub settings: ApiSettings,
}

/// Readiness: checks whether the process can do its work.
pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Vec<ReadinessCheck>> + Send + Sync>;

/// Reads which instances live.
pub type Instances =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Instance>, PortError>> + Send + Sync>;

/// The use cases of service calls.
#[derive(Clone)]
pub struct CallsApi {
    /// Submits and deletes calls.
    pub submit: SubmitCalls,
    /// Reads them.
    pub read: ReadCalls,
}

/// The use cases of timers on their own.
#[derive(Clone)]
pub struct TimersApi {
    /// Schedules and deletes timers.
    pub schedule: ScheduleTimers,
    /// Reads them.
    pub timers: Arc<dyn TimerPersistencePort>,
}

/// The result of one readiness check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// What was checked: `database`, `broker`, `worker`.
    pub name: &'static str,
    /// The problem, in words that anybody may read; none, if it is ready.
    pub problem: Option<String>,
}

/// The limits of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiSettings {
    /// Maximum number of open connections. At the limit, a new one evicts the one that has been idle the
    /// longest: an anonymous one, as long as these are more than a quarter.
    pub connections: usize,
    /// Maximum number of requests in progress, besides health and metrics. More are answered 503.
    pub requests: usize,
    /// Maximum number of bytes of a body.
    pub body: usize,
    /// Maximum number of bytes of all bodies in use; the bodies of one tenant may have a quarter of it.
    pub all_bodies: usize,
    /// Minimum number of bytes of a body that arrive in every `body_patience`, unless it ends.
    pub body_pace: usize,
    /// The interval of `body_pace`.
    pub body_patience: Duration,
    /// The deadline of a request's line and headers, and of the next request on an open connection.
    pub header_timeout: Duration,
    /// The deadline of a response, the arrival of the request's body included.
    pub request_timeout: Duration,
    /// The time after which a client that reads nothing of its response is disconnected.
    pub write_timeout: Duration,
    /// The time that requests in progress have to end when the process stops.
    pub drain: Duration,
}

impl ApiSettings {
    /// The default of `body`: the 256 KiB that a call may send fit with all else even if every byte is
    /// written as an escape of six.
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
