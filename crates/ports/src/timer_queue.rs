//! The store of timers, as the worker sees it who fires them.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{FiringId, ReachedTimer, ScheduledTimer, TenantId, TimerKey, Timestamp};

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
    /// Why it failed.
    pub reason: String,
}

impl RetryLater {
    /// Maximum number of characters that are kept of a reason: it is for people, and a handler's whole
    /// backtrace is not.
    pub const LONGEST_REASON: usize = 500;

    /// With as much of the reason as is kept.
    pub fn new(claim: ClaimRef, retry_at: Timestamp, reason: &str) -> Self {
        Self {
            claim,
            retry_at,
            reason: reason.chars().take(Self::LONGEST_REASON).collect(),
        }
    }
}

/// A firing that can never succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterClaim {
    /// The claim, which ends.
    pub claim: ClaimRef,
    /// When its due time was noticed.
    pub reached_at: Timestamp,
    /// What is kept of it.
    pub dead_letter: DeadLetter,
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
    /// The timer has another schedule by now, which is untouched: it fires, or has fired, by itself.
    /// Nothing was changed.
    Moved,
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
/// ## Passing tenants over
/// - `claim_due_except` gives no timer of the tenants that it is told to pass over, and serves the
///   others as if those tenants had none: claims, `more_due`, `next_due_at` and fairness speak of the
///   others only. Whoever passes a tenant over has to look again when it wants its timers.
/// - What a claim costs does not grow with the backlog of those who are passed over.
/// - Two sentences are weaker while somebody is passed over, where a thousand timers or more of theirs
///   are in the way: the newest due timer of the others need not be among the claimed, and
///   `next_due_at` may be earlier than the next one of the others, though later than `now`.
/// - What such a claim costs does not grow with the number of tenants either: with more than a thousand
///   of them it may end before it has seen all. It then says `more_due`, although it may be neither full
///   nor know of any, and a `next_due_at` no later than 100 ms after `now`; the next claim goes on
///   there. A tenant with due timers is seen within `t / 1000 + 1` claims that find nothing else.
///
/// ## Settling
/// - `retry_later` adds one to the attempts, keeps the reason as the timer's last error, makes the timer
///   due again at `retry_at`, but not before its due time, and ends the claim. The due time itself never
///   changes.
/// - `release` ends the claim and changes nothing else.
/// - `dead_letter` makes the timer reached and records its dead letter, both or neither; the letter's reason
///   is the timer's last error. If a letter with that id is there already, that is the one.
/// - `renew` makes the lease end `lease` after `now`.
/// - All four change nothing for a claim that is no longer the timer's, and answer `Lost`. But
///   `retry_later` and `dead_letter` answer `Moved` if the timer has another schedule by now: a handler that
///   reschedules its own timer and then fails leaves the new schedule, no retry, and no letter.
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
    /// Claims due timers of all tenants for `lease`.
    async fn claim_due(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<ClaimBatch, PortError> {
        self.claim_due_except(now, limit, lease, BTreeSet::new())
            .await
    }

    /// Claims due timers for `lease`, but none of the tenants that are passed over.
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        passed_over: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError>;

    /// Gives failed firings back, to be tried again later.
    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome>;

    /// Gives claims back unused.
    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome>;

    /// Ends firings that can never succeed.
    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome>;

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
