//! The attempts of service calls: waiting, in flight and finished.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::{Outcome, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, MessageEnvelope, TenantId, TimerKey, Timestamp};

use crate::{BatchResult, PortError};

/// Key of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionKey {
    /// The call.
    pub call: TimerKey,
    /// The attempt: the id of the command that requested it.
    pub execution_id: EnvelopeId,
}

/// A requested attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// The request that the call belongs to.
    pub correlation_id: CorrelationId,
    /// The HTTP request to send, secrets included.
    pub request: RequestSpec,
    /// Time limit of the complete attempt.
    pub timeout: Duration,
    /// When the attempt was accepted.
    pub accepted_at: Timestamp,
}

/// Outcome of requesting an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcceptOutcome {
    /// The attempt is stored and waiting.
    Accepted,
    /// The attempt was requested before, and is waiting, in flight or finished.
    AlreadyThere,
    /// Another attempt of the same call was requested before: a call has one.
    AnotherAttempt,
    /// The call does not exist, or was deleted.
    NoParent,
}

/// Query for waiting attempts, within the concurrency limits that the caller has left.
///
/// A host includes its port, as [`TargetUrl::host_and_port`] writes it.
///
/// [`TargetUrl::host_and_port`]: punctual_domain::service_call::TargetUrl::host_and_port
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingQuery {
    /// Maximum number of attempts.
    pub limit: usize,
    /// Maximum number of attempts of one tenant.
    pub per_tenant: usize,
    /// Maximum number of attempts of one tenant to one host.
    pub per_host: usize,
    /// Tenants to exclude.
    pub without_tenants: Vec<TenantId>,
    /// Hosts to exclude.
    pub without_hosts: Vec<String>,
    /// Pairs of tenant and host to exclude.
    pub without: BTreeSet<(TenantId, String)>,
    /// Starts the round-robin over tenants after this one.
    pub after_tenant: Option<TenantId>,
    /// Starts the round-robin over the hosts of a tenant after this one.
    pub after_host: Option<String>,
}

/// The start of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginExecution {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// Messages to append to the outbox if the attempt starts.
    pub outbox: Vec<MessageEnvelope>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishExecution {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// When the attempt ended.
    pub finished_at: Timestamp,
    /// Outcome of the attempt, secrets redacted.
    pub outcome: Outcome,
    /// Messages to append to the outbox if the attempt ends.
    pub outbox: Vec<MessageEnvelope>,
}

/// Outcome of starting or finishing an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExecutionOutcome {
    /// The transition was applied.
    Applied,
    /// The attempt is not in the required state: it started or ended before, or was deleted. Nothing was
    /// changed.
    NotThere,
}

/// An attempt in flight: started and not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenExecution {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// The request that the call belongs to.
    pub correlation_id: CorrelationId,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// Time limit of the attempt.
    pub timeout: Duration,
}

/// State of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionState {
    /// Waiting for a slot.
    Waiting,
    /// In flight.
    Attempted,
    /// Finished.
    Finished {
        /// When the attempt ended.
        finished_at: Timestamp,
        /// Outcome of the attempt.
        outcome: Outcome,
    },
}

/// View of an attempt, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionEntry {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// When the attempt started; while it waits, when it was accepted.
    pub started_at: Timestamp,
    /// The redacted request.
    pub request: RequestSpec,
    /// State of the attempt.
    pub state: ExecutionState,
}

/// Stores the attempts of service calls.
///
/// # Contract
/// - An attempt goes from waiting to attempted to finished, each once; any other transition is
///   `NotThere` and changes nothing.
/// - Every transition and its outbox rows are committed atomically.
/// - `accept` stores an attempt unless the call has one already.
/// - `waiting` returns waiting attempts within the limits of the query, the oldest of a tenant and host
///   first. It is round-robin: tenants take turns, one attempt each, starting after `after_tenant`, and
///   within a tenant its hosts do, starting after `after_host`. A caller that continues where the last
///   result ended gets to every tenant and host. Two ports are two hosts. A result ends in one tenant
///   only, so the store remembers the last host of every other tenant and continues after it. The cost
///   does not grow with the number of waiting attempts.
/// - `count_waiting` returns the number of waiting attempts, at most `limit`.
/// - `open` returns attempts of all tenants that started before an instant and have not finished, the
///   oldest first.
/// - Once an attempt is finished, its request is stored without its secrets; `entries` never returns
///   them.
#[async_trait]
pub trait ExecutionLogPort: Send + Sync {
    /// Stores requested attempts.
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome>;

    /// Reads waiting attempts.
    async fn waiting(&self, query: WaitingQuery) -> Result<Vec<Execution>, PortError>;

    /// Number of waiting attempts, counted up to `limit`.
    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError>;

    /// Starts attempts.
    async fn begin(&self, batch: Vec<BeginExecution>) -> BatchResult<ExecutionOutcome>;

    /// Finishes attempts.
    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome>;

    /// Reads attempts in flight that started before an instant.
    async fn open(
        &self,
        started_before: Timestamp,
        limit: usize,
    ) -> Result<Vec<OpenExecution>, PortError>;

    /// Views of the attempts of a call.
    async fn entries(&self, call: TimerKey, limit: usize)
    -> Result<Vec<ExecutionEntry>, PortError>;
}
