//! Log lines of which there may be very many: a few of them, with how many were left out.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many lines are written in each period.
const LINES: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// Says whether one more line may be written.
#[derive(Debug, Default)]
pub struct Sparing {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    period: Option<Duration>,
    lines: u32,
    left_out: u64,
}

impl Sparing {
    /// `Some`, with how many were left out since the last one, if a line may be written at this instant
    /// of the monotonic clock.
    pub fn may_say(&self, now: Duration) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began: Duration| now.saturating_sub(began) >= PERIOD;
        if state.period.is_none_or(is_over) {
            state.period = Some(now);
            state.lines = 0;
        }
        if state.lines >= LINES {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_are_written_in_each_period_and_the_rest_is_counted() {
        let (sparing, secs) = (Sparing::default(), Duration::from_secs);
        for _ in 0..LINES {
            assert_eq!(sparing.may_say(secs(100)), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(sparing.may_say(secs(109)), None);
        }
        assert_eq!(sparing.may_say(secs(110)), Some(7));
        assert_eq!(sparing.may_say(secs(111)), Some(0));
    }
}
