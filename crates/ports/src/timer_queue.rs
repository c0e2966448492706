//! The store of timers, as the worker sees it who fires them.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{FiringId, ReachedTimer, ScheduledTimer, TimerKey, Timestamp};

use crate::{BatchResult, DeadLetter, PortError};

/// Tells a claim from every other claim of the same timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimToken(pub u64);

/// A due timer that one worker has to itself until the lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The timer.
    pub timer: ScheduledTimer,
    /// How often its firing has failed before.
    pub attempts: u32,
    /// Names this claim.
    pub token: ClaimToken,
    /// When the claim ends unless it is renewed.
    pub lease_until: Timestamp,
}

impl Claim {
    /// Names this claim to the queue.
    pub fn reference(&self) -> ClaimRef {
        ClaimRef {
            firing_id: self.timer.firing_id(),
            token: self.token,
        }
    }
}

/// Names a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// What was claimed.
    pub firing_id: FiringId,
    /// Which claim of it.
    pub token: ClaimToken,
}

/// What a look at the queue brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimBatch {
    /// The timers that are now claimed, by due time.
    pub claims: Vec<Claim>,
    /// Whether more is due than was claimed.
    pub more_due: bool,
    /// When the next unclaimed timer becomes due that is not due yet.
    pub next_due_at: Option<Timestamp>,
}

/// A firing that failed and is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryLater {
    /// The claim, which ends.
    pub claim: ClaimRef,
    /// When it may be claimed again.
    pub retry_at: Timestamp,
}

/// A firing that can never succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burial {
    /// The claim, which ends.
    pub claim: ClaimRef,
    /// When its due time was noticed.
    pub reached_at: Timestamp,
    /// What is kept of it.
    pub letter: DeadLetter,
}

/// A place in the order of firings: after the timer that it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FiredCursor {
    /// When the last one's due time was noticed.
    pub reached_at: Timestamp,
    /// Which timer it was.
    pub key: TimerKey,
}

impl FiredCursor {
    /// The place of a firing.
    pub fn of(reached: &ReachedTimer) -> Self {
        Self {
            reached_at: reached.reached_at(),
            key: reached.timer().key.clone(),
        }
    }
}

/// Some of the timers that were fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredPage {
    /// The timers, whole, so that their events can be made again.
    pub timers: Vec<ReachedTimer>,
    /// Where to go on, if there are more.
    pub next: Option<FiredCursor>,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Timers that wait for their due time, or to be fired.
    pub pending: usize,
    /// Those of them that could have been fired by now.
    pub overdue: usize,
}

/// What became of something that was said about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// It was done.
    Applied,
    /// The claim is no longer the timer's: its lease ended and another worker has it, or the timer
    /// was marked, moved or deleted. Nothing was changed.
    Lost,
}

/// The timers of all tenants, in the order in which they are due.
///
/// These are infrastructure queries: the only ones, besides tracing and retention, that look
/// across tenants.
///
/// # Contract
/// ## Claiming
/// - `claim_due` gives only scheduled timers whose due time, or retry time if they have one, is at
///   or before `now`. It never gives one early.
/// - A claimed timer is given to nobody else until its lease has ended (`now >= lease_until`), it
///   is released, or it is rescheduled.
/// - A timer whose lease has ended is given again, under another token.
/// - If no more than `limit` are due, all of them are given, by due time (retry time).
/// - `next_due_at` is the earliest due time (retry time) after `now` among timers that nobody has
///   claimed, and `more_due` tells whether something due was left behind.
/// - A store that may never claim, for example because it was opened beside the one that does,
///   answers `Rejected`, and the worker stops.
/// - Claims do not survive the process that holds them, or else end with their lease.
///
/// ## Fairness
/// - If more is due than `limit`, the claim is full, and it is shared: among the `t` tenants of the
///   store, each with due timers gets its oldest claimed within `t / max(1, limit / 8) + 1` claims,
///   however large the backlog of another is.
/// - If more is due than `limit` and `limit` is 4 or more, the newest due timer is among the
///   claimed, so that fresh timers do not wait for a backlog.
///
/// ## Settling
/// - `retry_later` adds one to the attempts, makes the timer due again at `retry_at`, but not before
///   its due time, and ends the claim. The due time itself never changes.
/// - `release` ends the claim and changes nothing else.
/// - `bury` makes the timer reached and records its dead letter, both or neither. If a
///   letter with that id is there already, that is the one.
/// - `renew` makes the lease end `lease` after `now`.
/// - All four answer `Lost`, and change nothing, for a claim that is no longer the timer's.
///
/// ## Looking back
/// - `fired_since` gives the timers of all tenants that are reached, buried ones included, with a
///   `reached_at` at or after `since`: whole, so that an event made of one has the same firing id
///   and content as the first time.
/// - They come by `reached_at`, then tenant, then service call, at most `limit` of them, after the
///   cursor if there is one. A page with a cursor is followed by others, and each timer is on one of
///   them; what is reached meanwhile may be on a later one.
/// - A timer that was replaced since is scheduled, and its firing is not among them.
///
/// ## Counting
/// - `backlog` counts the scheduled timers of all tenants, claimed ones included, and among them those
///   whose due time (retry time) is at or before `now`; each number no further than `limit`.
#[async_trait]
pub trait TimerQueuePort: Send + Sync {
    /// Claims due timers for `lease`.
    async fn claim_due(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<ClaimBatch, PortError>;

    /// Gives failed firings back, to be tried again later.
    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome>;

    /// Gives claims back unused.
    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome>;

    /// Ends firings that can never succeed.
    async fn bury(&self, batch: Vec<Burial>) -> BatchResult<ClaimOutcome>;

    /// Keeps claims for longer.
    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome>;

    /// How much there is to do, counted no further than `limit`.
    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError>;

    /// The timers that were reached at an instant or later.
    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError>;
}
