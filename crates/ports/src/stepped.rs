//! Workers that a manual clock can drive, so that tests need neither threads nor sleeps.

use async_trait::async_trait;
use punctual_domain::Timestamp;

/// A worker driven by a manual clock.
///
/// A real process runs its workers as tasks that sleep. A test advances a fake clock instead, which
/// reads the next wake-up of every worker, sets the time to that instant and steps the worker.
#[async_trait]
pub trait Stepped: Send + Sync {
    /// When the worker next has something to do; `None` once it has stopped. May be called at any time,
    /// also while a step is suspended.
    fn next_wake(&self) -> Option<Timestamp>;

    /// Called before time passes for the first time since the test itself ran: the worker has to poll for
    /// what was written meanwhile.
    fn before_time_passes(&self) {}

    /// Does all work due at the clock's current time. The future is polled again whenever
    /// the clock has moved, so it need not register with the clock to notice that.
    async fn step(&self);
}
