//! The temporary folder: nobody else looks into it, and it is gone in the end.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::failure::Failure;

/// A folder of our own. It is removed when it is dropped.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn make() -> Result<Self, Failure> {
        let place = std::env::temp_dir();
        let made = tempfile::Builder::new()
            .prefix("timer-service-demo-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&place);
        made.map(Self).map_err(|error| {
            Failure::refused(format!(
                "no temporary folder can be made in {} ({error}): set TMPDIR to a folder that can be written",
                place.display()
            ))
        })
    }

    /// Where the database of timers is.
    pub(super) fn database(&self) -> PathBuf {
        self.0.path().join("timer.db")
    }

    /// Where the database of service calls is.
    pub(super) fn calls_database(&self) -> PathBuf {
        self.0.path().join("calls.db")
    }

    /// Removes it, or keeps it with the `database` in it, and tells where that is.
    pub(super) fn end(self, keeps: bool, database: PathBuf) -> Option<PathBuf> {
        if keeps {
            // From now on it is the user's.
            let _ = self.0.keep();
            return Some(database);
        }
        let path = self.0.path().to_path_buf();
        if let Err(error) = self.0.close() {
            crate::say(&format!("{} could not be removed: {error}", path.display()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_us_alone_and_gone_in_the_end() {
        let folder = Folder::make().unwrap();
        let path = folder.0.path().to_path_buf();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(folder.database(), "x").unwrap();
        let database = folder.database();
        assert_eq!(folder.end(false, database), None);
        assert!(!path.exists());
    }

    #[test]
    fn it_stays_if_somebody_wants_it() {
        let folder = Folder::make().unwrap();
        let database = folder.calls_database();
        assert_eq!(folder.end(true, database.clone()), Some(database.clone()));
        let folder = database.parent().unwrap();
        assert!(folder.is_dir());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
