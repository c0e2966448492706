//! The store of service calls. Only orchestration writes to it.

use async_trait::async_trait;
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{
    CallStatus, Fingerprint, IdempotencyKey, Receipt, ServiceCall, SubmissionRecord, SubmitOutcome,
    Tag,
};
use punctual_domain::{CorrelationId, MessageEnvelope, TenantId, TimerKey, Timestamp};

use crate::{BatchResult, PageCursor, PortError};

/// A call to be stored for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    /// The call: scheduled, or running if it was due by the caller's clock when it was submitted.
    pub call: ServiceCall,
    /// Whether the caller chose the id, rather than the service.
    pub id_was_given: bool,
    /// Identifies repetitions of the submission, besides the id.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Distinguishes a repetition from another submission under the same key or id.
    pub fingerprint: Fingerprint,
    /// Messages to append to the outbox if the call is stored.
    pub outbox: Vec<MessageEnvelope>,
    /// Who receives them.
    pub listeners: Listeners,
}

impl NewCall {
    /// The receipt of the call if it is accepted.
    pub fn receipt(&self) -> Receipt {
        let details = self.call.details();
        Receipt {
            service_call_id: details.key.service_call_id,
            correlation_id: details.correlation_id,
            submitted_at: details.submitted_at,
        }
    }

    /// What a store with a clock of its own stores: a call that is running, and not due by that clock, is
    /// scheduled instead. Its messages are those of a scheduled call, in the same envelopes, since both
    /// forms are caused by the same command.
    #[must_use]
    pub fn by_the_clock_of_the_store(mut self, now: Timestamp) -> Self {
        if let ServiceCall::Running(call) = &self.call
            && now < call.details.due_at
        {
            let step = call.details.clone().schedule();
            self.outbox.truncate(step.outgoing.len());
            for (envelope, outgoing) in self.outbox.iter_mut().zip(step.outgoing) {
                envelope.message = outgoing.message;
            }
            self.call = step.call;
        }
        self
    }

    /// Decides the outcome, given the submissions of the same tenant under its id and under its key.
    pub fn decide(
        &self,
        of_id: Option<SubmissionRecord<'_>>,
        of_key: Option<SubmissionRecord<'_>>,
    ) -> SubmitOutcome {
        let new = SubmissionRecord {
            receipt: self.receipt(),
            idempotency_key: self.idempotency_key.as_ref().map(IdempotencyKey::as_str),
            fingerprint: &self.fingerprint.0,
        };
        new.decide(self.id_was_given, of_id, of_key)
    }
}

/// A stored call and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// The call.
    pub call: ServiceCall,
    /// Incremented by each change, for optimistic concurrency control.
    pub version: u64,
}

/// A conditional change of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallChange {
    /// The new value of the call.
    pub call: ServiceCall,
    /// The version that was read, which the change requires.
    pub expected_version: u64,
    /// Messages to append to the outbox if the change is applied.
    pub outbox: Vec<MessageEnvelope>,
    /// Who receives them.
    pub listeners: Listeners,
}

/// Outcome of a change or deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// The change was applied.
    Changed,
    /// The call has another version, or was deleted: read it again. Nothing was changed.
    Outdated,
}

/// A conditional deletion of a scheduled call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDeletion {
    /// The key of the call.
    pub key: TimerKey,
    /// The version that was read, which the deletion requires.
    pub expected_version: u64,
    /// When the call is deleted.
    pub deleted_at: Timestamp,
    /// Messages to append to the outbox if the call is deleted.
    pub outbox: Vec<MessageEnvelope>,
}

/// Query for a page of a tenant's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPageQuery {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Only calls in this state.
    pub status: Option<CallStatus>,
    /// Only calls with all of these tags.
    pub tags: Vec<Tag>,
    /// Only calls due at this instant or later.
    pub from: Option<Timestamp>,
    /// Only calls due before this instant.
    pub to: Option<Timestamp>,
    /// Maximum number of calls on the page.
    pub limit: usize,
    /// Cursor of the page before, to continue after it.
    pub after: Option<PageCursor>,
}

/// A page of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPage {
    /// The calls, latest due first.
    pub calls: Vec<ServiceCall>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<PageCursor>,
}

/// Stores service calls together with the messages about each change.
///
/// # Contract
/// - Every change and its outbox rows are committed atomically. The rows of one change keep their order,
///   and rows of consecutive changes of one call keep the order of the changes.
/// - A message of a submission or change that nobody receives ([`Listeners::receive`]) is appended as published
///   at its own time: no claim returns it, it is not counted, and it is removed as any other.
/// - Any instance may do anything at any time: submissions are decided by ids and keys, changes by versions,
///   so that of two that do the same thing at once one does it.
/// - The request of a finished call is stored without its secrets.
///
/// ## Submitting
/// - `submit` stores a call unless its id or key was used before in its tenant, also by a call that was
///   deleted, until `purge` removes the record of that submission.
/// - If the id or key was used before, the outcome is `Repeated` with the first receipt if the
///   fingerprints match, and `Conflict` otherwise. If a key was used before and the id was given, the id
///   has to be that call's; if an id was used before with a key, and a key is given, it has to be that
///   key. A conflict of the id takes precedence.
/// - A generated id that is in use is a conflict too, unless the key is that call's.
/// - A call that is running when it is submitted, because it was due by the clock of the caller, is stored as it
///   is, with its messages. It is never early by the store's clock either: a store that has one stores
///   [`NewCall::by_the_clock_of_the_store`]. For one that has none, `submitted_at` is the time.
///
/// ## Changing
/// - `change` requires the current version and increments it. A finished call does not change: the
///   outcome is `Outdated`, whatever version was read.
/// - `delete` requires the current version and a scheduled call. It deletes the call, its tags and, if
///   in the same database, its timer; messages about the timer that are not newer than the deletion do
///   not bring the timer back.
///
/// ## Reading
/// - `find` returns one result per key, in order.
/// - `was_submitted` returns for each key, in order, whether a call was submitted under it, including a
///   deleted one until `purge` removes the record of its submission.
/// - `page` returns the calls of one tenant, by due time, the latest first, and those of one instant by
///   id, the greatest first. A call that exists from the first page to the last, in the state filtered
///   by if any, is on exactly one of them, whatever happens to others meanwhile. The last page has no
///   cursor; an earlier one may be short or even empty to bound the cost of the query. A cursor that the
///   store did not return is `Rejected`.
/// - `check_cursor` rejects exactly the cursors that `page` would reject, and reads nothing stored.
/// - `find_by_correlation` returns the calls of all tenants that belong to a request, in the order of
///   keys, after a key if one is given. Calling it again with the last key returns every call that stays
///   exactly once.
/// - `find_stuck` returns the calls of all tenants whose `next_check_at` is at or before `now` and, if the store
///   has a clock of its own, before that reads too; the oldest first, and the earliest `next_check_at` after both.
///   `as_of` is the earlier of the two, which calls are judged by: an instance whose clock is ahead starts none
///   early. It claims none: of two instances that find
///   the same call, one changes it, and the other's change is `Outdated`.
///
/// ## Purging
/// - `purge` removes calls that finished before an instant, with their tags and attempts, and records of
///   submissions whose call was deleted before that instant; at most `limit` rows of both together. It
///   returns their number.
/// - Of several callers at once, each row is removed and counted by one. A call of `purge` may pass over rows
///   that another is removing.
/// - Calls finished, and submissions of calls deleted, at or after that instant stay.
#[async_trait]
pub trait ServiceCallPersistencePort: Send + Sync {
    /// Stores new calls.
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome>;

    /// Reads the calls with these keys.
    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError>;

    /// Whether a call was ever submitted under each of these keys.
    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError>;

    /// Changes calls if their versions still match.
    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome>;

    /// Deletes scheduled calls.
    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome>;

    /// Lists a tenant's calls.
    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError>;

    /// Checks a cursor without reading the store.
    fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError>;

    /// Reads the calls of one request, across tenants.
    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<ServiceCall>, PortError>;

    /// Reads the calls whose next check is over.
    async fn find_stuck(&self, now: Timestamp, limit: usize) -> Result<StuckCalls, PortError>;

    /// Removes finished calls and records of submissions older than the retention time.
    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError>;
}

/// Calls that did not progress by their next check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckCalls {
    /// By when they are stuck.
    pub as_of: Timestamp,
    /// The calls.
    pub calls: Vec<StoredCall>,
    /// Earliest next check after that, as far as known.
    pub next: Option<Timestamp>,
}
