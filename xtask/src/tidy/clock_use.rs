//! Time and ids come through ports, so that a test can hold both still.
//!
//! Clippy's `disallowed-methods` says the same with better aim, but it does not see code behind a
//! `cfg` that is off, and it can be lifted on the spot. This check reads text and can not.

use super::problem::Problem;
use super::source;
use super::tree::{SourceFile, Tree};

/// What is refused, as text. `tokio::time` is refused as a whole: an import of the module hides its functions.
pub(crate) const BANNED: [&str; 7] = [
    "SystemTime::now",
    "Instant::now",
    "OffsetDateTime::now_utc",
    "Uuid::now_v7",
    "Uuid::new_v4",
    "thread::sleep",
    "tokio::time",
];

/// Where the operating system's clock may be asked.
const EXEMPT_FOLDERS: [&str; 3] = ["crates/adapters-system/", "crates/bench/", "xtask/"];

/// Single files that may, each with its reason.
const EXEMPT: [(&str, &str); 0] = [];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    check_with(tree, &EXEMPT)
}

fn check_with(tree: &Tree, exempt: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        let by_folder = EXEMPT_FOLDERS.iter().any(|it| file.path.starts_with(it));
        let by_name = exempt.iter().any(|(path, _)| *path == file.path);
        if !by_folder && !by_name {
            problems.extend(uses(file));
        }
    }
    for (path, reason) in exempt {
        // An exemption that outlives its reason is an unnoticed hole.
        if tree.get(path).is_none_or(|file| uses(file).is_empty()) {
            let advice =
                format!("take this file out of tidy's EXEMPT (\"{reason}\"): it asks no clock.");
            problems.push(Problem::new(*path, 1, advice));
        }
    }
    problems
}

fn uses(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in file.lines() {
        let code = source::code(line);
        for name in BANNED.iter().filter(|name| contains_name(code, name)) {
            problems.push(Problem::new(
                &file.path,
                number,
                format!(
                    "take the time, the wait or the id from ClockPort or IdPort, not from `{name}`."
                ),
            ));
        }
    }
    problems
}

/// Whether the line has the complete name: `my_thread::sleeper` is not `thread::sleep`.
fn contains_name(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        ![before, after].into_iter().flatten().any(source::is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn every_banned_name_is_refused_even_behind_a_cfg() {
        for name in BANNED {
            let text = format!("//! Doc\n#[cfg(feature = \"x\")]\nuse std::{name};\n");
            let tree = fixture(&[("crates/workflows/src/lib.rs", &text)]);
            assert_eq!(
                locations(&check(&tree)),
                ["crates/workflows/src/lib.rs:3"],
                "{name}"
            );
        }
    }

    #[test]
    fn an_import_of_several_functions_is_refused() {
        let text = "//! Doc\nuse tokio::time::{self, sleep};\n";
        let tree = fixture(&[("crates/app/tests/t.rs", text)]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn comments_the_system_adapters_and_the_tool_are_fine() {
        let tree = fixture(&[
            (
                "crates/domain/src/lib.rs",
                "//! Never Instant::now.\nfn a() {} // not SystemTime::now\n",
            ),
            ("crates/adapters-system/src/lib.rs", "SystemTime::now()\n"),
            ("crates/bench/src/main.rs", "Instant::now()\n"),
            ("xtask/src/main.rs", "thread::sleep(POLL)\n"),
            (
                "crates/app/src/lib.rs",
                "my_thread::sleep(); Instant::now_or_never()\n",
            ),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn an_exemption_covers_one_file_and_only_as_long_as_it_is_needed() {
        let tree = fixture(&[
            ("crates/app/src/a.rs", "Instant::now()\n"),
            ("crates/app/src/b.rs", "Instant::now()\n"),
            ("crates/app/src/c.rs", "\n"),
        ]);
        let exempt = [
            ("crates/app/src/a.rs", "measures"),
            ("crates/app/src/c.rs", "measured once"),
            ("crates/app/src/gone.rs", "was here"),
        ];
        assert_eq!(
            locations(&check_with(&tree, &exempt)),
            [
                "crates/app/src/b.rs:1",
                "crates/app/src/c.rs:1",
                "crates/app/src/gone.rs:1",
            ]
        );
    }
}
