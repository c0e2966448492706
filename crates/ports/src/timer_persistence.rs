//! The timer store, as seen by callers that schedule, read and delete timers.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, DeleteOutcome, FiringId, MarkOutcome, ScheduleDecision, ScheduleOrigin,
    ScheduledTimer, TenantId, TimerData, TimerEntry, TimerKey, TimerState, Timestamp,
};

use crate::{BatchResult, PortError, PortErrorKind};

/// A schedule to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveTimer {
    /// The key of the timer.
    pub key: TimerKey,
    /// The request that the timer belongs to.
    pub correlation_id: CorrelationId,
    /// When the timer is to fire.
    pub due_at: Timestamp,
    /// Data returned with the firing.
    pub data: Option<TimerData>,
    /// Where the schedule comes from, which decides its effect on an existing timer.
    pub origin: ScheduleOrigin,
}

/// Outcome of saving a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaveOutcome {
    /// A new timer was stored.
    Created,
    /// The timer existed and has the new schedule.
    Rescheduled,
    /// The same command was applied before, or the timer was to be ensured and is scheduled already.
    /// Nothing was changed.
    Unchanged,
    /// A newer command or a deletion was applied before.
    Stale,
    /// The timer has already fired. Nothing was changed.
    AlreadyReached,
    /// The service call that the timer belongs to does not exist. Nothing was stored.
    NoParent,
}

impl From<ScheduleDecision> for SaveOutcome {
    /// The outcome once the decision is written.
    fn from(decision: ScheduleDecision) -> Self {
        match decision {
            ScheduleDecision::Create { .. } => Self::Created,
            ScheduleDecision::Reschedule { .. } => Self::Rescheduled,
            ScheduleDecision::Unchanged => Self::Unchanged,
            ScheduleDecision::Stale => Self::Stale,
            ScheduleDecision::AlreadyReached => Self::AlreadyReached,
        }
    }
}

/// A firing whose event was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredTimer {
    /// The schedule that fired.
    pub firing_id: FiringId,
    /// When the worker noticed that the due time was reached.
    pub reached_at: Timestamp,
}

impl FiredTimer {
    /// Checks that the timer was not reached before its due time, as every store must.
    ///
    /// # Errors
    /// `Rejected`, if `reached_at` is before the due time.
    pub fn check(&self) -> Result<(), PortError> {
        let due_at = self.firing_id.registration.due_at;
        if self.reached_at >= due_at {
            return Ok(());
        }
        Err(PortError::new(
            PortErrorKind::Rejected,
            "mark a timer as reached",
            format!("{} is before its due time {due_at}", self.reached_at),
        ))
    }
}

/// Opaque cursor of a page, readable only by the store that returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor(pub String);

impl PageCursor {
    /// The position after a key, in a list ordered by key.
    pub fn after_key(key: &TimerKey) -> Self {
        Self(format!("{}.{}", key.tenant_id, key.service_call_id))
    }

    /// The key that the position is after; `None` if the cursor is not of such a list.
    pub fn key(&self) -> Option<TimerKey> {
        let (tenant, call) = self.0.split_once('.')?;
        Some(TimerKey::new(tenant.parse().ok()?, call.parse().ok()?))
    }

    /// The position after a row, in a list ordered by due time.
    pub fn after_due(due_at: Timestamp, row: impl fmt::Display) -> Self {
        Self(format!("{}.{row}", due_at.as_millis()))
    }

    /// The due time and row that the position is after; `None` if the cursor is not of such a list.
    pub fn due<T: FromStr>(&self) -> Option<(Timestamp, T)> {
        let (due_at, row) = self.0.split_once('.')?;
        let due_at = Timestamp::from_millis(due_at.parse().ok()?).ok()?;
        Some((due_at, row.parse().ok()?))
    }

    /// The error for a cursor that the store did not return.
    pub fn rejection(operation: &'static str) -> PortError {
        PortError::new(
            PortErrorKind::Rejected,
            operation,
            "the cursor is none that an earlier page gave: give one that it gave, or none",
        )
    }
}

/// Query for a page of a tenant's timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerPageQuery {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Only timers in this state.
    pub state: Option<TimerState>,
    /// Cursor of the page before, to continue after it.
    pub after: Option<PageCursor>,
    /// Maximum number of timers on the page.
    pub limit: usize,
}

/// A page of timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerPage {
    /// The timers.
    pub timers: Vec<TimerEntry>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<PageCursor>,
}

/// The authoritative store of timers.
///
/// # Contract
/// ## Saving
/// - The effect of a schedule on the stored timer is decided by
///   [`ScheduleOrigin::decide`](punctual_domain::ScheduleOrigin::decide), evaluated and written
///   atomically with respect to concurrent writers.
/// - When `save` returns `Created` or `Rescheduled`, the schedule is durable.
/// - A reschedule replaces due time, registration, correlation id and data, and clears attempts, last
///   error, retry time and claims of the old schedule.
/// - A schedule that is not applied leaves the row unchanged.
/// - An `Ensure` creates an absent timer, exactly one of any number of concurrent ones does, and leaves
///   a scheduled timer unchanged, overdue or not, with its attempts, retry time and claim.
/// - Items of a batch with the same key apply in order; a failed item does not affect the others.
/// - Where the store has a clock of its own, that clock is the `now` of the decision: registrations of all
///   instances are by one clock, and a command counts as sent no later than that clock reads. A store
///   without one uses the caller's `now`.
///
/// ## Marking
/// - `mark_fired` applies only to a scheduled timer with exactly the registration that was fired.
/// - A mark whose `reached_at` is before the due time is `Rejected` and changes nothing.
/// - A reached timer is never due again, and does not change until it is replaced or purged.
/// - Marking twice changes nothing.
/// - A mark needs no claim: that of an owner whose lease expired marks the same firing. Both times of the
///   registration decide, since two commands sent in one millisecond differ in their due time only.
///
/// ## Deleting
/// - A deleted timer is invisible to every reader and to the queue, and does not fire.
/// - A deletion leaves a tombstone: a command not newer than it is `Stale`, while a direct call creates
///   the timer again with a later registration than any before.
/// - A timer with an unexpired claim, of whichever instance, is `Firing`, a reached one is `AlreadyReached`;
///   both stay. A store that does not know the claims of others answers `Firing` where there may be one.
/// - After a crash of the store that has lost claims, handlers may still run. Until the longest lease has
///   passed since the store records claims again, a timer that is due is `Firing`; one that is not due was
///   not claimed, and can be deleted.
/// - Deletions are made at the time of the store's clock, if it has one.
///
/// ## Reading
/// - Every method with a tenant sees the timers of that tenant only.
/// - A read sees every write acknowledged before it. The failed firings of the current schedule stay
///   visible after it is reached.
/// - `find_due` returns scheduled timers with `due_at <= now`, by due time, at most `limit`.
/// - `find_by_correlation` searches all tenants, in the order of keys, after a key if one is given, at
///   most `limit`. Calling it again with the last key returns every timer that stays exactly once.
/// - `page` returns a tenant's timers by due time; following the cursors returns every timer that does
///   not change meanwhile exactly once, and the last page has no cursor. A cursor that the store
///   did not return is `Rejected`.
///
/// ## Purging
/// - `purge` removes timers that were reached, and tombstones of deletions that were made, before an
///   instant: at most `limit` rows per call, and returns their number. It never removes a scheduled timer.
/// - Of several callers at once, each row is removed and counted by one. A call may pass over rows that
///   another is removing.
#[async_trait]
pub trait TimerPersistencePort: Send + Sync {
    /// Stores schedules.
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome>;

    /// Reads one timer.
    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError>;

    /// Reads a tenant's due timers.
    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError>;

    /// Marks timers as reached, after their events were acknowledged.
    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome>;

    /// Deletes scheduled timers.
    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome>;

    /// Reads the timers of one request, across tenants.
    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError>;

    /// Lists a tenant's timers.
    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError>;

    /// Removes reached timers and tombstones older than the retention time.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
}
