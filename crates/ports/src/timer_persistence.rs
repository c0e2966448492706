//! The store of timers, as those see it who schedule, read and delete them.

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, FiringId, ScheduleOrigin, ScheduledTimer, TenantId, TimerData, TimerEntry,
    TimerKey, TimerState, Timestamp,
};

use crate::{BatchResult, PortError, PortErrorKind};

/// A schedule to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveTimer {
    /// Which timer.
    pub key: TimerKey,
    /// The request that it belongs to.
    pub correlation_id: CorrelationId,
    /// When it is to fire.
    pub due_at: Timestamp,
    /// What comes back when it fires.
    pub data: Option<TimerData>,
    /// Who asks, which decides what happens if the timer is there already.
    pub origin: ScheduleOrigin,
}

/// What became of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaveOutcome {
    /// A new timer was stored.
    Created,
    /// The timer was there and has a new schedule.
    Rescheduled,
    /// The same command was applied before, or the timer was to be ensured and is scheduled: its
    /// schedule is as it was.
    Unchanged,
    /// A newer command or a deletion was applied before.
    Stale,
    /// The timer has fired already; nothing was changed.
    AlreadyReached,
    /// What the timer would belong to does not exist; nothing was stored.
    NoParent,
}

/// A firing whose event was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredTimer {
    /// Which schedule of which timer has fired.
    pub firing_id: FiringId,
    /// When its due time was noticed.
    pub reached_at: Timestamp,
}

impl FiredTimer {
    /// Refuses a mark that would make a timer reached before its due time, as every store has to.
    ///
    /// # Errors
    /// `Rejected`, if it would.
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

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MarkOutcome {
    /// The timer is now reached.
    Marked,
    /// It was marked before.
    AlreadyReached,
    /// It has another schedule by now, which is untouched: it fires, or has fired, by itself.
    Moved,
    /// There is no such timer any more.
    NotFound,
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeleteOutcome {
    /// The timer is gone and will not fire.
    Deleted,
    /// It is firing at this moment and was left alone.
    Firing,
    /// It has fired already and was left alone.
    AlreadyReached,
    /// There is no such timer.
    NotFound,
}

/// Where a page ended. Opaque: only the store that gave it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor(pub String);

impl PageCursor {
    /// A place in a list in the order of keys: after this one.
    pub fn after_key(key: &TimerKey) -> Self {
        Self(format!("{}.{}", key.tenant_id, key.service_call_id))
    }

    /// The key that the place is after; `None` if it is no place in such a list.
    pub fn key(&self) -> Option<TimerKey> {
        let (tenant, call) = self.0.split_once('.')?;
        Some(TimerKey::new(tenant.parse().ok()?, call.parse().ok()?))
    }

    /// What a store answers to a cursor that it did not give.
    pub fn rejection(operation: &'static str) -> PortError {
        PortError::new(
            PortErrorKind::Rejected,
            operation,
            "the cursor is none that an earlier page gave: give one that it gave, or none",
        )
    }
}

/// Which timers of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerPageQuery {
    /// Whose timers.
    pub tenant_id: TenantId,
    /// Only those in this state.
    pub state: Option<TimerState>,
    /// Go on where a page ended.
    pub after: Option<PageCursor>,
    /// At most so many.
    pub limit: usize,
}

/// A part of a list of timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerPage {
    /// The timers.
    pub timers: Vec<TimerEntry>,
    /// Where to go on; `None` if there is nothing more.
    pub next: Option<PageCursor>,
}

/// The truth about timers.
///
/// # Contract
/// ## Saving
/// - What a schedule does to what is stored is decided by
///   [`ScheduleOrigin::decide`](punctual_domain::ScheduleOrigin::decide), evaluated and written as
///   one atomic step, whoever else writes at the same time.
/// - When `save` answers `Created` or `Rescheduled`, the schedule is durable.
/// - A reschedule replaces due time, registration, correlation id and data, and forgets attempts, last
///   error, retry time and claims of the old schedule.
/// - Whatever is not applied leaves the row exactly as it was.
/// - An `Ensure` creates an absent timer, of any number at the same time exactly one does, and leaves a
///   scheduled one alone, overdue or not, with its attempts, retry time and claim.
/// - Items of a batch with the same key apply in order; one item that fails spoils no other.
///
/// ## Marking
/// - `mark_fired` applies only to a scheduled timer with exactly the registration that was fired.
/// - A mark whose `reached_at` is before the due time is `Rejected` and changes nothing.
/// - A reached timer is never due again, and stays as it is until it is replaced or purged.
/// - Marking twice changes nothing.
///
/// ## Deleting
/// - A deleted timer is gone for every reader and for the queue, and will not fire.
/// - A deletion is remembered: a command not newer than it is `Stale`, while a direct call creates
///   the timer anew with a later registration than any before.
/// - A timer that a live claim holds is `Firing`, a reached one is `AlreadyReached`; both stay.
///
/// ## Reading
/// - All methods with a tenant see that tenant's timers and no other's.
/// - A reader sees all that was acknowledged before it asked, with the failed firings of the schedule in
///   force, also after it was reached.
/// - `find_due` gives scheduled timers with `due_at <= now`, by due time, at most `limit`.
/// - `find_by_correlation` looks through all tenants, in the order of keys, after a key if one is given,
///   at most `limit`. So asking again after the last key sees every timer that stays exactly once.
/// - `page` gives a tenant's timers by due time; following the cursors sees every timer that does
///   not change meanwhile exactly once, and the last page has no cursor. A cursor that the store
///   did not give is `Rejected`.
///
/// ## Purging
/// - `purge` removes timers that were reached, and memories of deletions made, before an instant:
///   at most `limit` rows in one call, and it tells how many. It never touches a scheduled timer.
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

    /// Reads the timers of one request, of whatever tenants.
    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError>;

    /// Lists a tenant's timers.
    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError>;

    /// Removes what is older than the retention time.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
}
