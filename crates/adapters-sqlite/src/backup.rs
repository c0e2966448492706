//! Backup of a file that is in use.
//!
//! The copy is a snapshot: a read transaction isolates it from concurrent commits. Meanwhile the log
//! cannot be checkpointed completely, and grows. The copy gets its name only when it is complete, verified
//! and synced.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use punctual_migrations::SchemaSet;
use punctual_ports::{PortError, PortErrorKind};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use thiserror::Error;

use crate::inspect::{Wholeness, beside, open_untouched, wholeness};
use crate::migrate::{migration_status, open_readable};
use crate::open_error::{display, open_error};
use crate::{OpenError, SqliteTimerStore};

const OPERATION: &str = "back the database up";
/// Number of pages between two progress reports: 4 MiB.
const PAGES_PER_STEP: std::ffi::c_int = 1_024;

/// A complete and verified backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackedUp {
    /// Its size.
    pub bytes: u64,
    /// Number of rows in its tables.
    pub rows: u64,
}

/// Why a backup failed. No file is left of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The database cannot be read.
    #[error(transparent)]
    Source(#[from] OpenError),
    /// The backup cannot be written.
    #[error("the backup {} cannot be written: {source}", display(path))]
    Target {
        /// The backup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The backup is damaged or incomplete.
    #[error(
        "the backup {} is not whole ({detail}) and was removed: try again, on another disk",
        display(path)
    )]
    NotWhole {
        /// The backup.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
}

/// Backs up a file, also while another process serves it, and verifies the copy. `progress` is called
/// with the number of copied pages and of all pages.
///
/// # Errors
/// If the file is not one of this set, or the target exists or cannot be written.
pub fn backup(
    path: &Path,
    set: SchemaSet,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackedUp, BackupError> {
    migration_status(path, set)?;
    let source = open_readable(path).map_err(|error| open_error(path, error))?;
    copy(&source, path, to, progress)
}

impl SqliteTimerStore {
    /// Backs up the file while timers are scheduled and fired. When this returns, the copy is complete,
    /// verified and synced; it appears under its name only then.
    ///
    /// # Errors
    /// If the target exists, or cannot be written.
    pub async fn backup_to(&self, path: impl Into<PathBuf>) -> Result<(), PortError> {
        let (from, to) = (self.path().to_path_buf(), path.into());
        let copied = self
            .browse(OPERATION, move |connection| {
                Ok(copy(connection, &from, &to, &mut |_, _| {}))
            })
            .await?;
        copied.map(drop).map_err(|error| {
            let kind = match &error {
                BackupError::Target { source, .. }
                    if source.kind() == io::ErrorKind::AlreadyExists =>
                {
                    PortErrorKind::Rejected
                }
                _ => PortErrorKind::Unavailable,
            };
            PortError::new(kind, OPERATION, error.to_string()).with_source(error)
        })
    }
}

fn copy(
    source: &Connection,
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackedUp, BackupError> {
    let unwritten = |source| BackupError::Target {
        path: to.to_owned(),
        source,
    };
    // A dangling link counts as a file.
    if to.symlink_metadata().is_ok() {
        return Err(unwritten(exists()));
    }
    let partial = reserve(to).map_err(unwritten)?;
    let permitted = copy_permissions(from, &partial).map_err(unwritten);
    let copied = permitted
        .and_then(|()| copy_pages(source, from, &partial, to, progress))
        .and_then(|copied| {
            let kept = || {
                File::open(&partial)?.sync_all()?;
                give_name(&partial, to, |from, to| fs::hard_link(from, to))?;
                // After an error there must be no copy.
                sync_folder(to).inspect_err(|_| drop(fs::remove_file(to)))
            };
            kept().map_err(unwritten)?;
            Ok(copied)
        });
    for end in ["", "-wal", "-shm", "-journal"] {
        remove_if_there(&beside(&partial, end)).map_err(unwritten)?;
    }
    copied
}

fn exists() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "it exists already: name a new file",
    )
}

/// Creates a temporary file with a unique name beside the target.
fn reserve(path: &Path) -> io::Result<PathBuf> {
    for number in 0..100 {
        let name = beside(path, &format!(".{}-{number}.partial", std::process::id()));
        match File::create_new(&name) {
            Ok(_) => return Ok(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let problem = "its folder is not there: make it first";
                return Err(io::Error::new(error.kind(), problem));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "a hundred unfinished backups are in the way: remove the files that end in .partial",
    ))
}

/// Gives the copy the permissions of the database, before any data is written to it.
fn copy_permissions(source: &Path, copy: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(source)?.permissions().mode();
        // We have to write it ourselves.
        fs::set_permissions(copy, fs::Permissions::from_mode(mode | 0o600))?;
    }
    #[cfg(not(unix))]
    let _ = (source, copy);
    Ok(())
}

/// Gives the copy its name; fails if a file of that name exists. A rename would replace it: where there
/// are no links, an empty file reserves the name first.
fn give_name(
    partial: &Path,
    to: &Path,
    link: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    /// `EOPNOTSUPP` of Linux, which not every version of Rust maps to `Unsupported`.
    const NOT_SUPPORTED: i32 = 95;
    match link(partial, to) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) || error.raw_os_error() == Some(NOT_SUPPORTED) =>
        {
            File::create_new(to)?;
            fs::rename(partial, to).inspect_err(|_| drop(fs::remove_file(to)))
        }
        linked => linked,
    }
}

/// Copies all pages of one snapshot and verifies their integrity and number of rows.
fn copy_pages(
    source: &Connection,
    from: &Path,
    partial: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackedUp, BackupError> {
    let unread = |error| BackupError::Source(open_error(from, error));
    let unwritten = |error: rusqlite::Error| BackupError::Target {
        path: to.to_owned(),
        source: io::Error::other(error),
    };
    // Its first read opens the snapshot. Without it, a commit would restart the copy.
    let snapshot = source.unchecked_transaction().map_err(unread)?;
    let rows = count_rows(&snapshot).map_err(unread)?;
    let mut target = Connection::open(partial).map_err(unwritten)?;
    let backup = Backup::new(&snapshot, &mut target).map_err(unwritten)?;
    loop {
        let step = backup.step(PAGES_PER_STEP).map_err(unwritten)?;
        let state = backup.progress();
        let pages = |count: std::ffi::c_int| u64::try_from(count).unwrap_or_default();
        let total = pages(state.pagecount);
        progress(total.saturating_sub(pages(state.remaining)), total);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            _ => {
                let path = from.to_owned();
                return Err(OpenError::Busy { path }.into());
            }
        }
    }
    drop(backup);
    target.close().map_err(|(_, error)| unwritten(error))?;
    let not_whole = |detail: String| BackupError::NotWhole {
        path: to.to_owned(),
        detail,
    };
    let read_back = || -> rusqlite::Result<(Wholeness, u64)> {
        let copy = open_untouched(partial)?;
        Ok((wholeness(&copy)?, count_rows(&copy)?))
    };
    let bytes = fs::metadata(partial).map_or(0, |it| it.len());
    match read_back() {
        Ok((Wholeness::Whole, found)) if found == rows => Ok(BackedUp { bytes, rows }),
        Ok((Wholeness::Damaged(detail), _)) => Err(not_whole(detail)),
        Ok((_, found)) => Err(not_whole(format!("{found} of {rows} rows were found"))),
        Err(error) => Err(not_whole(error.to_string())),
    }
}

/// Number of rows in all tables, those of an embedder included.
fn count_rows(connection: &Connection) -> rusqlite::Result<u64> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut tables = connection.prepare(tables)?;
    let names = tables.query_map([], |row| row.get::<_, String>(0))?;
    let mut rows = 0;
    for name in names {
        let name = name?.replace('"', "\"\"");
        let count = format!("SELECT count(*) FROM \"{name}\"");
        let count: i64 = connection.query_row(&count, [], |row| row.get(0))?;
        rows += u64::try_from(count).unwrap_or_default();
    }
    Ok(rows)
}

/// Syncs the folder: the name of a file is durable only then.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_links_a_backup_gets_its_name_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, to) = (folder.path().join("partial"), folder.path().join("to"));
        for error in [
            io::Error::from(io::ErrorKind::PermissionDenied),
            io::Error::from(io::ErrorKind::Unsupported),
            io::Error::from_raw_os_error(95),
        ] {
            fs::write(&partial, "copy").unwrap();
            give_name(&partial, &to, |_, _| Err(error)).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"copy");
            assert!(!partial.exists());
            fs::write(&partial, "another").unwrap();
            let no_links = || Err(io::ErrorKind::Unsupported.into());
            let refused = give_name(&partial, &to, |_, _| no_links()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"copy");
            fs::remove_file(&to).unwrap();
        }
    }
}
