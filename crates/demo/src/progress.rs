//! Progress of a run: a bar on a terminal, a line now and then for anybody else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ledger::Totals;
use crate::plan::{Plan, Script};
use crate::screen::{Screen, amount, late};

/// Minimum time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of such lines, about.
const LINES: u32 = 10;

/// How far a run is.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(crate) count: usize,
    pub(crate) totals: Totals,
    pub(crate) kills: usize,
    pub(crate) until_first: Duration,
    pub(crate) is_down: bool,
    /// Whether all of them should have fired or been called by now.
    pub(crate) is_overdue: bool,
}

impl Snapshot {
    /// In a few words.
    fn words(&self) -> String {
        let (acknowledged, done) = (self.totals.acknowledged, self.totals.done);
        let left = self.count.saturating_sub(done);
        if done == 0 && acknowledged < self.count {
            return format!("storing: {} so far", amount(acknowledged));
        } else if done == 0 {
            let tenths = self.until_first.as_millis() / 100;
            return format!("first due in {}.{} s", tenths / 10, tenths % 10);
        } else if self.is_overdue && left > 0 {
            return format!("waiting for {} overdue", amount(left));
        }
        let worst = format!("worst {} late", late(self.totals.worst));
        match (self.kills, self.is_down) {
            (0, _) => worst,
            (kills, true) => format!("{worst}, kill {kills}: down"),
            (1, false) => format!("{worst}, 1 kill"),
            (kills, false) => format!("{worst}, {kills} kills"),
        }
    }
}

/// Draws how far a run is.
pub(crate) struct Progress {
    bar: ProgressBar,
    screen: Screen,
    /// What has happened to those that are done.
    done: &'static str,
    line_interval: Duration,
    /// When the next line is due, on the monotonic clock.
    next_line: Option<Duration>,
}

impl Progress {
    pub(crate) fn new(plan: &Plan, screen: Screen) -> Self {
        let count = u64::from(plan.count);
        let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr());
        // The rest of the line is for the message, which is cut where the line ends.
        let width = screen.width / 5;
        let template = format!("  {{bar:{width}.cyan}} {{pos}}/{{len}}  {{wide_msg}}");
        let chars = if screen.is_unicode {
            "█▉▊▋▌▍▎▏░"
        } else {
            "##-"
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars(chars));
        }
        Self {
            bar,
            screen,
            done: match plan.script {
                Script::Timers => "fired",
                Script::Calls => "called",
            },
            line_interval: LINE_INTERVAL.max(plan.length() / LINES),
            next_line: None,
        }
    }

    /// Draws it, at `now` of the monotonic clock.
    pub(crate) fn draw(&mut self, snapshot: &Snapshot, now: Duration) {
        let (done, words) = (snapshot.totals.done, snapshot.words());
        if !self.bar.is_hidden() {
            self.bar.set_message(words);
            self.bar.set_position(done as u64);
        } else if *self.next_line.get_or_insert(now + self.line_interval) <= now {
            self.next_line = Some(now + self.line_interval);
            let (number, count) = (amount(done), amount(snapshot.count));
            crate::print(&format!("{number} of {count} {}; {words}", self.done));
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn print_above(&self, line: &str) {
        let line = self.screen.wrapped(line);
        self.bar.suspend(|| crate::print(&line));
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_what_goes_on() {
        let mut snapshot = Snapshot {
            count: 1_000,
            until_first: Duration::from_millis(1_234),
            ..Snapshot::default()
        };
        assert_eq!(snapshot.words(), "storing: 0 so far");
        snapshot.totals.acknowledged = 1_000;
        assert_eq!(snapshot.words(), "first due in 1.2 s");
        snapshot.totals.done = 1;
        assert_eq!(snapshot.words(), "worst <1 ms late");
        snapshot.totals.worst = Duration::from_millis(7);
        snapshot.kills = 2;
        assert_eq!(snapshot.words(), "worst 7 ms late, 2 kills");
        snapshot.is_down = true;
        assert_eq!(snapshot.words(), "worst 7 ms late, kill 2: down");
        snapshot.is_overdue = true;
        assert_eq!(snapshot.words(), "waiting for 999 overdue");
        snapshot.totals.done = 1_000;
        snapshot.is_down = false;
        assert_eq!(snapshot.words(), "worst 7 ms late, 2 kills");
    }
}
