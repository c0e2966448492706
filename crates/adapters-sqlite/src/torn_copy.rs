//! Files that were copied or moved without their log, which SQLite would take for empty.
//!
//! What was committed lately is in the log (`-wal`) alone; in a young file, that is everything. SQLite
//! cannot know that a log is missing. Where its file is missing or has no bytes, it even removes the log.
//!
//! | what is there | what SQLite does | what we do |
//! |---|---|---|
//! | a log, and no file or an empty one | removes the log | refuse, before anything is opened |
//! | our file in log mode without tables, no log, and nobody has served it here | begins anew | refuse |
//! | the same, and the file is somebody else's | begins anew | go on: it is new |
//! | a file without tables, and a log with commits that do not fit it | begins anew | refuse |
//! | the same, and the log fits | reads the log | go on |
//!
//! A file is ours if it has our mark in its header. Before the first tables are made the mark is put into
//! the file itself: a copy without its log has it.
//!
//! A copy that lacks only the latest commits looks like any other file: nobody can tell.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use crate::OpenError;
use crate::inspect::beside;
use crate::open_error::open_error;
use crate::role_lock;

/// The `application_id` of a file that we were the first to make tables in: "Pnct".
const MARK: i32 = 0x506e_6374;

/// What a log begins with, and each of its frames.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Refuses a log whose database is not there.
pub(crate) fn refuse_a_log_alone(path: &Path) -> Result<(), OpenError> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |it| it.len());
    let log = log_of(path);
    // The log first: whoever makes the file at this moment writes to it before there is a log.
    if size(&log) > LOG_HEADER as u64 && size(path) == 0 {
        return Err(OpenError::LogAlone {
            path: path.to_owned(),
            log,
        });
    }
    Ok(())
}

/// Whether a file may have lost its log, as far as can be seen beside it.
///
/// The file itself is left to SQLite: closing a descriptor of our own would drop every lock that
/// connections of this process have on it.
pub(crate) fn may_be_torn(path: &Path) -> bool {
    // What cannot be read is refused by whoever opens it.
    look_beside(path).unwrap_or(false)
}

fn look_beside(path: &Path) -> io::Result<bool> {
    let log = log_of(path);
    if log.try_exists()? {
        return has_commits(&log);
    }
    // Who serves a file has its lock before there are tables: without one, it was not made here.
    let was_served = [role_lock::TIMER, role_lock::ORCHESTRATION]
        .iter()
        .any(|role| role_lock::lock_name(path, role).exists());
    Ok(!was_served)
}

/// Whether a log has a whole frame that ends a transaction.
fn has_commits(log: &Path) -> io::Result<bool> {
    let mut log = File::open(log)?;
    let length = log.metadata()?.len();
    let mut header = [0; LOG_HEADER];
    if length < LOG_HEADER as u64 {
        return Ok(false);
    }
    log.read_exact(&mut header)?;
    let word = |bytes: &[u8], at: usize| {
        bytes[at..at + 4]
            .iter()
            .fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    let frame = FRAME_HEADER as u64 + word(&header, 8);
    let mut at = LOG_HEADER as u64;
    while at + frame <= length {
        let mut header = [0; FRAME_HEADER];
        log.seek(SeekFrom::Start(at))?;
        log.read_exact(&mut header)?;
        if word(&header, 4) > 0 {
            return Ok(true);
        }
        at += frame;
    }
    Ok(false)
}

/// Refuses a file that may be torn, keeps a log and has no tables, all in the eyes of SQLite.
pub(crate) fn refuse_what_is_torn(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), OpenError> {
    let failed = |error| open_error(path, error);
    if has_tables(connection).map_err(failed)? || !keeps_a_log(connection).map_err(failed)? {
        return Ok(());
    }
    // Somebody may be making it at this moment: whoever has the write lock has made it.
    let writing = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let is_made = has_tables(&writing).map_err(failed)?;
    drop(writing);
    if is_made {
        return Ok(());
    }
    // Whoever made it empty, in log mode, and had nothing to write yet, has lost nothing.
    let is_ours = application_id(connection).map_err(failed)? == MARK;
    if !is_ours && !leaves_out_a_log(connection, path).map_err(failed)? {
        return Ok(());
    }
    // The last to close would remove the log, and that may be all that is left.
    let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keep, true).map_err(failed)?;
    Err(OpenError::CopiedWithoutLog {
        path: path.to_owned(),
    })
}

/// Marks a file as ours, unless there is something in it or another mark on it. Must not run inside a
/// transaction.
pub(crate) fn mark_if_new(connection: &mut Connection) -> rusqlite::Result<()> {
    if has_tables(connection)? || application_id(connection)? != 0 {
        return Ok(());
    }
    // Of several programs that start at once, all but one find it marked.
    let writing = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !has_tables(&writing)? && application_id(&writing)? == 0 {
        writing.pragma_update(None, "application_id", MARK)?;
    }
    writing.commit()?;
    if keeps_a_log(connection)? {
        // A mark in the log would be lost with it. If somebody reads at this moment, it stays there.
        frames_in_log(connection)?;
    }
    Ok(())
}

fn application_id(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Whether there is a log with commits that SQLite does not read, since they are of another file.
fn leaves_out_a_log(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    let log = log_of(path);
    Ok(log.exists() && has_commits(&log).unwrap_or(true) && frames_in_log(connection)? <= 0)
}

/// Copies what is in the log into the file, as far as nobody is in the way, and tells how much there is.
fn frames_in_log(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    let count = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
    connection.query_row(count, [], |row| row.get(0))
}

fn keeps_a_log(connection: &Connection) -> rusqlite::Result<bool> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    Ok(mode == "wal")
}

fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}
