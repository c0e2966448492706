//! The timer store, as seen by the worker that fires timers.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{
    Existing, FiringId, ReachedTimer, ScheduledTimer, TenantId, TimerKey, Timestamp,
};

use crate::{BatchResult, DeadLetter, PortError};

/// Distinguishes a claim from every other claim of the same timer, or of the same attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimToken(pub u64);

/// A lease on a due timer: until it expires, the timer belongs to one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The timer.
    pub timer: ScheduledTimer,
    /// Number of failed firings so far.
    pub attempts: u32,
    /// Identifies this claim.
    pub token: ClaimToken,
    /// When the lease expires unless it is renewed, by the clock of the caller: `now` plus the lease.
    pub lease_until: Timestamp,
}

impl Claim {
    /// The reference by which the queue knows this claim.
    pub fn reference(&self) -> ClaimRef {
        ClaimRef {
            firing_id: self.timer.firing_id(),
            token: self.token,
        }
    }
}

/// Reference to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// The firing that was claimed.
    pub firing_id: FiringId,
    /// Which claim of that firing.
    pub token: ClaimToken,
}

/// Result of polling the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimBatch {
    /// The claimed timers, by due time.
    pub claims: Vec<Claim>,
    /// Whether due timers were left unclaimed. A hint if other instances claim, too.
    pub more_due: bool,
    /// When to poll next, by the clock of the caller: the earliest due time after now among the unclaimed
    /// timers, or the end of another instance's lease.
    pub next_due_at: Option<Timestamp>,
}

/// A failed firing that is to be retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryLater {
    /// The claim, which ends.
    pub claim: ClaimRef,
    /// When the timer may be claimed again.
    pub retry_at: Timestamp,
    /// Why it failed.
    pub reason: String,
}

impl RetryLater {
    /// Maximum number of characters kept of a reason, which is a message and not a backtrace.
    pub const LONGEST_REASON: usize = 500;

    /// A retry, with its reason truncated to [`Self::LONGEST_REASON`].
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
    /// When the worker noticed that the due time was reached.
    pub reached_at: Timestamp,
    /// The dead letter to record.
    pub dead_letter: DeadLetter,
}

/// A position in the order of firings: after the timer that it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FiredCursor {
    /// `reached_at` of that timer.
    pub reached_at: Timestamp,
    /// Its key.
    pub key: TimerKey,
}

impl FiredCursor {
    /// The position after a firing.
    pub fn of(reached: &ReachedTimer) -> Self {
        Self {
            reached_at: reached.reached_at(),
            key: reached.timer().key.clone(),
        }
    }
}

/// A page of fired timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredPage {
    /// The complete timers, so that their events can be published again.
    pub timers: Vec<ReachedTimer>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<FiredCursor>,
}

/// Size of the backlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of scheduled timers.
    pub pending: usize,
    /// Number of those that are due.
    pub overdue: usize,
}

/// Outcome of settling or renewing a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The change was applied.
    Applied,
    /// The timer was rescheduled since: the new schedule fires, or has fired, by itself. Nothing was
    /// changed.
    Moved,
    /// The claim is no longer current: its lease expired and another worker claimed the timer, or the
    /// timer was marked, rescheduled or deleted. Nothing was changed.
    Lost,
}

impl ClaimOutcome {
    /// Why a claim is no longer current, given what is stored for its key.
    pub fn of_lost(claim: &ClaimRef, existing: Existing) -> Self {
        if existing.is_moved_from(claim.firing_id.registration) {
            Self::Moved
        } else {
            Self::Lost
        }
    }
}

/// The timers of all tenants, in the order of their due times.
///
/// These are infrastructure queries: besides tracing and retention, the only ones across tenants.
///
/// An instance is one opening of the store; what is opened after a crash is another one. Several may fire
/// from a store that says so.
///
/// # Contract
/// ## Claiming
/// - `claim_due` returns only scheduled timers whose due time, or retry time if they have one, is at
///   or before `now`. It never returns one early.
/// - A claimed timer is not returned to another caller until its lease expires (`now >= lease_until`),
///   it is released, or it is rescheduled.
/// - A timer whose lease has expired is returned again, under a new token.
/// - If no more than `limit` are due, all that nobody else is claiming are returned, by due time (retry
///   time).
/// - `next_due_at` is the earliest due time (retry time) after `now` among unclaimed timers, and
///   `more_due` is whether due timers were left unclaimed.
/// - A store that may never claim, for example because it was opened beside the one that does,
///   returns `Rejected`, and the worker stops.
/// - Claims end with the process that made them, or at the latest with their lease.
///
/// ## Several instances
/// - A timer is claimed by one instance at a time, however their calls interleave. A call may pass over
///   what another call is claiming or changing at that moment, and does not wait for it.
/// - Every claim of a timer has a token that no other claim of it has, whichever instance made it. A token
///   may be shared by the claims of one call.
/// - `more_due` is a hint: it may be true although another instance has claimed the rest. It is false only
///   if nothing was left that nobody was claiming.
/// - `next_due_at` is also at or before the end of each lease of another instance, so that a timer is taken
///   over without a long poll. A store need not query leases with every call: it may know of one up to a
///   second late, and announce its end up to a second late, or too early; but always after `now`. The
///   leases of an excluded tenant may count.
/// - The ends of an instance's own leases are not announced: it renews, settles or releases them.
/// - What another instance made due in the past, by a save, a retry or a release, may be passed over for
///   up to five seconds. The fixture of the suites has a store that does not.
/// - Each instance gives the tenants their turns by itself, and excludes its own.
///
/// ## Clocks
/// - A store may have a clock of its own, which all instances share. A timer is due once both clocks have
///   reached its due time (retry time), the caller's `now` and the store's: it is early by neither.
/// - Leases begin, expire and are renewed by the store's clock. `lease_until` and `next_due_at` are by the
///   caller's, converted by the difference of both at the call, and `next_due_at` is always after `now`.
/// - In a store without a clock of its own, the `now` of each call is its time.
///
/// ## Fairness
/// - If more is due than `limit`, the claim is full and shared: among the `t` tenants of the store,
///   each with due timers gets its oldest claimed within `t / max(1, limit / 8) + 1` claims, however
///   large the backlog of another tenant is.
/// - If more is due than `limit` and `limit` is 4 or more, the newest due timer is among the
///   claimed, so that fresh timers do not wait for a backlog.
///
/// ## Excluding tenants
/// - `claim_due_except` returns no timer of the excluded tenants, and serves the others as if those
///   tenants had none: claims, `more_due`, `next_due_at` and fairness concern the others only. The
///   caller has to poll again once it accepts timers of an excluded tenant.
/// - The cost of a claim does not grow with the backlog of the excluded tenants.
/// - Two guarantees are weaker where a thousand or more timers of excluded tenants are in the way: the
///   newest due timer of the others need not be among the claimed, and `next_due_at` may be earlier
///   than the next one of the others, though later than `now`.
/// - The cost of such a claim does not grow with the number of tenants either: with more than a
///   thousand of them it may end before it has visited all. It then returns `more_due`, whether or not
///   it found more or is full, and a `next_due_at` at most 100 ms after `now`; the next claim continues
///   from there. A tenant with due timers is visited within `t / 1000 + 1` claims that find nothing else.
///
/// ## Settling
/// - `retry_later` increments the attempts, stores the reason as the timer's last error, makes the
///   timer due again at `retry_at`, but not before its due time, and ends the claim. The due time
///   itself never changes.
/// - `release` ends the claim and changes nothing else.
/// - `dead_letter` makes the timer reached and records its dead letter atomically; the reason of the dead
///   letter becomes the timer's last error. A dead letter that already exists under that id is kept.
/// - `renew` makes the lease expire `lease` after `now`.
/// - All four return `Lost` and change nothing for a claim that is no longer current. If the timer was
///   rescheduled, `retry_later` and `dead_letter` return `Moved` instead: a handler that reschedules its
///   own timer and then fails leaves the new schedule, no retry and no dead letter.
/// - A claim is current if its token is that of the last claim, and the timer has exactly the registration
///   that was claimed: registration time and due time. Whether a claim whose lease expired is current until
///   the timer is claimed again is left open.
/// - If the store loses claims in a crash of its own while instances run on, those claims are no longer
///   current, and their timers may be claimed again at once. Until then, `renew` by the instance that made
///   such a claim records it again, if the timer is due and has exactly the registration that was claimed:
///   a firing that is published for longer than a lease stays known. Whether it does so for a claim that was
///   released before is left open.
///
/// ## Republishing
/// - `fired_since` returns the reached timers of all tenants, dead-lettered ones included, whose
///   `reached_at` is at or after `since`. They are complete: an event made from one has the firing id
///   and content of the first event.
/// - They are ordered by `reached_at`, then tenant, then service call, at most `limit` of them, after
///   the cursor if one is given. Following the cursors returns each timer exactly once; timers reached
///   meanwhile may be on a later page.
/// - A timer that was replaced since is scheduled again, and its earlier firing is not returned.
///
/// ## Counting
/// - `backlog` counts the scheduled timers of all tenants, claimed ones included, and among them those
///   whose due time (retry time) is at or before `now`; each number up to `limit`.
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

    /// Claims due timers for `lease`, none of them of the excluded tenants.
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError>;

    /// Ends claims whose firing failed, to be retried later.
    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome>;

    /// Ends claims unused, without counting an attempt.
    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome>;

    /// Dead-letters firings that can never succeed.
    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome>;

    /// Extends the leases of claims.
    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome>;

    /// Size of the backlog, each number counted up to `limit`.
    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError>;

    /// Reads the timers that were reached at an instant or later.
    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError>;
}
