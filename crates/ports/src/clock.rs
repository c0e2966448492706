//! The clock: wall time, monotonic time and sleeping.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;

/// A source of time: that of one instance. Instances of one store may disagree; whose clock decides what is
/// in the contracts of [`TimerQueuePort`](crate::TimerQueuePort) and
/// [`TimerPersistencePort`](crate::TimerPersistencePort).
///
/// # Contract
/// - `now` is the wall clock in milliseconds, truncated down: it is never ahead of the real time.
/// - `monotonic` never decreases, even when the wall clock is set back.
/// - `monotonic` advances as time passes.
/// - `sleep_until` returns only when `now() >= instant`, even if the wall clock is set back meanwhile.
/// - `sleep_until` a past instant returns at once.
/// - `sleep_until` returns within a second if the wall clock is set forward past the instant.
/// - `sleep_for` returns when the duration has passed on the monotonic clock and not before, however the
///   wall clock is set meanwhile.
/// - Sleeps are independent: any number run at once, each until its own instant, and dropping one
///   affects no other.
#[async_trait]
pub trait ClockPort: Send + Sync {
    /// The wall clock, in UTC.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment, for measuring how long something takes.
    fn monotonic(&self) -> Duration;

    /// Sleeps until the wall clock is at `instant` or later.
    async fn sleep_until(&self, instant: Timestamp);

    /// Sleeps for a duration, independently of the wall clock.
    async fn sleep_for(&self, duration: Duration);
}
