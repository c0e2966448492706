//! Foreign text in sentences: cut to a readable length, and without control characters.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Maximum length of a value in a sentence.
const LONGEST: usize = 60;

/// A text for a sentence.
pub(crate) fn cut(text: &str) -> String {
    cut_to(text, LONGEST)
}

/// A text in at most `longest` characters, the last of them `…` if it was cut.
pub(crate) fn cut_to(text: &str, longest: usize) -> String {
    // The rest need not be read: escaping makes no text shorter.
    let mut plain = escaped(text.chars().take(longest.saturating_add(1)));
    if plain.chars().nth(longest).is_some() {
        plain = plain.chars().take(longest.saturating_sub(1)).collect();
        plain.push('…');
    }
    plain
}

/// Escapes control characters and the replacement character.
fn escaped(text: impl Iterator<Item = char>) -> String {
    let mut plain = String::new();
    for c in text {
        if c.is_control() || c == char::REPLACEMENT_CHARACTER {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// A sentence as one line, without control characters and error numbers.
pub(crate) fn one_line(sentence: &str) -> String {
    escaped(without_numbers(sentence).chars())
}

/// A text that need not be UTF-8; invalid bytes become `\xff`.
pub(crate) fn os(text: &OsStr) -> String {
    let mut plain = String::new();
    for chunk in text.as_encoded_bytes().utf8_chunks() {
        plain.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(plain, "\\x{byte:02x}");
        }
    }
    plain
}

/// A path in a sentence.
pub(crate) fn path(path: &Path) -> String {
    os(path.as_os_str())
}

/// An error of the operating system, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Removes the numbers of the operating system's errors.
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
    fn control_characters_are_escaped() {
        assert_eq!(cut("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(one_line("no file a\nb\u{fffd}"), "no file a\\nb\\u{fffd}");
    }

    #[test]
    fn invalid_utf_8_is_escaped_byte_by_byte() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(os(OsStr::from_bytes(b"a\xff/\xc3\xa4")), "a\\xff/ä");
    }

    #[test]
    fn the_number_of_an_error_is_removed() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error), "No such file or directory");
        let sentence = format!("it fails ({error}): mend it");
        assert_eq!(
            without_numbers(&sentence),
            "it fails (No such file or directory): mend it"
        );
    }
}
