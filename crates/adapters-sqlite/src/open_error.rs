//! Errors of opening a database file: one sentence each, for the operator.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use punctual_migrations::{Drift, SchemaSet};
use rusqlite::ErrorCode;
use thiserror::Error;

use crate::role_lock;

/// Why a database file could not be opened. None of its tables and rows was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The linked SQLite can lose committed writes.
    #[error(
        "the linked SQLite {version} can lose committed writes: build with SQLite 3.51.3 or newer"
    )]
    OldSqlite {
        /// What is linked.
        version: String,
    },
    /// The folder could not be made.
    #[error(
        "cannot create the folder {} for the database: {}",
        display(path),
        why_not(source)
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is missing, and was not to be created.
    #[error("there is no database at {}", display(path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// There is a log without its database.
    #[error(
        "there is a log {} without its database {}, and what it holds would be lost: put both files back, or remove the log to begin anew; to copy a database that is in use, use `timer-service backup`",
        display(log),
        display(path)
    )]
    LogAlone {
        /// The file that should be there.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// The file has no tables although it was used: they were in its log.
    #[error(
        "the database {} was copied while it was in use, without the log that belongs to it ({}-wal), and would begin empty: copy it with `timer-service backup`, or remove it to begin anew",
        display(path),
        display(path)
    )]
    CopiedWithoutLog {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error(
        "the database {} cannot be written: make the file and its folder writable for this user",
        display(path)
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// There is a file or folder there that cannot be opened as a database.
    #[error(
        "the database {} cannot be opened: name a file that this user may read, in a folder that they may write to",
        display(path)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        detail: String,
    },
    /// The file is no database, or a damaged one.
    #[error(
        "the database {} is damaged or no SQLite database ({detail}): restore it from a backup, or name another file",
        display(path)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        detail: String,
    },
    /// The file has the other set of tables.
    #[error(
        "the database {} holds the {found} tables, but the {} tables are needed: name another file",
        display(path),
        wanted.name()
    )]
    WrongSet {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What was requested.
        wanted: SchemaSet,
    },
    /// The file was written by a newer program.
    #[error(
        "the database {} has migration {found}, which this program does not know: use a newer program",
        display(path)
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The newest migration in the file.
        found: String,
    },
    /// The history of the file is not the one that this program would have written.
    #[error(
        "the history of the database {} is not one that this program can continue ({detail}): use the program that wrote it, or restore a backup",
        display(path)
    )]
    Drift {
        /// The file.
        path: PathBuf,
        /// What differs.
        detail: String,
    },
    /// An object in the file that is not ours has a name that we need.
    #[error(
        "the database {} has a {object} that is not ours: rename it, or name another file",
        display(path)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The object, for example `table timer_schedules`.
        object: String,
    },
    /// Rows refer to missing rows, so that no migration can preserve the references.
    #[error(
        "the database {} has {rows} rows in {table} that refer to missing rows in {parent}: remove them, then start again",
        display(path)
    )]
    DanglingRows {
        /// The file.
        path: PathBuf,
        /// The table with the rows.
        table: String,
        /// The table that they refer to.
        parent: String,
        /// Number of such rows.
        rows: i64,
    },
    /// Another process has the role.
    #[error(
        "{} {} are {} by {holder} already: stop that process, or name another file",
        role_phrase(role).0,
        display(path),
        role_phrase(role).1
    )]
    RoleTaken {
        /// The file.
        path: PathBuf,
        /// The role.
        role: &'static str,
        /// The process that has it, as far as is known.
        holder: String,
    },
    /// Another program holds the write lock for longer than the busy timeout.
    #[error(
        "the database {} is locked by another program: try again",
        display(path)
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is no room.
    #[error(
        "there is no room to open the database {}: free some disk space",
        display(path)
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Something else went wrong.
    #[error("cannot open the database {}: {source}", display(path))]
    Other {
        /// The file.
        path: PathBuf,
        /// What.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
    pub(crate) fn other(
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Other {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// A path as readable text, with bytes that are not UTF-8 escaped.
pub(crate) fn display(path: &Path) -> String {
    let mut plain = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        plain.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(plain, "\\x{byte:02x}");
        }
    }
    plain
}

/// The subject of a role, and what its holder does with it.
fn role_phrase(role: &str) -> (&'static str, &'static str) {
    match role {
        role_lock::TIMER => ("the timers of", "fired"),
        role_lock::EXECUTION => ("the attempts of", "made"),
        _ => ("the service calls of", "conducted"),
    }
}

fn why_not(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "a file is in the way, name another folder".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Maps an SQLite error to the error of opening a file.
pub(crate) fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => OpenError::Corrupt {
            path,
            detail: error.to_string(),
        },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => OpenError::ReadOnly { path },
        Some(ErrorCode::CannotOpen) => OpenError::Unreadable {
            path,
            detail: error.to_string(),
        },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Busy { path },
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        _ => OpenError::Other {
            path,
            source: error.into(),
        },
    }
}

/// Maps a migration history that cannot be continued to the error of opening a file.
pub(crate) fn drift_error(path: &Path, wanted: SchemaSet, drift: Drift) -> OpenError {
    let path = path.to_owned();
    match drift {
        Drift::OtherSet { found } => OpenError::WrongSet {
            path,
            found,
            wanted,
        },
        Drift::Newer { name } => OpenError::Newer { path, found: name },
        other => OpenError::Drift {
            path,
            detail: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn mapped(code: i32) -> String {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let debug = format!("{:?}", open_error(Path::new("a.db"), error));
        debug.split([' ', '{']).next().unwrap().to_owned()
    }

    #[test]
    fn every_error_of_opening_has_its_own_sentence() {
        for (code, variant) in [
            (ffi::SQLITE_NOTADB, "Corrupt"),
            (ffi::SQLITE_CORRUPT, "Corrupt"),
            (ffi::SQLITE_CORRUPT_INDEX, "Corrupt"),
            (ffi::SQLITE_READONLY, "ReadOnly"),
            (ffi::SQLITE_READONLY_DIRECTORY, "ReadOnly"),
            (ffi::SQLITE_READONLY_CANTINIT, "ReadOnly"),
            (ffi::SQLITE_PERM, "ReadOnly"),
            (ffi::SQLITE_CANTOPEN, "Unreadable"),
            (ffi::SQLITE_CANTOPEN_ISDIR, "Unreadable"),
            (ffi::SQLITE_BUSY, "Busy"),
            (ffi::SQLITE_BUSY_RECOVERY, "Busy"),
            (ffi::SQLITE_LOCKED, "Busy"),
            (ffi::SQLITE_FULL, "Full"),
            (ffi::SQLITE_IOERR, "Other"),
            (ffi::SQLITE_ERROR, "Other"),
        ] {
            assert_eq!(mapped(code), variant, "code {code}");
        }
    }
}
