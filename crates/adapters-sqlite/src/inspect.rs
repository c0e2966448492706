//! Looking at a file without touching it: what it holds, whether it is whole, who serves it.
//!
//! SQLite makes files beside a database that it only reads, unless it may take for granted that
//! nobody else has it open. So we look first: nobody has it open if none of those files is there.

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

/// So many damages are looked for: one is enough to know.
const DAMAGES: u32 = 3;

/// What a look at a file found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// How far its tables have come.
    pub status: Status,
    /// Whether it is in the mode that this program brings it to.
    pub has_write_ahead_log: bool,
    /// How large it is, without its log.
    pub file_bytes: u64,
    /// Whether it is whole.
    pub wholeness: Wholeness,
}

/// Whether a file is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wholeness {
    /// No damage was found.
    Whole,
    /// What SQLite found.
    Damaged(String),
    /// It was too large to be read as a whole.
    NotLooked,
}

/// Looks at a file, and changes nothing: it makes no file either. A file of more than `limit` bytes
/// is not searched for damages, which would mean to read all of it.
///
/// `None` if that cannot be had: somebody left a log without the index beside it, and reading it
/// would make one.
///
/// # Errors
/// If the file is not there or cannot be used.
pub fn inspect(path: &Path, set: SchemaSet, limit: u64) -> Result<Option<Inspection>, OpenError> {
    let path = absolute(path)?;
    refuse_a_log_alone(&path)?;
    if !is_there(&path) {
        return Err(OpenError::Missing { path });
    }
    // The files beside it are beside the file itself, not beside a link to it.
    let path = behind_links(&path)?;
    if is_open_elsewhere(&path) {
        let index = beside(&path, "-shm");
        if is_there(&beside(&path, "-wal")) && !is_there(&index) {
            return Ok(None);
        }
        return look(open_readable(&path), &path, set, limit).map(Some);
    }
    let looked = look(open_untouched(&path), &path, set, limit);
    let is_whole = matches!(&looked, Ok(it) if !matches!(it.wholeness, Wholeness::Damaged(_)));
    if !is_whole && is_open_elsewhere(&path) {
        // Somebody has begun to write since, and what we saw was in the middle of that.
        return look(open_readable(&path), &path, set, limit).map(Some);
    }
    looked.map(Some)
}

/// Who serves a file: fires its timers, conducts its calls or makes their attempts; `None` if nobody
/// does. Makes nothing.
///
/// # Errors
/// If it cannot be found out.
pub fn served_by(path: &Path) -> io::Result<Option<String>> {
    let path = absolute(path).map_err(io::Error::other)?;
    // There is no folder yet, and so nobody.
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

fn look(
    connection: rusqlite::Result<Connection>,
    path: &Path,
    set: SchemaSet,
    limit: u64,
) -> Result<Inspection, OpenError> {
    let failed = |error| open_error(path, error);
    let mut connection = connection.map_err(failed)?;
    let status = status_of(&mut connection, path, set)?;
    let unreadable = |error: io::Error| OpenError::Other {
        path: path.to_path_buf(),
        source: Box::new(error),
    };
    let file_bytes = fs::metadata(path).map_err(unreadable)?.len();
    let wholeness = if file_bytes > limit {
        Wholeness::NotLooked
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
    let looked = connection.pragma(None, "quick_check", DAMAGES, |row| {
        found.push(row.get(0)?);
        Ok(())
    });
    match looked {
        Ok(()) if found == ["ok"] => Ok(Wholeness::Whole),
        Ok(()) => Ok(Wholeness::Damaged(found.join("; "))),
        // It may not even be able to go on looking.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(Wholeness::Damaged(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// The file says so itself: its read version is 2. A connection that takes the file for unchanging
/// would not.
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

/// Whether there is something, or may be: what we may not look at is there.
fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// Opens a file that nobody writes to, so that neither locks nor other files are needed.
pub(crate) fn open_untouched(path: &Path) -> rusqlite::Result<Connection> {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        // Every byte of a name may mean something in an address, so none of them stands for itself.
        // Writing to a string does not fail.
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
