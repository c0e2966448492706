//! A file holds one idea; past a certain length it holds two.

use super::problem::Problem;
use super::source;
use super::tree::Tree;

const PRODUCTION_LIMIT: usize = 600;
const TEST_LIMIT: usize = 900;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        let (kind, length, limit) = if source::is_test_file(&file.path) {
            ("test", file.text.lines().count(), TEST_LIMIT)
        } else {
            let lines = source::production_lines(&file.text);
            ("production", lines.len(), PRODUCTION_LIMIT)
        };
        if length > limit {
            problems.push(Problem::new(
                &file.path,
                1,
                format!(
                    "split this file by idea: it has {length} {kind} lines, the limit is {limit}."
                ),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let tree = fixture(&[
            ("crates/a/src/long.rs", &"//\n".repeat(601)),
            ("crates/a/tests/long.rs", &"//\n".repeat(901)),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            ["crates/a/src/long.rs:1", "crates/a/tests/long.rs:1"]
        );
    }

    #[test]
    fn a_file_at_the_limit_is_fine_and_its_tests_do_not_count() {
        let tail = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "//\n".repeat(700));
        let tree = fixture(&[
            ("crates/a/src/full.rs", &("//\n".repeat(600) + &tail)),
            ("crates/a/tests/full.rs", &"//\n".repeat(900)),
        ]);
        assert_eq!(check(&tree), []);
    }
}
