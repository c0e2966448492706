//! Work that a manual clock can drive, so that tests need neither threads nor waiting.

use async_trait::async_trait;
use punctual_domain::Timestamp;

/// A worker as seen by a clock that is moved by hand.
///
/// A real process runs its workers as tasks that sleep. A test moves a fake clock instead, which
/// asks every worker when it wants to be stepped next, sets the time to that instant and steps it.
#[async_trait]
pub trait Stepped: Send + Sync {
    /// The instant from which on it has something to do; `None` once it has stopped. May be asked
    /// at any time, also while a step is suspended.
    fn next_wake(&self) -> Option<Timestamp>;

    /// Time is about to pass, for the first time since somebody else was at work: whatever may have
    /// been written meanwhile has to be looked for.
    fn before_time_passes(&self) {}

    /// Does all there is to do at the clock's current time. The future is polled again whenever
    /// the clock has moved, so it need not register with the clock to notice that.
    async fn step(&self);
}
