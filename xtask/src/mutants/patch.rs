//! A mutant on disk: a header that says what it breaks and who must notice, then a unified diff.
//!
//! ```text
//! # mutant: a timer is marked before its event is published
//! # caught-by: punctual-workflows a_crash_between_publish_and_mark
//! # may-hang
//! --- a/crates/workflows/src/fire_due_timers.rs
//! +++ b/crates/workflows/src/fire_due_timers.rs
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Where the patches live.
pub(crate) const FOLDER: &str = "xtask/mutants";

/// A deliberate mistake, and the tests that must notice it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The file's name without `.patch`.
    pub(crate) name: String,
    /// One sentence: what the mistake is.
    pub(crate) sentence: String,
    /// Every one of these must fail.
    pub(crate) caught_by: Vec<CaughtBy>,
    /// Whether a test that never ends has noticed it too.
    pub(crate) may_hang: bool,
    /// The files that it changes, relative to the root.
    pub(crate) files: Vec<String>,
}

/// Some tests of one package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CaughtBy {
    pub(crate) package: String,
    /// A part of the tests' names.
    pub(crate) filter: String,
}

/// What is wrong with a header, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) advice: String,
}

/// What to do with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Forward,
    Backward,
}

/// Whether a path, relative to the root, is a mutant's.
pub(crate) fn is_patch(path: &str) -> bool {
    path.strip_suffix(".patch")
        .and_then(|path| path.strip_prefix(FOLDER))
        .is_some()
}

/// Reads the header of the patch at `path`.
pub(crate) fn parse(path: &str, text: &str) -> Result<Mutant, Fault> {
    let stem = path.rsplit('/').next().unwrap_or(path);
    let mut mutant = Mutant {
        name: stem.trim_end_matches(".patch").to_owned(),
        sentence: String::new(),
        caught_by: Vec::new(),
        may_hang: false,
        files: text
            .lines()
            .filter_map(|line| line.strip_prefix("--- a/"))
            .map(str::to_owned)
            .collect(),
    };
    let header = (1..).zip(text.lines().take_while(|line| line.starts_with('#')));
    let mut length = 0;
    for (number, line) in header {
        length = number;
        read_line(&mut mutant, line).map_err(|advice| Fault {
            line: number,
            advice: advice.to_owned(),
        })?;
    }
    let advice = if mutant.sentence.is_empty() {
        "begin with `# mutant: <one sentence>`."
    } else if mutant.caught_by.is_empty() {
        "add `# caught-by: <package> <part of a test's name>`."
    } else if mutant.files.is_empty() {
        "put a unified diff with a/ and b/ prefixes under the header."
    } else {
        return Ok(mutant);
    };
    Err(Fault {
        line: length.max(1),
        advice: advice.to_owned(),
    })
}

fn read_line(mutant: &mut Mutant, line: &str) -> Result<(), &'static str> {
    let line = line.trim_start_matches('#').trim();
    if let Some(sentence) = line.strip_prefix("mutant:") {
        if !mutant.sentence.is_empty() {
            return Err("keep one `# mutant:` line: a patch is one mistake.");
        }
        sentence.trim().clone_into(&mut mutant.sentence);
    } else if let Some(tests) = line.strip_prefix("caught-by:") {
        let words: Vec<&str> = tests.split_whitespace().collect();
        let [package, filter] = words[..] else {
            return Err("write `# caught-by: <package> <part of a test's name>`.");
        };
        mutant.caught_by.push(CaughtBy {
            package: package.to_owned(),
            filter: filter.to_owned(),
        });
    } else if line == "may-hang" {
        mutant.may_hang = true;
    } else {
        return Err("a header line is `# mutant:`, `# caught-by:` or `# may-hang`.");
    }
    Ok(())
}

/// Applies a patch to the tree at `root`; the inner error is git's reason why it can not be.
pub(crate) fn apply(root: &Path, patch: &Path, mode: Mode) -> Result<Result<(), String>> {
    let root = root
        .canonicalize()
        .with_context(|| format!("failed to find {}", root.display()))?;
    let mut git = Command::new("git");
    git.current_dir(&root).arg("apply");
    match mode {
        Mode::Check => git.arg("--check"),
        Mode::Forward => &mut git,
        Mode::Backward => git.arg("--reverse"),
    };
    // Below the top of a repository, git takes a patch's paths from the top and then quietly skips
    // those outside the current folder. With a ceiling above it, `root` is the top.
    if let Some(parent) = root.parent() {
        git.env("GIT_CEILING_DIRECTORIES", parent);
    }
    let output = git.arg(patch).output().context("failed to start git")?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().next().unwrap_or("git gave no reason");
    Ok(Err(reason.trim_start_matches("error: ").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";

    fn parsed(header: &str) -> Result<Mutant, Fault> {
        parse("xtask/mutants/early.patch", &format!("{header}{DIFF}"))
    }

    #[test]
    fn a_full_header_is_read() {
        let header = "# mutant: a timer fires early\n# caught-by: punctual-domain never_early\n# caught-by: punctual-workflows due::never_early\n# may-hang\n";
        let mutant = parsed(header).unwrap();
        assert_eq!(mutant.name, "early");
        assert_eq!(mutant.sentence, "a timer fires early");
        assert_eq!(mutant.caught_by[1].package, "punctual-workflows");
        assert_eq!(mutant.caught_by[1].filter, "due::never_early");
        assert!(mutant.may_hang);
    }

    #[test]
    fn a_header_that_lacks_something_is_refused_at_its_line() {
        for (header, line, part) in [
            ("", 1, "# mutant:"),
            ("# mutant:\n# caught-by: p t\n", 2, "# mutant:"),
            ("# mutant: s\n", 1, "# caught-by:"),
            ("# mutant: s\n# caught-by: p\n", 2, "# caught-by:"),
            ("# mutant: s\n# caught-by: p t u\n", 2, "# caught-by:"),
            ("# mutant: s\n# caught by: p t\n", 2, "header line"),
            ("# mutant: s\n# mutant: t\n", 2, "one mistake"),
        ] {
            let fault = parsed(header).unwrap_err();
            assert_eq!(fault.line, line, "{header}");
            assert!(fault.advice.contains(part), "{header}: {}", fault.advice);
        }
    }

    #[test]
    fn a_header_without_a_diff_is_refused() {
        let fault = parse("m.patch", "# mutant: s\n# caught-by: p t\n").unwrap_err();
        assert!(fault.advice.contains("unified diff"));
    }

    #[test]
    fn a_patch_goes_on_and_off_below_the_top_of_a_repository() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("target/tree");
        std::fs::create_dir_all(&tree).unwrap();
        let git = Command::new("git")
            .arg("init")
            .current_dir(&folder)
            .output();
        assert!(git.unwrap().status.success());
        std::fs::write(tree.join("x"), "a\n").unwrap();
        let patch = folder.path().join("m.patch");
        std::fs::write(&patch, DIFF).unwrap();
        let text = || std::fs::read_to_string(tree.join("x")).unwrap();

        assert_eq!(apply(&tree, &patch, Mode::Check).unwrap(), Ok(()));
        assert_eq!(text(), "a\n");
        assert_eq!(apply(&tree, &patch, Mode::Forward).unwrap(), Ok(()));
        assert_eq!(text(), "b\n");
        assert!(apply(&tree, &patch, Mode::Forward).unwrap().is_err());
        assert_eq!(apply(&tree, &patch, Mode::Backward).unwrap(), Ok(()));
        assert_eq!(text(), "a\n");
    }
}
