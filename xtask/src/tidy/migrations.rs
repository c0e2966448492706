//! Both databases go through the same history: one number, one name, two dialects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::problem::Problem;
use super::tree::Tree;

/// The folders of the shared set, one for each dialect.
const SHARED: [&str; 2] = ["sqlite", "postgres"];

/// The same for timers in a database of their own.
const TIMERS: [&str; 2] = ["sqlite_timers", "postgres_timers"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for folders in [SHARED, TIMERS] {
        let histories = folders.map(|folder| history(tree, folder));
        for (folder, names) in folders.iter().zip(&histories) {
            problems.extend(malformed(folder, names));
        }
        // A dialect without a folder is not supported yet, so there is nothing to be in step with.
        if folders.iter().all(|folder| folder_exists(tree, folder)) {
            let [first, second] = &histories;
            problems.extend(missing(folders[1], second, first));
            problems.extend(missing(folders[0], first, second));
        }
    }
    problems
}

fn folder_exists(tree: &Tree, folder: &str) -> bool {
    tree.root.join("migrations").join(folder).is_dir()
}

/// The names of the files in one history's folder.
fn history(tree: &Tree, folder: &str) -> BTreeSet<String> {
    let folder = format!("migrations/{folder}/");
    tree.files
        .iter()
        .filter_map(|file| file.path.strip_prefix(&folder))
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "sql"))
        .map(String::from)
        .collect()
}

fn malformed(folder: &str, names: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for name in names {
        let path = format!("migrations/{folder}/{name}");
        let Some(number) = number_of(name) else {
            let advice = "name this file `NNNN_name.sql`: four digits, then lowercase words.";
            problems.push(Problem::new(path, 1, advice));
            continue;
        };
        if let Some(other) = numbers.insert(number, name) {
            let advice = format!("give this migration a number of its own: `{other}` has it too.");
            problems.push(Problem::new(path, 1, advice));
        }
    }
    problems
}

fn number_of(name: &str) -> Option<&str> {
    let (number, rest) = name.strip_suffix(".sql")?.split_once('_')?;
    let lowercase = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let formed = number.len() == 4
        && number.chars().all(|c| c.is_ascii_digit())
        && !rest.is_empty()
        && rest.chars().all(lowercase);
    formed.then_some(number)
}

fn missing(folder: &str, names: &BTreeSet<String>, others: &BTreeSet<String>) -> Vec<Problem> {
    others
        .difference(names)
        .map(|name| {
            Problem::new(
                format!("migrations/{folder}/{name}"),
                1,
                "write this migration in this dialect too, if only as a comment that says why it is empty.",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn a_migration_that_one_dialect_lacks_is_refused() {
        let tree = fixture(&[
            ("migrations/sqlite/0001_timers.sql", ""),
            ("migrations/sqlite/0002_tags.sql", ""),
            ("migrations/postgres/0001_timers.sql", ""),
            ("migrations/postgres/0002_labels.sql", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            [
                "migrations/postgres/0002_tags.sql:1",
                "migrations/sqlite/0002_labels.sql:1",
            ]
        );
    }

    #[test]
    fn a_number_used_twice_and_a_malformed_name_are_refused() {
        let tree = fixture(&[
            ("migrations/sqlite/0001_a.sql", ""),
            ("migrations/sqlite/0001_b.sql", ""),
            ("migrations/sqlite/2_c.sql", ""),
            ("migrations/sqlite/0003_Upper.sql", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            [
                "migrations/sqlite/0001_b.sql:1",
                "migrations/sqlite/0003_Upper.sql:1",
                "migrations/sqlite/2_c.sql:1",
            ]
        );
    }

    #[test]
    fn dialects_in_step_are_fine_and_so_is_a_tree_without_migrations() {
        let in_step = fixture(&[
            ("migrations/sqlite/0001_timers.sql", ""),
            ("migrations/postgres/0001_timers.sql", ""),
        ]);
        assert_eq!(check(&in_step), []);
        assert_eq!(check(&fixture(&[])), []);
    }

    #[test]
    fn timers_alone_need_not_be_in_step_with_the_shared_set() {
        let tree = fixture(&[
            ("migrations/sqlite/0001_timers.sql", ""),
            ("migrations/postgres/0001_timers.sql", ""),
            ("migrations/sqlite_timers/0001_schedules.sql", ""),
            ("migrations/sqlite_timers/2_tags.sql", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            ["migrations/sqlite_timers/2_tags.sql:1"]
        );
    }

    #[test]
    fn timers_alone_are_in_step_between_the_dialects() {
        let tree = fixture(&[
            ("migrations/sqlite_timers/0001_schedules.sql", ""),
            ("migrations/postgres_timers/0001_timers.sql", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            [
                "migrations/postgres_timers/0001_schedules.sql:1",
                "migrations/sqlite_timers/0001_timers.sql:1",
            ]
        );
    }

    #[test]
    fn one_dialect_alone_is_fine() {
        let tree = fixture(&[("migrations/sqlite/0001_timers.sql", "")]);
        assert_eq!(check(&tree), []);
    }
}
