//! A mutant that no longer applies guards nothing, and only running it would show that.

use super::problem::Problem;
use super::tree::Tree;
use crate::mutants::patch::{self, Mode};

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        if !patch::is_patch(&file.path) {
            continue;
        }
        if let Err(fault) = patch::parse(&file.path, &file.text) {
            problems.push(Problem::new(&file.path, fault.line, fault.advice));
            continue;
        }
        let applied = patch::apply(&tree.root, &tree.root.join(&file.path), Mode::Check);
        // git itself may fail to start; the patch is no better proven for it.
        let applied = applied.unwrap_or_else(|error| Err(format!("{error:#}")));
        if let Err(reason) = applied {
            let advice = format!("make this patch anew, it does not apply: {reason}.");
            problems.push(Problem::new(&file.path, 1, advice));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    const CODE: (&str, &str) = ("crates/a/src/lib.rs", "//! Doc\nfn a() {}\n");
    const HEADER: &str = "# mutant: a is renamed\n# caught-by: a a_is_called\n";
    const DIFF: &str = "--- a/crates/a/src/lib.rs\n+++ b/crates/a/src/lib.rs\n@@ -1,2 +1,2 @@\n //! Doc\n-fn a() {}\n+fn b() {}\n";
    const PATCH: &str = "xtask/mutants/renamed.patch";

    #[test]
    fn a_patch_with_a_header_that_applies_is_fine() {
        let tree = fixture(&[CODE, (PATCH, &(HEADER.to_owned() + DIFF))]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_patch_without_a_header_is_refused() {
        let tree = fixture(&[CODE, (PATCH, DIFF)]);
        assert_eq!(locations(&check(&tree)), [format!("{PATCH}:1")]);
    }

    #[test]
    fn a_patch_that_does_not_apply_is_refused() {
        let stale = HEADER.to_owned() + &DIFF.replace("-fn a()", "-fn z()");
        let problems = check(&fixture(&[CODE, (PATCH, &stale)]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].advice.contains("does not apply"));
    }

    #[test]
    fn a_patch_to_a_file_that_is_gone_is_refused() {
        let tree = fixture(&[(PATCH, &(HEADER.to_owned() + DIFF))]);
        assert_eq!(check(&tree).len(), 1);
    }
}
