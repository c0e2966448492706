//! Rate-limited log lines: a few per period, with the number of suppressed ones.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of lines per period.
const LINES: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// A rate limit for one log line.
#[derive(Debug, Default)]
pub struct LogLimiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start of the current period.
    period: Option<Duration>,
    lines: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// `Some`, with the number of lines suppressed since the last one, if a line may be written at
    /// this instant of the monotonic clock.
    pub fn try_acquire(&self, now: Duration) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |start: Duration| now.saturating_sub(start) >= PERIOD;
        if state.period.is_none_or(is_over) {
            state.period = Some(now);
            state.lines = 0;
        }
        if state.lines >= LINES {
            state.suppressed += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_are_written_in_each_period_and_the_rest_is_counted() {
        let (limiter, secs) = (LogLimiter::default(), Duration::from_secs);
        for _ in 0..LINES {
            assert_eq!(limiter.try_acquire(secs(100)), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limiter.try_acquire(secs(109)), None);
        }
        assert_eq!(limiter.try_acquire(secs(110)), Some(7));
        assert_eq!(limiter.try_acquire(secs(111)), Some(0));
    }
}
