//! Read-only inspection of a file: its migrations, its integrity, the process that serves it.
//!
//! SQLite creates files beside a database that it only reads, unless the database is declared
//! immutable. That is safe if no process has it open, which is so if none of those files exists.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use punctual_migrations::SchemaSet;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::OpenError;
use crate::connection::{absolute, behind_links};
use crate::migrate::{Status, open_readable, status_of};
use crate::open_error::open_error;
use crate::role_lock::{self, RoleLock};
use crate::torn_copy::refuse_a_log_alone;

/// Maximum number of damages that are reported.
const MAX_DAMAGES: u32 = 3;

/// The result of [`inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Its migrations.
    pub status: Status,
    /// Whether it is in write-ahead-log mode.
    pub has_write_ahead_log: bool,
    /// Its size without the log.
    pub file_bytes: u64,
    /// Its integrity.
    pub wholeness: Wholeness,
}

/// The integrity of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wholeness {
    /// No damage was found.
    Whole,
    /// What SQLite found.
    Damaged(String),
    /// The file was too large to be checked.
    NotChecked,
}

/// Inspects a file without changing or creating any. The integrity of a file of more than `limit` bytes
/// is not checked, since that reads all of it.
///
/// `None` if there is a log without its index: reading it would create the index.
///
/// # Errors
/// If the file is missing or cannot be used.
pub fn inspect(path: &Path, set: SchemaSet, limit: u64) -> Result<Option<Inspection>, OpenError> {
    let path = absolute(path)?;
    refuse_a_log_alone(&path)?;
    if !is_there(&path) {
        return Err(OpenError::Missing { path });
    }
    // The log is beside the file itself, not beside a link to it.
    let path = behind_links(&path)?;
    if is_open_elsewhere(&path) {
        let index = beside(&path, "-shm");
        if is_there(&beside(&path, "-wal")) && !is_there(&index) {
            return Ok(None);
        }
        return read(open_readable(&path), &path, set, limit).map(Some);
    }
    let inspected = read(open_untouched(&path), &path, set, limit);
    let is_intact = matches!(&inspected, Ok(it) if !matches!(it.wholeness, Wholeness::Damaged(_)));
    if !is_intact && is_open_elsewhere(&path) {
        // Another process has started to write since, and we read an intermediate state.
        return read(open_readable(&path), &path, set, limit).map(Some);
    }
    inspected.map(Some)
}

/// The process that serves a file: fires its timers, conducts its calls or makes their attempts; `None`
/// if there is none. Creates no file.
///
/// # Errors
/// If the lock files cannot be read.
pub fn served_by(path: &Path) -> io::Result<Option<String>> {
    let path = absolute(path).map_err(io::Error::other)?;
    // There is no folder yet.
    let Ok(path) = behind_links(&path) else {
        return Ok(None);
    };
    let roles = [
        role_lock::TIMER,
        role_lock::ORCHESTRATION,
        role_lock::EXECUTION,
    ];
    for role in roles {
        if let Some(holder) = RoleLock::holder_of(&path, role)? {
            return Ok(Some(holder));
        }
    }
    Ok(None)
}

fn read(
    connection: rusqlite::Result<Connection>,
    path: &Path,
    set: SchemaSet,
    limit: u64,
) -> Result<Inspection, OpenError> {
    let failed = |error| open_error(path, error);
    let mut connection = connection.map_err(failed)?;
    let status = status_of(&mut connection, path, set)?;
    let unreadable = |error: io::Error| OpenError::other(path, error);
    let file_bytes = fs::metadata(path).map_err(unreadable)?.len();
    let wholeness = if file_bytes > limit {
        Wholeness::NotChecked
    } else {
        wholeness(&connection).map_err(failed)?
    };
    Ok(Inspection {
        status,
        has_write_ahead_log: has_write_ahead_log(path).map_err(unreadable)?,
        file_bytes,
        wholeness,
    })
}

pub(crate) fn wholeness(connection: &Connection) -> rusqlite::Result<Wholeness> {
    let mut found: Vec<String> = Vec::new();
    let checked = connection.pragma(None, "quick_check", MAX_DAMAGES, |row| {
        found.push(row.get(0)?);
        Ok(())
    });
    match checked {
        Ok(()) if found == ["ok"] => Ok(Wholeness::Whole),
        Ok(()) => Ok(Wholeness::Damaged(found.join("; "))),
        // Damage may abort the check itself.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(Wholeness::Damaged(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Reads the header, whose read version is 2 then. An immutable connection does not report it.
fn has_write_ahead_log(path: &Path) -> io::Result<bool> {
    let mut header = Vec::new();
    File::open(path)?.take(20).read_to_end(&mut header)?;
    Ok(header.get(19) == Some(&2))
}

fn is_open_elsewhere(path: &Path) -> bool {
    ["-wal", "-shm", "-journal"]
        .iter()
        .any(|end| is_there(&beside(path, end)))
}

/// Whether a file exists. One whose existence cannot be checked counts.
fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// Opens a file that no process writes to as immutable, without locks or other files.
pub(crate) fn open_untouched(path: &Path) -> rusqlite::Result<Connection> {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        // Every byte is escaped. Writing to a string does not fail.
        let _ = write!(address, "%{byte:02x}");
    }
    address.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(address, flags)
}

pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}
