//! A copy of the workspace to break, kept in step so that cargo rebuilds what changed and no more.
//!
//! A file is rewritten only when its content differs, and then gets the time of now. So an
//! unchanged file stays older than what was built from it, and a changed one is always newer,
//! even if the last run was killed with a mutant applied.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Folders that are never part of the workspace's sources.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Makes `copy` hold exactly the workspace's files.
pub(crate) fn sync(root: &Path, copy: &Path) -> Result<()> {
    let wanted = if root.join(".git").exists() {
        listed_by_git(root)?
    } else {
        walked(root)?
    };
    for stale in walked(copy)?.difference(&wanted) {
        fs::remove_file(copy.join(stale))?;
    }
    for file in &wanted {
        copy_if_different(&root.join(file), &copy.join(file))
            .with_context(|| format!("failed to copy {}", file.display()))?;
    }
    Ok(())
}

/// Tracked files and new ones that are not ignored: what a commit could hold.
fn listed_by_git(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("failed to start git")?;
    ensure!(
        output.status.success(),
        "failed to list the files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        // A deleted file is listed until its deletion is staged.
        .filter(|file| root.join(file).is_file())
        .collect())
}

fn walked(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                files.insert(entry.path().strip_prefix(root)?.to_path_buf());
            } else if kind.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                folders.push(entry.path());
            }
        }
    }
    Ok(files)
}

fn copy_if_different(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from)?;
    if fs::read(to).is_ok_and(|existing| existing == content) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn modified(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    #[test]
    fn a_copy_follows_the_workspace_and_touches_only_what_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, copy) = (folder.path().join("root"), folder.path().join("copy"));
        write(&root, "a.rs", "a");
        write(&root, "crates/b.rs", "b");
        write(&root, "target/debug/c.rs", "c");
        sync(&root, &copy).unwrap();
        assert!(!copy.join("target").exists());

        // Backdated, so that a rewrite would show.
        let old = SystemTime::UNIX_EPOCH;
        for name in ["a.rs", "crates/b.rs"] {
            fs::File::options()
                .append(true)
                .open(copy.join(name))
                .and_then(|file| file.set_modified(old))
                .unwrap();
        }
        write(&root, "a.rs", "changed");
        write(&copy, "stale.rs", "");
        sync(&root, &copy).unwrap();

        assert_eq!(fs::read_to_string(copy.join("a.rs")).unwrap(), "changed");
        assert!(modified(&copy.join("a.rs")) > old);
        assert_eq!(modified(&copy.join("crates/b.rs")), old);
        assert!(!copy.join("stale.rs").exists());
    }

    #[test]
    fn in_a_checkout_new_files_are_copied_and_ignored_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (root, copy) = (folder.path().join("root"), folder.path().join("copy"));
        write(&root, ".gitignore", "/data\n");
        write(&root, "new.rs", "");
        write(&root, "data/x", "");
        let git = Command::new("git").arg("init").current_dir(&root).output();
        assert!(git.unwrap().status.success());

        sync(&root, &copy).unwrap();
        assert!(copy.join("new.rs").exists());
        assert!(!copy.join("data").exists());
    }
}
