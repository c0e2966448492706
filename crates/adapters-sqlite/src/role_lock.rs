//! Locks on roles: the exclusive right to fire the timers of a file, conduct its calls or make their
//! attempts.
//!
//! The lock is the operating system's, on `<file>.<role>.lock`, and ends with the process however
//! that ends. The file stays behind; only the lock on it means anything.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::inspect::beside;

/// The role of firing timers.
pub(crate) const TIMER: &str = "timer";
/// The role of conducting service calls.
pub(crate) const ORCHESTRATION: &str = "orchestration";
/// The role of making the attempts of calls.
pub(crate) const EXECUTION: &str = "execution";

/// A role that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct RoleLock {
    _file: File,
}

impl RoleLock {
    /// Takes a role for this process alone.
    pub(crate) fn take(database: &Path, role: &'static str) -> Result<Self, OpenError> {
        let mut file = lock_file(database, role).map_err(|source| cannot_lock(database, source))?;
        match file.try_lock() {
            Ok(()) => {
                // For operators only: the lock is valid without it.
                let _ = sign(&mut file);
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => Err(OpenError::RoleTaken {
                path: database.to_path_buf(),
                role,
                holder: holder(&mut file),
            }),
            Err(TryLockError::Error(source)) => Err(cannot_lock(database, source)),
        }
    }

    /// The holder of a role, if there is one. Creates no file.
    pub(crate) fn holder_of(database: &Path, role: &'static str) -> io::Result<Option<String>> {
        let mut file = match File::open(lock_name(database, role)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(holder(&mut file))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Prevents other processes from taking a role for a moment; `None` if one has it.
    pub(crate) fn keep_free(database: &Path, role: &'static str) -> io::Result<Option<Self>> {
        let file = lock_file(database, role)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

pub(crate) fn lock_name(database: &Path, role: &str) -> PathBuf {
    beside(database, &format!(".{role}.lock"))
}

fn lock_file(database: &Path, role: &str) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(lock_name(database, role))
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(64).read_to_string(&mut text) {
        Ok(_) if text.starts_with("process ") => text,
        _ => "another process".to_owned(),
    }
}

fn cannot_lock(database: &Path, source: io::Error) -> OpenError {
    let path = database.to_path_buf();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::ReadOnly { path }
        }
        io::ErrorKind::StorageFull => OpenError::Full { path },
        _ => OpenError::other(database, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_taken_once_and_can_be_taken_again_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("timer.db");
        let first = RoleLock::take(&database, TIMER).unwrap();
        let sentence = RoleLock::take(&database, TIMER).unwrap_err().to_string();
        assert!(sentence.contains("are fired by"), "{sentence}");
        assert!(
            sentence.contains(&format!("process {}", std::process::id())),
            "{sentence}"
        );
        assert!(RoleLock::keep_free(&database, TIMER).unwrap().is_none());
        let holder = RoleLock::holder_of(&database, TIMER).unwrap();
        assert_eq!(holder, Some(format!("process {}", std::process::id())));
        drop(first);
        assert_eq!(RoleLock::holder_of(&database, TIMER).unwrap(), None);
        let free = RoleLock::keep_free(&database, TIMER).unwrap();
        assert!(free.is_some());
        assert!(RoleLock::take(&database, TIMER).is_err());
        drop(free);
        RoleLock::take(&database, TIMER).unwrap();
    }

    #[test]
    fn reading_the_holder_of_a_role_creates_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("timer.db");
        assert_eq!(RoleLock::holder_of(&database, TIMER).unwrap(), None);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn another_role_is_another_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("timer.db");
        let _timer = RoleLock::take(&database, TIMER).unwrap();
        RoleLock::take(&database, ORCHESTRATION).unwrap();
    }
}
