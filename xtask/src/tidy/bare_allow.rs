//! A lint is lifted with `expect` and a reason: unlike an `allow`, it complains once it is needless.

use super::problem::Problem;
use super::source;
use super::tree::Tree;

/// In two pieces, or this file would be the first to be found.
const PATTERNS: [&str; 2] = [concat!("#[", "allow("), concat!("#![", "allow(")];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        for (number, line) in file.lines() {
            let code = source::code(line);
            if PATTERNS.iter().any(|pattern| code.contains(pattern)) {
                problems.push(Problem::new(
                    &file.path,
                    number,
                    "write `#[expect(…, reason = \"…\")]` instead of an allow.",
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn a_bare_allow_is_refused_on_an_item_and_on_a_file() {
        let text = format!("//! Doc\n{}x)]\n    {}y)]\n", PATTERNS[1], PATTERNS[0]);
        let tree = fixture(&[("crates/a/src/lib.rs", &text)]);
        assert_eq!(
            locations(&check(&tree)),
            ["crates/a/src/lib.rs:2", "crates/a/src/lib.rs:3"]
        );
    }

    #[test]
    fn an_expectation_with_a_reason_is_fine() {
        let text = "//! Doc\n#[expect(dead_code, reason = \"read by the next change\")]\n";
        let tree = fixture(&[("crates/a/src/lib.rs", text)]);
        assert_eq!(check(&tree), []);
    }
}
