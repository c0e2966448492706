//! Time, as the rest of Punctual sees it.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;

/// Tells the time and waits for it.
///
/// # Contract
/// - `now` is the wall clock in milliseconds, truncated down: it is never ahead of the real time.
/// - `monotonic` never goes back, also when the wall clock is set back.
/// - `monotonic` moves on as time passes.
/// - `sleep_until` returns only when `now() >= instant`, also if the wall clock is set back in the
///   meantime.
/// - `sleep_until` an instant that has passed returns at once.
/// - `sleep_until` returns within a second if the wall clock is set forward past the instant.
/// - `sleep_for` returns when the duration has passed on the monotonic clock, and not before,
///   whatever is done to the wall clock meanwhile.
/// - Sleeps are independent: any number wait at once, each until its own instant, and dropping one
///   disturbs no other.
#[async_trait]
pub trait ClockPort: Send + Sync {
    /// The time of day, in UTC.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment, for measuring how long something takes.
    fn monotonic(&self) -> Duration;

    /// Waits until the wall clock shows `instant` or later.
    async fn sleep_until(&self, instant: Timestamp);

    /// Waits for a time, however the wall clock is set meanwhile.
    async fn sleep_for(&self, duration: Duration);
}
