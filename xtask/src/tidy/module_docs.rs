//! A file says on its first line why it exists, before a reader has to guess.

use super::problem::Problem;
use super::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.rust()
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| {
            Problem::new(
                &file.path,
                1,
                "begin line 1 with `//!` and say why this file exists.",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn a_file_must_begin_with_its_doc() {
        let tree = fixture(&[
            ("crates/a/src/lib.rs", "#![no_std]\n//! Late.\n"),
            ("crates/a/tests/t.rs", "use a::B;\n"),
            ("crates/a/examples/e.rs", "\n//! One line late.\n"),
            ("xtask/src/main.rs", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            [
                "crates/a/examples/e.rs:1",
                "crates/a/src/lib.rs:1",
                "crates/a/tests/t.rs:1",
                "xtask/src/main.rs:1",
            ]
        );
    }

    #[test]
    fn a_documented_file_is_fine() {
        let tree = fixture(&[("crates/a/src/lib.rs", "//! Why.\n#![no_std]\n")]);
        assert_eq!(check(&tree), []);
    }
}
