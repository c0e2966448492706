//! Notices when the wall clock is set: by hand, by a time service, or after a machine has slept.
//!
//! Timers go by the wall clock, so a step makes them early or late by any other clock. It is logged
//! and counted.

use std::convert::Infallible;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use punctual_workflows::{LogLimiter, metric_names};

const EVERY: Duration = Duration::from_secs(1);
/// A time service that is content with slewing moves the clock by less than a millisecond in a second.
const STEP_MS: i64 = 250;

/// Both clocks at one instant.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall: Timestamp,
    monotonic: Duration,
}

impl Clocks {
    fn of(clock: &SystemClock) -> Self {
        Self {
            wall: clock.now(),
            monotonic: clock.monotonic(),
        }
    }

    /// By how many milliseconds the wall clock has gone ahead of the other since; `None` if it has not
    /// been set.
    fn step_since(self, before: Self) -> Option<i64> {
        let wall = self.wall.as_millis() - before.wall.as_millis();
        let monotonic = self.monotonic.saturating_sub(before.monotonic);
        let passed = i64::try_from(monotonic.as_millis()).unwrap_or(i64::MAX);
        let step = wall.saturating_sub(passed);
        (step.abs() >= STEP_MS).then_some(step)
    }
}

/// Compares both clocks every second, for as long as it is polled.
pub(super) async fn watch(clock: &SystemClock) -> Infallible {
    for direction in ["forward", "back"] {
        // Exported from the start as 0, so that an alert can be set on it.
        metrics::counter!(metric_names::CLOCK_STEPS, "direction" => direction).increment(0);
    }
    let lines = LogLimiter::default();
    let mut before = Clocks::of(clock);
    loop {
        clock.sleep_for(EVERY).await;
        let now = Clocks::of(clock);
        if let Some(step) = now.step_since(before) {
            let direction = if step > 0 { "forward" } else { "back" };
            metrics::counter!(metric_names::CLOCK_STEPS, "direction" => direction).increment(1);
            if let Some(left_out) = lines.try_acquire(now.monotonic) {
                tracing::warn!(
                    milliseconds = step,
                    direction,
                    left_out,
                    "the clock was set: timers go by it"
                );
            }
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(wall: i64, monotonic: u64) -> Clocks {
        Clocks {
            wall: Timestamp::from_millis(wall).unwrap(),
            monotonic: Duration::from_millis(monotonic),
        }
    }

    #[test]
    fn a_step_is_distinguished_from_a_clock_that_goes() {
        let before = clocks(1_000_000, 500);
        for (wall, monotonic, step) in [
            (1_001_000, 1_500, None),
            // A late check, and a slewed clock.
            (1_075_100, 75_500, None),
            (1_003_000, 1_500, Some(2_000)),
            (997_000, 1_500, Some(-4_000)),
            (1_000_749, 1_500, Some(-251)),
        ] {
            assert_eq!(clocks(wall, monotonic).step_since(before), step);
        }
    }
}
