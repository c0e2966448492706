//! A path that a document names in backticks exists, so that a reader who follows it arrives.

use std::path::Path;

use super::problem::Problem;
use super::tree::{FOLDERS, SourceFile, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let is_document = |file: &&SourceFile| Path::new(&file.path).extension() == Some("md".as_ref());
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(is_document) {
        for (number, line) in file.lines() {
            for path in paths(line).filter(|path| !tree.root.join(path).exists()) {
                let advice = format!("name a path that exists instead of `{path}`.");
                problems.push(Problem::new(&file.path, number, advice));
            }
        }
    }
    problems
}

/// The paths in backticks, from the root. `domain/src/ids.rs` is one of `crates`; one with a
/// placeholder (`<name>`, `…`) is none.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let code = line.split('`').skip(1).step_by(2);
    code.filter_map(move |text| {
        let mut parts = text.split('/');
        let (folder, next) = (parts.next()?, parts.next()?);
        if !text.chars().all(is_part) {
            None
        } else if FOLDERS.contains(&folder) {
            Some(text.to_owned())
        } else {
            matches!(next, "src" | "tests").then(|| format!("crates/{text}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    #[test]
    fn a_path_that_does_not_exist_is_refused_in_every_document() {
        let text = "# How\n\n1. `crates/a/src/lib.rs`, then `crates/a/src/other.rs`.\n";
        let tree = fixture(&[
            ("CONTRIBUTING.md", text),
            ("crates/a/src/lib.rs", "//! Doc\n"),
            (
                "docs/how.md",
                "`deploy/x.yml`\n`a/src/lib.rs`\n`a/src/x.rs`\n",
            ),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            ["CONTRIBUTING.md:3", "docs/how.md:1", "docs/how.md:3"]
        );
    }

    #[test]
    fn folders_placeholders_and_other_code_are_fine() {
        let text =
            "`crates/a/src`, `crates/<name>/x.rs`, `crates/…`, `src/x.rs`, `a / b`, crates/b\n";
        let tree = fixture(&[("README.md", text), ("crates/a/src/lib.rs", "//! Doc\n")]);
        assert_eq!(check(&tree), []);
    }

    /// The list of files for each kind of change is written out in complete paths, or nothing is checked.
    #[test]
    fn ten_small_changes_name_their_files() {
        let text = include_str!("../../../CONTRIBUTING.md");
        let (_, section) = text.split_once("## Ten small changes\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let changes: Vec<&str> = section.split(". **").skip(1).collect();
        assert_eq!(changes.len(), 10);
        for change in changes {
            assert!(change.lines().flat_map(paths).count() >= 2, "{change}");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for path in section.lines().flat_map(paths) {
            assert!(root.join(&path).exists(), "{path} does not exist");
        }
    }
}
