//! Detects a broker that is connected and acknowledges nothing.

use std::time::Duration;

/// Time for which silence counts after the last publish: the publisher may back off before a retry.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Publishes in flight, and since when none of them was answered. Times are monotonic.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    in_flight: usize,
    silent_since: Option<Duration>,
    /// Whether a publish ended without a response since the last one.
    is_missed: bool,
    ended_at: Duration,
}

impl Progress {
    pub(crate) fn begin(&mut self, now: Duration) {
        self.in_flight += 1;
        self.silent_since.get_or_insert(now);
    }

    /// Records a response of the broker.
    pub(crate) fn answered(&mut self, now: Duration) {
        self.silent_since = Some(now);
        self.is_missed = false;
    }

    /// Records the end of a publish; silence outlasts one without a response.
    pub(crate) fn end(&mut self, now: Duration, is_answered: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ended_at = now;
        self.is_missed |= !is_answered;
        if self.in_flight == 0 && is_answered {
            self.silent_since = None;
            self.is_missed = false;
        }
    }

    /// Records the end of a publish of which nothing was sent, and which says nothing about the broker.
    pub(crate) fn withdraw(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && !self.is_missed {
            self.silent_since = None;
        }
    }

    /// Duration for which messages were published and none was answered.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        let is_old = self.in_flight == 0 && now.saturating_sub(self.ended_at) > REMEMBERED;
        match self.silent_since {
            Some(since) if !is_old => now.saturating_sub(since),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn without_a_publish_there_is_no_silence() {
        let mut progress = Progress::default();
        progress.begin(at(10));
        progress.answered(at(11));
        progress.end(at(11), true);
        assert_eq!(progress.silence(at(500)), Duration::ZERO);
    }

    #[test]
    fn silence_lasts_across_publishes_until_a_response() {
        let mut progress = Progress::default();
        for begun in [10, 16, 22] {
            progress.begin(at(begun));
            progress.end(at(begun + 5), false);
        }
        assert_eq!(progress.silence(at(30)), at(20));
        progress.begin(at(30));
        progress.answered(at(31));
        assert_eq!(progress.silence(at(32)), at(1));
        progress.end(at(32), true);
        assert_eq!(progress.silence(at(40)), Duration::ZERO);
    }

    #[test]
    fn a_publish_that_sends_nothing_neither_starts_a_silence_nor_ends_one() {
        let mut progress = Progress::default();
        progress.begin(at(10));
        progress.withdraw();
        assert_eq!(progress.silence(at(40)), Duration::ZERO);
        progress.begin(at(50));
        progress.end(at(55), false);
        progress.begin(at(56));
        progress.withdraw();
        assert_eq!(progress.silence(at(60)), at(10));
    }

    #[test]
    fn silence_is_forgotten_a_minute_after_the_last_publish() {
        let mut progress = Progress::default();
        progress.begin(at(10));
        assert_eq!(progress.silence(at(500)), at(490), "it is in flight");
        progress.end(at(500), false);
        assert_eq!(progress.silence(at(560)), at(550));
        assert_eq!(progress.silence(at(561)), Duration::ZERO);
    }
}
