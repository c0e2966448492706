//! Other people's text in our sentences: cut to a readable length, and unable to play tricks on a
//! terminal.

use std::io;

/// More of a value than this only hides the sentence around it.
const LONGEST: usize = 60;

/// A text as it may stand in a sentence.
pub(crate) fn cut(text: &str) -> String {
    cut_to(text, LONGEST)
}

/// A text in at most so many characters, the last of them `…` if something is missing.
pub(crate) fn cut_to(text: &str, longest: usize) -> String {
    if text.chars().nth(longest).is_none() {
        return text.chars().map(plain).collect();
    }
    let kept = longest.saturating_sub(1);
    text.chars().take(kept).map(plain).chain(['…']).collect()
}

/// What a terminal would take for an order, as a sign that says nothing.
fn plain(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

/// A sentence of ours, with whatever names stand in it, as one line that people can read.
pub(crate) fn one_line(sentence: &str) -> String {
    without_numbers(sentence).chars().map(plain).collect()
}

/// What the operating system says, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// A sentence without the numbers of the operating system's errors, which say nothing to people.
fn without_numbers(sentence: &str) -> String {
    let mut parts = sentence.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        text.push_str(rest.strip_prefix(')').unwrap_or(rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(60)), "ä".repeat(60));
        assert_eq!(cut(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
    }

    #[test]
    fn nothing_in_it_moves_the_cursor() {
        assert_eq!(cut("a\u{1b}[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
        assert_eq!(one_line("no file a\nb"), "no file a\u{fffd}b");
    }

    #[test]
    fn the_number_of_an_error_says_nothing_to_people() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error), "No such file or directory");
        let sentence = format!("it fails ({error}): mend it");
        assert_eq!(
            without_numbers(&sentence),
            "it fails (No such file or directory): mend it"
        );
    }
}
