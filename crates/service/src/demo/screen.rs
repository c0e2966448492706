//! What we write to: how wide it is, which characters it knows, and how figures are written.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use crate::settings::Lookup;

/// The width for whoever has none, such as a file.
const USUAL_WIDTH: usize = 80;
const NARROWEST: usize = 40;
/// Wider bars tell no more.
const WIDEST: usize = 100;

/// What we can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) width: usize,
    pub(super) is_unicode: bool,
    /// Whether standard error knows colours.
    pub(super) is_coloured: bool,
}

impl Screen {
    /// The terminal that standard output or standard error is, or a file.
    pub(super) fn ours(variable: Lookup<'_>) -> Self {
        let window = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stderr()));
        let columns = window.ok().map(|window| usize::from(window.ws_col));
        Self::new(columns, std::io::stderr().is_terminal(), variable)
    }

    fn new(columns: Option<usize>, is_terminal: bool, variable: Lookup<'_>) -> Self {
        let known = columns.filter(|columns| *columns > 0);
        let set = |name| variable(name).is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|value| value == "dumb");
        Self {
            width: known.unwrap_or(USUAL_WIDTH).clamp(NARROWEST, WIDEST),
            is_unicode: is_unicode(variable),
            is_coloured: is_terminal && !is_dumb && !set("NO_COLOR"),
        }
    }

    /// Makes a good news stand out.
    pub(super) fn green(&self, text: &str) -> String {
        if self.is_coloured {
            format!("\x1b[1;32m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Breaks a text between words; lines are no longer than the screen is wide, unless a word is.
    pub(super) fn wrapped(&self, text: &str) -> String {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let last = lines.len() - 1;
            let line = &mut lines[last];
            if line.is_empty() {
                line.push_str(word);
            } else if line.chars().count() + 1 + word.chars().count() <= self.width {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines.join("\n")
    }
}

/// Terminals know UTF-8 unless the locale says otherwise. The first of these variables that is set
/// counts.
fn is_unicode(variable: Lookup<'_>) -> bool {
    let set = |name: &&str| variable(name).filter(|value: &OsString| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// A number with its thousands apart.
pub(super) fn amount(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// How late, in the unit that suits it. The clock is read in whole milliseconds.
pub(super) fn late(lateness: Duration) -> String {
    match lateness.as_millis() {
        0 => "<1 ms".to_owned(),
        millis @ 1..1_000 => format!("{millis} ms"),
        millis => format!("{}.{:02} s", millis / 1_000, millis % 1_000 / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(columns: Option<usize>, variables: &[(&str, &str)]) -> Screen {
        Screen::new(columns, true, &|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_width_is_that_of_the_terminal_within_limits() {
        for (columns, width) in [
            (None, 80),
            (Some(0), 80),
            (Some(60), 60),
            (Some(20), 40),
            (Some(400), 100),
        ] {
            assert_eq!(screen(columns, &[]).width, width);
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
        let screen = screen(Some(40), &[]);
        let text = "a ".repeat(30) + &"b".repeat(50);
        let wrapped = screen.wrapped(&text);
        let lengths: Vec<usize> = wrapped.lines().map(str::len).collect();
        assert_eq!(lengths, [39, 19, 50]);
    }

    #[test]
    fn figures_are_easy_to_read() {
        assert_eq!(amount(0), "0");
        assert_eq!(amount(999), "999");
        assert_eq!(amount(1_000), "1 000");
        assert_eq!(amount(1_234_567), "1 234 567");
        for (millis, text) in [
            (0, "<1 ms"),
            (1, "1 ms"),
            (999, "999 ms"),
            (1_000, "1.00 s"),
            (12_345, "12.34 s"),
        ] {
            assert_eq!(late(Duration::from_millis(millis)), text);
        }
    }
}
