//! What is seen while it runs: a bar on a terminal, a line now and then for anybody else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::screen::{Screen, amount, late};

/// How often whoever has no terminal hears something, at most.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// How many such lines there are, at most.
const LINES: u32 = 10;

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) timers: u32,
    pub(super) stored: usize,
    pub(super) fired: usize,
    /// How late the latest one was so far.
    pub(super) worst: Duration,
    pub(super) kills: usize,
    pub(super) until_first: Duration,
    pub(super) is_dead: bool,
    /// Whether all of them should have fired by now.
    pub(super) is_overdue: bool,
}

impl Stage {
    /// What goes on, in a few words.
    fn words(&self) -> String {
        if self.fired == 0 {
            return if self.stored < self.timers as usize {
                format!("storing: {} so far", amount(self.stored))
            } else {
                let tenths = self.until_first.as_millis() / 100;
                format!("first due in {}.{} s", tenths / 10, tenths % 10)
            };
        }
        let left = (self.timers as usize).saturating_sub(self.fired);
        if self.is_overdue && left > 0 {
            return format!("waiting for {} overdue", amount(left));
        }
        let worst = format!("worst {} late", late(self.worst));
        match (self.kills, self.is_dead) {
            (0, _) => worst,
            (kills, true) => format!("{worst}, kill {kills}: down"),
            (1, false) => format!("{worst}, 1 kill"),
            (kills, false) => format!("{worst}, {kills} kills"),
        }
    }
}

/// Shows how far it is.
pub(super) struct Progress {
    bar: ProgressBar,
    screen: Screen,
    /// What has happened to those that are done: they have fired.
    done: &'static str,
    line_every: Duration,
    /// When the next line is due, on the monotonic clock.
    next_line: Option<Duration>,
}

impl Progress {
    /// For so many timers or calls, which take about so long.
    pub(super) fn new(timers: u32, done: &'static str, length: Duration, screen: Screen) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(u64::from(timers)), ProgressDrawTarget::stderr());
        // The rest of the line is for the message, which is cut where the line ends.
        let bar_width = screen.width / 5;
        let template = format!("  {{bar:{bar_width}.cyan}} {{pos}}/{{len}}  {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars(if screen.is_unicode {
                "█▉▊▋▌▍▎▏░"
            } else {
                "##-"
            }));
        }
        Self {
            bar,
            screen,
            done,
            line_every: LINE_EVERY.max(length / LINES),
            next_line: None,
        }
    }

    /// Shows it, at `now` of the monotonic clock.
    pub(super) fn show(&mut self, stage: &Stage, now: Duration) {
        if !self.bar.is_hidden() {
            self.bar.set_message(stage.words());
            self.bar.set_position(stage.fired as u64);
        } else if *self.next_line.get_or_insert(now + self.line_every) <= now {
            self.next_line = Some(now + self.line_every);
            let (fired, timers) = (amount(stage.fired), amount(stage.timers as usize));
            let (done, words) = (self.done, stage.words());
            crate::say(&format!("{fired} of {timers} {done}; {words}"));
        }
    }

    /// Says something above the bar.
    pub(super) fn say(&self, line: &str) {
        // Without the bar out of the way, the line would be written into it.
        let line = self.screen.wrapped(line);
        self.bar.suspend(|| crate::say(&line));
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_tell_what_goes_on() {
        let mut stage = Stage {
            timers: 1_000,
            ..Stage::default()
        };
        assert_eq!(stage.words(), "storing: 0 so far");
        stage.stored = 1_000;
        stage.until_first = Duration::from_millis(1_234);
        assert_eq!(stage.words(), "first due in 1.2 s");
        stage.fired = 1;
        assert_eq!(stage.words(), "worst <1 ms late");
        stage.worst = Duration::from_millis(7);
        stage.kills = 2;
        assert_eq!(stage.words(), "worst 7 ms late, 2 kills");
        stage.is_dead = true;
        assert_eq!(stage.words(), "worst 7 ms late, kill 2: down");
        stage.is_overdue = true;
        assert_eq!(stage.words(), "waiting for 999 overdue");
        stage.fired = 1_000;
        stage.is_dead = false;
        assert_eq!(stage.words(), "worst 7 ms late, 2 kills");
    }
}
