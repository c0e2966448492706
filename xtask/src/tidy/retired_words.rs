//! Words that the project has given up for those of its field (docs/glossary.md), so that they do
//! not come back.
//!
//! A name counts as the words that it is made of: `last_look` and `LastLook` are "last look".

use super::problem::Problem;
use super::tree::{SourceFile, Tree};

/// What is not written any more, and what is written instead. The words of a phrase are those that
/// follow each other in a line.
const RETIRED: [(&str, &str); 33] = [
    ("look", "poll, check, read or find"),
    ("looks", "polls, checks, reads or finds"),
    ("looked", "polled, checked, read or found"),
    ("looking", "polling, checking, reading or finding"),
    ("overlooked", "stuck, or missed"),
    ("in hand", "in flight, or leased"),
    ("hold back", "pause"),
    ("holds back", "pauses"),
    ("held back", "paused"),
    ("bury", "dead-letter"),
    ("buries", "dead-letters"),
    ("buried", "dead-lettered"),
    ("burial", "dead letter"),
    ("burials", "dead letters"),
    ("bell", "notifier"),
    ("rung", "notified"),
    ("chore", "background task"),
    ("chores", "background tasks"),
    ("bite", "batch"),
    ("bites", "batches"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("errand", "command, or maintenance"),
    ("desk", "writer state"),
    ("made good", "recovered"),
    ("make good", "recover"),
    ("set aside", "parked"),
    ("blot", "redact"),
    ("blots", "redacts"),
    ("blotted", "redacted"),
    ("fold in", "checkpoint"),
    ("folded in", "checkpointed"),
    ("so many", "a maximum number, or at most"),
];

/// The released migrations, which never change, a file that a released version wrote, and this list.
const EXEMPT: [&str; 6] = [
    // They insert into tables as released migrations made them.
    "crates/adapters-sqlite/tests/it/migrations.rs",
    "crates/adapters-sqlite/tests/it/schema.rs",
    "crates/service/tests/it/previous_version.sql",
    "migrations/sqlite/",
    "migrations/sqlite_timers/",
    "xtask/src/tidy/retired_words.rs",
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let is_exempt = |file: &&SourceFile| EXEMPT.iter().any(|it| file.path.starts_with(it));
    let files = tree.files.iter().filter(|file| !is_exempt(file));
    files
        .flat_map(|file| {
            let found = file.lines().flat_map(move |(number, line)| {
                retired(line).map(move |(word, instead)| {
                    let advice = format!("write {instead} instead of `{word}`.");
                    Problem::new(&file.path, number, advice)
                })
            });
            in_name(file).into_iter().chain(found)
        })
        .collect()
}

/// A file's own name is read, too.
fn in_name(file: &SourceFile) -> Option<Problem> {
    let (word, instead) = retired(&file.path).next()?;
    let advice = format!("name the file for {instead} instead of `{word}`.");
    Some(Problem::new(&file.path, 1, advice))
}

fn retired(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = format!(" {} ", words(line).join(" "));
    RETIRED
        .into_iter()
        .filter(move |(phrase, _)| words.contains(&format!(" {phrase} ")))
}

/// The words of a line in small letters, those of its names each by itself.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && was_small) {
            words.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::fixture;

    #[test]
    fn a_retired_word_is_found_in_prose_in_names_and_in_names_of_files() {
        for line in [
            "// The last look.",
            "fn last_look() {}",
            "struct LastLook;",
            "const LAST_LOOK: u8 = 0;",
            "let x = \"in hand\";",
            "max_in_hand: 7,",
        ] {
            let tree = fixture(&[("crates/a/src/lib.rs", line)]);
            assert_eq!(check(&tree).len(), 1, "{line}");
        }
        let tree = fixture(&[("crates/a/src/last_look.rs", "\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn other_words_that_contain_one_are_fine() {
        let text = "//! A lookup outlooks Deskton; hand in, belly.\nstruct InFlight;\n";
        let tree = fixture(&[("crates/a/src/lib.rs", text)]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_released_migration_keeps_its_words() {
        let tree = fixture(&[("migrations/sqlite/0006_x.sql", "look_at TEXT\n")]);
        assert_eq!(check(&tree), []);
    }
}
