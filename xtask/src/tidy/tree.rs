//! The tree's text, read once, so that a check is a function of text and not of a disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the project's own sources live.
pub(crate) const FOLDERS: [&str; 7] = [
    "clients",
    "crates",
    "deploy",
    "docs",
    "examples",
    "migrations",
    "xtask",
];
/// Files at the root that rules are about. The changelog is not: it names what was renamed.
const AT_ROOT: [&str; 5] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
];

/// Extensions of the files that a check may read; the rest (images, data) is not text to have rules about.
const EXTENSIONS: [&str; 7] = ["rs", "toml", "sql", "patch", "md", "py", "yml"];

/// The files of a workspace, sorted by path.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<SourceFile>,
}

/// One text file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for folder in FOLDERS {
            collect(root, &root.join(folder), &mut files)?;
        }
        for name in AT_ROOT {
            let file = root.join(name);
            if file.is_file() {
                files.push(read(root, &file)?);
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            root: root.to_path_buf(),
            files,
        })
    }

    /// The Rust files, of product and tool alike.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| {
            Path::new(&file.path)
                .extension()
                .is_some_and(|it| it == "rs")
        })
    }

    pub(crate) fn get(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SourceFile {
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The lines with their numbers, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if entry.file_name() != "target" {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() && has_rules(&path) {
            files.push(read(root, &path)?);
        }
    }
    Ok(())
}

fn has_rules(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

fn read(root: &Path, path: &Path) -> Result<SourceFile> {
    let text =
        fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let relative = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
    Ok(SourceFile {
        path: parts.join("/"),
        text,
    })
}

/// A small tree on disk for a check to be tried on.
#[cfg(test)]
pub(crate) mod fixture {
    use std::ops::Deref;

    use tempfile::TempDir;

    use super::Tree;
    use crate::tidy::problem::Problem;

    /// A loaded tree whose folder lives as long as it does.
    pub(crate) struct Fixture {
        tree: Tree,
        _folder: TempDir,
    }

    impl Deref for Fixture {
        type Target = Tree;

        fn deref(&self) -> &Tree {
            &self.tree
        }
    }

    /// Writes the files to a temporary folder and loads them from there.
    pub(crate) fn fixture(files: &[(&str, &str)]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Fixture {
            tree: Tree::load(folder.path()).unwrap(),
            _folder: folder,
        }
    }

    /// Where the problems are, as `path:line`.
    pub(crate) fn locations(problems: &[Problem]) -> Vec<String> {
        problems
            .iter()
            .map(|problem| format!("{}:{}", problem.path, problem.line))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::tidy::tree::fixture::fixture;

    #[test]
    fn sources_are_found_and_build_output_is_not() {
        let tree = fixture(&[
            ("clippy.toml", ""),
            ("crates/b/src/lib.rs", "//! B\n"),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/target/debug/x.rs", ""),
            ("crates/a/logo.png", ""),
            ("docs/notes.md", ""),
            ("notes/other.md", ""),
            ("CHANGELOG.md", ""),
            ("README.md", ""),
        ]);
        let paths: Vec<_> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "README.md",
                "clippy.toml",
                "crates/a/Cargo.toml",
                "crates/b/src/lib.rs",
                "docs/notes.md",
            ]
        );
        assert_eq!(tree.get("crates/b/src/lib.rs").unwrap().name(), "lib.rs");
    }
}
