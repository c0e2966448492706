//! The store of service calls, as orchestration sees it, which alone writes to it.

use async_trait::async_trait;
use punctual_domain::service_call::{CallStatus, IdempotencyKey, ServiceCall, Tag};
use punctual_domain::{
    CorrelationId, MessageEnvelope, ServiceCallId, TenantId, TimerKey, Timestamp,
};

use crate::{BatchResult, PageCursor, PortError};

/// A hash of what makes two submissions the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// A call to be stored for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    /// The call, scheduled.
    pub call: ServiceCall,
    /// Whether its id was chosen by whoever submits it, and not drawn here.
    pub id_was_given: bool,
    /// By what a repetition is recognised, besides its id.
    pub idempotency_key: Option<IdempotencyKey>,
    /// By what a repetition is told from another submission under the same key or id.
    pub fingerprint: Fingerprint,
    /// What goes out if it is stored.
    pub outbox: Vec<MessageEnvelope>,
}

/// What is told to whoever submits, the first time and every time after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Which call it is.
    pub service_call_id: ServiceCallId,
    /// The request that it belongs to.
    pub correlation_id: CorrelationId,
    /// When it was accepted.
    pub submitted_at: Timestamp,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitOutcome {
    /// It was stored.
    Accepted(Receipt),
    /// The same was submitted before; nothing was stored.
    Repeated(Receipt),
    /// Something else was submitted before under the same id or key; nothing was stored.
    Conflict {
        /// What is taken.
        field: ConflictField,
        /// By which call.
        by: ServiceCallId,
    },
}

/// By what a submission conflicts with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictField {
    /// The service call id.
    Id,
    /// The idempotency key.
    Key,
}

/// A call as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// The call.
    pub call: ServiceCall,
    /// Grows with each change, so that a change is made to what was seen.
    pub version: u64,
}

/// A change of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallChange {
    /// The call as it is to be.
    pub call: ServiceCall,
    /// The version that was seen.
    pub seen: u64,
    /// What goes out if it is changed.
    pub outbox: Vec<MessageEnvelope>,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// It was made.
    Changed,
    /// The call has another version by now, or is gone: look again. Nothing was changed.
    Outdated,
}

/// A deletion of a call that was seen to be scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDeletion {
    /// Which call.
    pub key: TimerKey,
    /// The version that was seen.
    pub seen: u64,
    /// When.
    pub deleted_at: Timestamp,
    /// What goes out if it is deleted.
    pub outbox: Vec<MessageEnvelope>,
}

/// Which calls of a tenant are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPageQuery {
    /// Whose.
    pub tenant_id: TenantId,
    /// In which state; in any, if there is none.
    pub status: Option<CallStatus>,
    /// With all of these.
    pub tags: Vec<Tag>,
    /// Due at this instant or later.
    pub from: Option<Timestamp>,
    /// Due before this instant.
    pub to: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
    /// After this place.
    pub after: Option<PageCursor>,
}

/// Some calls of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPage {
    /// The calls, latest due first.
    pub calls: Vec<ServiceCall>,
    /// Where to go on, if there are more.
    pub next: Option<PageCursor>,
}

/// Keeps service calls, and with each change what is to be told of it.
///
/// # Contract
/// - Every change and its outbox rows are stored together, or neither. The rows of one change keep
///   their order, and changes that were made one after the other have theirs in that order.
/// - The request of a finished call is kept without its secrets.
///
/// ## Submitting
/// - `submit` stores a call unless its id or key was used before in its tenant. Used before means
///   also: by a call that is gone, until `purge` forgets it.
/// - If it was, and with the same fingerprint, the answer is `Repeated` with the first receipt, and
///   otherwise `Conflict`. If a key was used before and the id was given, it has to be that call's;
///   if an id was used before with a key, and a key is given, it has to be that key. A conflict of
///   the id is told first.
/// - A call whose id is taken, though nobody gave it, is a conflict too, unless its key is that call's.
///
/// ## Changing
/// - `change` needs the version that was seen, and raises it by one. Finished calls do not change:
///   that is `Outdated`, whatever version was seen.
/// - `delete` needs the same, and a call that is scheduled. The call, its tags and its timer, if that
///   is in the same database, are gone then; messages about its timer that are not newer than the
///   deletion bring nothing back.
///
/// ## Reading
/// - `find` answers for each key, in order.
/// - `was_submitted` tells for each key, in order, whether a call was submitted under it: also one that
///   is gone, until `purge` forgets it.
/// - `page` gives the calls of one tenant, by due time, the latest first, and those of one instant by
///   id, the greatest first. A call that is there from the first page to the last is on exactly one of
///   them, whatever happens to others meanwhile; unless its own due time, which never changes, or its
///   state, if that was asked for. The last page has no cursor; one before it may be short, or even
///   empty, if looking on would take long. A cursor that the store did not give is `Rejected`.
/// - `check_cursor` rejects what `page` would reject as a cursor, and nothing else. It looks at nothing
///   stored.
/// - `find_by_correlation` gives the calls of all tenants that belong to a request, in the order of keys,
///   after a key if one is given. So asking again after the last key sees every call that stays
///   exactly once.
/// - `find_stuck` gives calls of all tenants whose `next_check_at` is at or before `now`, the oldest first,
///   and the earliest `next_check_at` after it.
///
/// ## Forgetting
/// - `purge` removes calls that finished before an instant, with their tags and attempts, and what is
///   remembered of submissions whose call is gone since before that instant; at most `limit` of both
///   together. It answers how many.
/// - `purge` may be called with an instant after which a call was finished or removed: that one stays.
#[async_trait]
pub trait ServiceCallPersistencePort: Send + Sync {
    /// Stores new calls.
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome>;

    /// The calls with these keys.
    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError>;

    /// Whether there is, or was, a call with these keys.
    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError>;

    /// Changes calls.
    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome>;

    /// Deletes scheduled calls.
    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome>;

    /// Some calls of a tenant.
    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError>;

    /// Whether a cursor is one that `page` may have given.
    fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError>;

    /// The calls of a request.
    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<ServiceCall>, PortError>;

    /// The calls that should be looked at.
    async fn find_stuck(&self, now: Timestamp, limit: usize) -> Result<StuckCalls, PortError>;

    /// Forgets what is old, as of now.
    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError>;
}

/// Calls to which nothing has happened that should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckCalls {
    /// The calls.
    pub calls: Vec<StoredCall>,
    /// When the next one is to be looked at, as far as is known.
    pub next: Option<Timestamp>,
}
