//! The screen: how wide it is, which characters it knows, and how figures are written on it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::HumanCount;
use rustix::termios::tcgetwinsize;

use crate::Lookup;

/// The width of what has none, such as a file.
const DEFAULT_WIDTH: usize = 80;
const MIN_WIDTH: usize = 40;
/// Wider bars say no more.
const MAX_WIDTH: usize = 100;

/// What can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) width: usize,
    pub(crate) is_unicode: bool,
    /// Whether standard error knows colours.
    pub(crate) is_coloured: bool,
}

impl Screen {
    /// The terminal that standard output or standard error is, or a file.
    pub(crate) fn current(variable: Lookup<'_>) -> Self {
        let window = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stderr()));
        let columns = window.ok().map(|window| usize::from(window.ws_col));
        Self::new(columns, std::io::stderr().is_terminal(), variable)
    }

    fn new(columns: Option<usize>, is_terminal: bool, variable: Lookup<'_>) -> Self {
        let set = |name: &str| variable(name).filter(|value: &OsString| !value.is_empty());
        // Terminals know UTF-8 unless the locale says otherwise. The first of these counts.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.map(|locale| locale.to_string_lossy().to_lowercase());
        let is_utf8 = |locale: String| locale.contains("utf-8") || locale.contains("utf8");
        let is_dumb = variable("TERM").is_some_and(|value| value == "dumb");
        let columns = columns.filter(|columns| *columns > 0);
        Self {
            width: columns.unwrap_or(DEFAULT_WIDTH).clamp(MIN_WIDTH, MAX_WIDTH),
            is_unicode: locale.is_none_or(is_utf8),
            is_coloured: is_terminal && !is_dumb && set("NO_COLOR").is_none(),
        }
    }

    /// Makes good news stand out.
    pub(crate) fn green(&self, text: &str) -> String {
        if self.is_coloured {
            format!("\x1b[1;32m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Breaks a text between words; lines are no longer than the screen is wide, unless a word is.
    pub(crate) fn wrapped(&self, text: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            let fits =
                |line: &&mut String| line.chars().count() + 1 + word.chars().count() <= self.width;
            match lines.last_mut().filter(fits) {
                Some(line) => line.extend([" ", word]),
                None => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    }
}

/// A number with its thousands apart.
pub(crate) fn amount(number: usize) -> String {
    let text = HumanCount(number as u64).to_string();
    text.replace(',', " ")
}

/// A lateness in the unit that suits it. The clock is read in whole milliseconds.
pub(crate) fn late(lateness: Duration) -> String {
    match lateness.as_millis() {
        0 => "<1 ms".to_owned(),
        millis @ 1..1_000 => format!("{millis} ms"),
        millis => format!("{}.{:02} s", millis / 1_000, millis % 1_000 / 10),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn screen(columns: Option<usize>, variables: &[(&str, &str)]) -> Screen {
        Screen::new(columns, true, &|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    /// A screen that knows neither colours nor Unicode.
    pub(crate) fn plain(width: usize) -> Screen {
        screen(Some(width), &[("LANG", "C"), ("NO_COLOR", "1")])
    }

    #[test]
    fn the_width_is_that_of_the_terminal_within_limits() {
        assert_eq!(screen(None, &[]).width, 80);
        for (columns, width) in [(0, 80), (60, 60), (20, 40), (400, 100)] {
            assert_eq!(screen(Some(columns), &[]).width, width);
        }
    }

    #[test]
    fn a_locale_that_is_not_utf_8_gets_ascii() {
        for (variables, is_unicode) in [
            (&[][..], true),
            (&[("LANG", "C.UTF-8")], true),
            (&[("LANG", "de_DE.utf8")], true),
            (&[("LANG", "C")], false),
            (&[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")], false),
            (&[("LC_ALL", ""), ("LANG", "C.UTF-8")], true),
        ] {
            assert_eq!(screen(None, variables).is_unicode, is_unicode);
        }
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert_eq!(screen(None, &[]).green("x"), "\x1b[1;32mx\x1b[0m");
        assert_eq!(screen(None, &[("NO_COLOR", "")]).green("x").len(), 12);
        for variables in [&[("NO_COLOR", "1")], &[("TERM", "dumb")]] {
            assert_eq!(screen(None, variables).green("x"), "x");
        }
        assert!(!Screen::new(None, false, &|_| None).is_coloured);
    }

    #[test]
    fn texts_break_between_words_at_the_width() {
        let text = "a ".repeat(30) + &"b".repeat(50);
        let wrapped = plain(40).wrapped(&text);
        let lengths: Vec<usize> = wrapped.lines().map(str::len).collect();
        assert_eq!(lengths, [39, 19, 50]);
    }

    #[test]
    fn figures_are_easy_to_read() {
        let amounts = [0, 999, 1_000, 1_234_567].map(amount);
        assert_eq!(amounts, ["0", "999", "1 000", "1 234 567"]);
        let lates = [0, 1, 999, 1_000, 12_345].map(|millis| late(Duration::from_millis(millis)));
        assert_eq!(lates, ["<1 ms", "1 ms", "999 ms", "1.00 s", "12.34 s"]);
    }
}
