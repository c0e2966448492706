//! The attempts of calls: those that are asked for, those under way, and what became of them.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::{Outcome, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, MessageEnvelope, TenantId, TimerKey, Timestamp};

use crate::{BatchResult, PortError};

/// Which attempt of which call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionKey {
    /// The call.
    pub call: TimerKey,
    /// The attempt: the id of the command that asked for it.
    pub execution_id: EnvelopeId,
}

/// An attempt that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Which one.
    pub key: ExecutionKey,
    /// The request that it belongs to.
    pub correlation_id: CorrelationId,
    /// What is to be sent, secrets included.
    pub request: RequestSpec,
    /// How long the whole attempt may take.
    pub timeout: Duration,
    /// When it was asked for.
    pub accepted_at: Timestamp,
}

/// What became of a wish for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcceptOutcome {
    /// It waits to be made.
    Accepted,
    /// It was asked for before, and is waiting, under way or done.
    AlreadyThere,
    /// Another attempt of the same call was asked for before: a call has one.
    AnotherAttempt,
    /// There is no such call, or not any more.
    NoParent,
}

/// Whose attempts are not wanted now, because enough of them are under way, and how many are.
///
/// A host is meant with its port, as [`TargetUrl::host_and_port`] writes it.
///
/// [`TargetUrl::host_and_port`]: punctual_domain::service_call::TargetUrl::host_and_port
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingQuery {
    /// At most so many.
    pub limit: usize,
    /// At most so many of one tenant.
    pub per_tenant: usize,
    /// At most so many of one tenant to one host.
    pub per_host: usize,
    /// None of these tenants.
    pub without_tenants: Vec<TenantId>,
    /// None to these hosts.
    pub without_hosts: Vec<String>,
    /// None of these tenants to these hosts.
    pub without: BTreeSet<(TenantId, String)>,
    /// Begins after this tenant, and goes round.
    pub after_tenant: Option<TenantId>,
    /// Within a tenant, begins after this host, and goes round.
    pub after_host: Option<String>,
}

/// The beginning of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginExecution {
    /// Which one.
    pub key: ExecutionKey,
    /// When.
    pub started_at: Timestamp,
    /// What goes out if it begins.
    pub outbox: Vec<MessageEnvelope>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishExecution {
    /// Which one.
    pub key: ExecutionKey,
    /// When.
    pub finished_at: Timestamp,
    /// What came of it, secrets blotted out.
    pub outcome: Outcome,
    /// What goes out if it ends.
    pub outbox: Vec<MessageEnvelope>,
}

/// What became of a step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExecutionOutcome {
    /// It was taken.
    Applied,
    /// The attempt is not where it would have to be: it has begun or ended before, or is gone.
    /// Nothing was changed.
    NotThere,
}

/// An attempt that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenExecution {
    /// Which one.
    pub key: ExecutionKey,
    /// The request that it belongs to.
    pub correlation_id: CorrelationId,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it may take.
    pub timeout: Duration,
}

/// How far an attempt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionState {
    /// It waits to be made.
    Waiting,
    /// It is being made.
    Attempted,
    /// It is over.
    Finished {
        /// Since when.
        finished_at: Timestamp,
        /// What came of it.
        outcome: Outcome,
    },
}

/// An attempt as people may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionEntry {
    /// Which one.
    pub key: ExecutionKey,
    /// When it began; until then, when it was asked for.
    pub started_at: Timestamp,
    /// What may be shown of its request.
    pub request: RequestSpec,
    /// How far it has come.
    pub state: ExecutionState,
}

/// Keeps the attempts of calls.
///
/// # Contract
/// - An attempt goes from waiting to attempted to finished, each once; whatever does not fit is
///   `NotThere` and changes nothing.
/// - Every step and its outbox rows are stored together, or neither.
/// - `accept` stores an attempt unless the call has one already.
/// - `waiting` gives attempts that wait, within the limits of the query. Within a tenant and host, the
///   oldest come first. Tenants take turns, one attempt each, beginning after `after_tenant`, and
///   within a tenant its hosts, beginning after `after_host`: whoever goes on where the last answer
///   ended gets to every tenant and host. A host is one with its port: two ports are two hosts. Since the answer ends in one tenant only, the store knows
///   which host of each other tenant came last, and begins after that one there. What it costs does
///   not grow with the number of those that wait.
/// - `count_waiting` gives how many wait, at most `limit`.
/// - `open` gives attempts of all tenants that began before an instant and have not ended, the oldest
///   first.
/// - From the moment an attempt is finished, its request is kept without its secrets; `entries` never
///   gives them.
#[async_trait]
pub trait ExecutionLogPort: Send + Sync {
    /// Stores attempts that are asked for.
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome>;

    /// Attempts that wait to be made.
    async fn waiting(&self, query: WaitingQuery) -> Result<Vec<Execution>, PortError>;

    /// How many wait to be made, counted up to a limit.
    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError>;

    /// Attempts begin.
    async fn begin(&self, batch: Vec<BeginExecution>) -> BatchResult<ExecutionOutcome>;

    /// Attempts end.
    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome>;

    /// Attempts that began before an instant and have not ended.
    async fn open(
        &self,
        began_before: Timestamp,
        limit: usize,
    ) -> Result<Vec<OpenExecution>, PortError>;

    /// The attempts of a call, as people may see them.
    async fn entries(&self, call: TimerKey, limit: usize)
    -> Result<Vec<ExecutionEntry>, PortError>;
}
