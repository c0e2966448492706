//! The attempts of service calls: waiting, attempted and finished.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::{Outcome, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, MessageEnvelope, TenantId, TimerKey, Timestamp};

use crate::{BatchResult, ClaimToken, PortError};

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
    /// The call was deleted, or does not exist where calls are in the same database.
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

/// Reference to the claim of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionClaim {
    /// The key of the attempt.
    pub key: ExecutionKey,
    /// Which claim of that attempt.
    pub token: ClaimToken,
}

/// A started attempt, which belongs to the caller until its lease expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedExecution {
    /// The attempt.
    pub execution: Execution,
    /// Identifies the claim.
    pub token: ClaimToken,
}

impl ClaimedExecution {
    /// The reference by which the store knows this claim.
    pub fn reference(&self) -> ExecutionClaim {
        ExecutionClaim {
            key: self.execution.key.clone(),
            token: self.token,
        }
    }
}

/// Decides about each attempt of a claim: the messages to append to the outbox if it starts, or `None` to
/// leave it waiting.
pub type StartExecution<'a> = dyn FnMut(&Execution) -> Option<Vec<MessageEnvelope>> + Send + 'a;

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishExecution {
    /// The claim of the attempt.
    pub claim: ExecutionClaim,
    /// When the attempt ended.
    pub finished_at: Timestamp,
    /// Outcome of the attempt, secrets redacted.
    pub outcome: Outcome,
    /// Messages to append to the outbox if the attempt ends.
    pub outbox: Vec<MessageEnvelope>,
}

/// Outcome of renewing the claim of an attempt, or of finishing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExecutionOutcome {
    /// The change was applied.
    Applied,
    /// The attempt is not attempted under this claim: it ended before, was taken over, or was deleted.
    /// Nothing was changed.
    NotThere,
}

/// A started attempt that nobody makes any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbandonedExecution {
    /// The claim, which is the caller's now.
    pub claim: ExecutionClaim,
    /// The request that the call belongs to.
    pub correlation_id: CorrelationId,
}

/// State of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionState {
    /// Waiting for a slot.
    Waiting,
    /// Started and not finished.
    Attempted,
    /// Finished.
    Finished {
        /// When the attempt ended.
        finished_at: Timestamp,
        /// Outcome of the attempt.
        outcome: Outcome,
    },
}

/// A call of another database that was deleted there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedCall {
    /// The key of the call.
    pub key: TimerKey,
    /// When it was deleted.
    pub deleted_at: Timestamp,
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
/// - An attempt goes from waiting to attempted to finished, each once. There is no way back.
/// - Every transition and its outbox rows are committed atomically.
/// - `accept` stores an attempt unless the call has one already.
/// - `count_waiting` returns the number of waiting attempts, at most `limit`.
/// - Once an attempt is finished, its request is stored without its secrets; `entries` never returns
///   them.
///
/// ## Claiming
/// - `claim` makes waiting attempts attempted, each with a lease of the caller: what it returns was
///   durably started by this call, and will be returned to nobody else. Attempts of one call of `claim`
///   may fail, each by itself.
/// - It asks `start` about each attempt in the order of turns, and at most once: `None` leaves it waiting,
///   and its place is not given to another. An attempt that was started is not always returned: the answer
///   may be lost, and one that was started elsewhere or deleted meanwhile is left out.
/// - Attempts are chosen within the limits of the query, the oldest of a tenant and host first. It is
///   round-robin: tenants take turns, one attempt each, starting after `after_tenant`, and within a tenant
///   its hosts do, starting after `after_host`. A caller that continues where the last result ended gets to
///   every tenant and host. Two ports are two hosts. A result ends in one tenant only, so the store remembers
///   the last host of every other tenant and continues after it. The cost does not grow with the number of
///   waiting attempts.
/// - Limits and turns are those of one instance. A claim passes over what another is claiming.
///
/// ## Leases
/// - A lease ends `lease` after `now`, by the store's clock if it has one. The caller's ends by its own
///   clocks, and before it sends anything it has to know that it has not.
/// - `renew` makes the lease expire `lease` after `now`. It is `NotThere` if the attempt is not attempted
///   under this claim. Whether a claim whose lease expired can be renewed before it is taken over is left open.
/// - `take_over` claims attempted ones for the caller, under a new token: those whose lease has expired, and
///   those that this instance has claimed; none of `held`, which it is making. The oldest come first, at
///   most `limit`. They can be finished, and never be made. Two instances never take over one at once.
/// - A lease may also end with its owner: where only one instance makes attempts, those of an earlier one
///   are taken over at once.
/// - `finish` needs the current token. A stale owner's late `finish` is applied if nobody has taken the
///   attempt over, and `NotThere` otherwise: there is one outcome.
///
/// ## Calls in another database
/// - Where calls are in the same database, an attempt needs its call, and is deleted and purged with it:
///   `delete` and `purge` do nothing. Otherwise an attempt needs no call, and both take the place of that.
/// - `delete` deletes the attempts of deleted calls, whatever their state, and leaves tombstones, also for
///   calls without one: until `purge` removes it, `accept` answers `NoParent` for that call.
/// - `purge` removes attempts that finished, and tombstones of calls that were deleted, before an instant; at
///   most `limit` rows of both together. It returns their number. An attempt stays while a message about its
///   call waits to be published, and an unfinished one stays always.
/// - Of several callers at once, each row is removed and counted by one.
#[async_trait]
pub trait ExecutionLogPort: Send + Sync {
    /// Stores requested attempts.
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome>;

    /// Starts waiting attempts.
    async fn claim(
        &self,
        query: WaitingQuery,
        now: Timestamp,
        lease: Duration,
        start: &mut StartExecution<'_>,
    ) -> BatchResult<ClaimedExecution>;

    /// Number of waiting attempts, counted up to `limit`.
    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError>;

    /// Extends the leases of attempts.
    async fn renew(
        &self,
        batch: Vec<ExecutionClaim>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ExecutionOutcome>;

    /// Claims started attempts that nobody makes any more, to finish them.
    async fn take_over(
        &self,
        held: BTreeSet<ExecutionKey>,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<AbandonedExecution>, PortError>;

    /// Finishes attempts.
    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome>;

    /// Views of the attempts of a call.
    async fn entries(&self, call: TimerKey, limit: usize)
    -> Result<Vec<ExecutionEntry>, PortError>;

    /// Deletes the attempts of calls that were deleted in another database.
    async fn delete(&self, batch: Vec<DeletedCall>) -> BatchResult<()>;

    /// Removes finished attempts and tombstones older than the retention time.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
}
