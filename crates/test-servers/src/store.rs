//! Copying a server's store: what a backup does, and what a disk does that is set back.

use std::fs;
use std::path::Path;

/// Copies a folder with everything in it; what was at `to` is gone afterwards.
pub(crate) fn replace(from: &Path, to: &Path) {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("failed to empty {}: {error}", to.display())
        }
        _ => {}
    }
    copy(from, to);
}

fn copy(from: &Path, to: &Path) {
    let failed = |error: std::io::Error| {
        format!(
            "failed to copy {} to {}: {error}",
            from.display(),
            to.display()
        )
    };
    fs::create_dir_all(to).map_err(failed).unwrap();
    for entry in fs::read_dir(from).map_err(failed).unwrap() {
        let entry = entry.map_err(failed).unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(failed).unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).map_err(failed).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_every_file_and_nothing_that_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(from.join("x/y")).unwrap();
        fs::write(from.join("x/y/file"), "new").unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old"), "old").unwrap();
        replace(&from, &to);
        assert_eq!(fs::read_to_string(to.join("x/y/file")).unwrap(), "new");
        assert!(!to.join("old").exists());
    }
}
