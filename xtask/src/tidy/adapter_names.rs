//! A conformance case holds for every adapter, so it may not know any by name, not even in a comment.

use super::problem::Problem;
use super::suite::CASES;
use super::tree::Tree;

/// Never part of an innocent word, so found anywhere. `inprocess` is `InProcess` in lower case.
const ANYWHERE: [&str; 7] = [
    "sqlite",
    "postgres",
    "jetstream",
    "memory",
    "in_process",
    "in-process",
    "inprocess",
];

/// Short enough to hide in other words, so only as a word or as a part of an identifier.
const AS_PART: [&str; 2] = ["nats", "fake"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with(CASES)) {
        for (number, line) in file.lines() {
            if let Some(name) = adapter_in(line) {
                problems.push(Problem::new(
                    &file.path,
                    number,
                    format!("say this without `{name}`: what differs between adapters is declared by the fixture."),
                ));
            }
        }
    }
    problems
}

fn adapter_in(line: &str) -> Option<&'static str> {
    let lower = line.to_lowercase();
    let parts = parts(line);
    ANYWHERE
        .into_iter()
        .find(|name| lower.contains(name))
        .or_else(|| {
            AS_PART
                .into_iter()
                .find(|name| parts.iter().any(|part| part == name))
        })
}

/// The words of a line in lower case, identifiers taken apart: `NATSBus_url` is nats, bus, url.
fn parts(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let mut parts = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        let begins_word = c.is_uppercase()
            && (before.is_some_and(char::is_lowercase) || after.is_some_and(|c| c.is_lowercase()));
        if begins_word || !c.is_alphabetic() {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphabetic()) {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn an_adapters_name_is_refused_in_code_and_in_comments() {
        for line in [
            "use punctual_adapters_sqlite::X;",
            "// PostgreSQL rounds to microseconds",
            "let bus = NatsBus::new();",
            "let bus = NATSBus::new();",
            "let nats_url = 1;",
            "FakeClock::new()",
            "InMemoryStore",
            "in_process_bus()",
            "InProcessBus",
        ] {
            let text = format!("//! Doc\n{line}\n");
            let tree = fixture(&[("crates/conformance/src/cases/a/b.rs", &text)]);
            assert_eq!(
                locations(&check(&tree)),
                ["crates/conformance/src/cases/a/b.rs:2"],
                "{line}"
            );
        }
    }

    #[test]
    fn innocent_words_and_files_outside_the_cases_are_fine() {
        let innocent = "//! Combinats of sonnats, faked work still in process.\n";
        let tree = fixture(&[
            ("crates/conformance/src/cases/a.rs", innocent),
            ("crates/conformance/src/lib.rs", "//! Also SQLite.\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
