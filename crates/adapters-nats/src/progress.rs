//! Whether the broker acknowledges anything: a connection that is there proves nothing.

use std::time::Duration;

/// How long silence is remembered after the last publish: whoever publishes may wait before trying
/// again.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Publishes under way, and since when none of them was answered. Times are monotonic.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    under_way: usize,
    silent_since: Option<Duration>,
    /// Whether a publish has ended without an answer since one was heard.
    is_missed: bool,
    ended_at: Duration,
}

impl Progress {
    pub(crate) fn begin(&mut self, now: Duration) {
        self.under_way += 1;
        self.silent_since.get_or_insert(now);
    }

    /// The broker has said something of a message.
    pub(crate) fn heard(&mut self, now: Duration) {
        self.silent_since = Some(now);
        self.is_missed = false;
    }

    /// A publish has ended; silence outlasts one of which the broker has said nothing.
    pub(crate) fn end(&mut self, now: Duration, is_answered: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        self.ended_at = now;
        self.is_missed |= !is_answered;
        if self.under_way == 0 && is_answered {
            self.silent_since = None;
            self.is_missed = false;
        }
    }

    /// A publish has ended of which nothing was sent: that tells nothing of the broker.
    pub(crate) fn withdraw(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 && !self.is_missed {
            self.silent_since = None;
        }
    }

    /// For how long messages were published and none was answered.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        let is_old = self.under_way == 0 && now.saturating_sub(self.ended_at) > REMEMBERED;
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
    fn who_publishes_nothing_misses_no_answer() {
        let mut progress = Progress::default();
        progress.begin(at(10));
        progress.heard(at(11));
        progress.end(at(11), true);
        assert_eq!(progress.silence(at(500)), Duration::ZERO);
    }

    #[test]
    fn silence_lasts_from_one_publish_to_the_next_until_something_is_heard() {
        let mut progress = Progress::default();
        for begun in [10, 16, 22] {
            progress.begin(at(begun));
            progress.end(at(begun + 5), false);
        }
        assert_eq!(progress.silence(at(30)), at(20));
        progress.begin(at(30));
        progress.heard(at(31));
        assert_eq!(progress.silence(at(32)), at(1));
        progress.end(at(32), true);
        assert_eq!(progress.silence(at(40)), Duration::ZERO);
    }

    #[test]
    fn who_sends_nothing_neither_begins_a_silence_nor_ends_one() {
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
        assert_eq!(progress.silence(at(500)), at(490), "it is under way");
        progress.end(at(500), false);
        assert_eq!(progress.silence(at(560)), at(550));
        assert_eq!(progress.silence(at(561)), Duration::ZERO);
    }
}
