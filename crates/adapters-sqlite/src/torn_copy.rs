//! Detection of files that were copied or moved without their log, which SQLite would take for empty.
//!
//! Recent commits are in the log (`-wal`) alone; in a young file, those are all. SQLite cannot detect a
//! missing log, and removes a log whose file is missing or empty.
//!
//! | what is there | what SQLite does | what we do |
//! |---|---|---|
//! | a log, and no file or an empty one | removes the log | refuse, before anything is opened |
//! | our file in log mode without tables, no log, and no process has served it here | starts empty | refuse |
//! | the same, and the file is not ours | starts empty | open: it is new |
//! | a file without tables, and a log with commits that do not match it | starts empty | refuse |
//! | the same, and the log matches | reads the log | open |
//!
//! A file is ours if its header has our mark, which is checkpointed before the first tables are created,
//! so that a copy without its log has it.
//!
//! A copy that lacks only the latest commits cannot be detected.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use crate::OpenError;
use crate::open_error::open_error;
use crate::role_lock;
use crate::writer::log_path;

/// The `application_id` of a file whose first tables are ours: "Pnct".
const MARK: i32 = 0x506e_6374;

/// Lengths of the headers of a log and of its frames.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Refuses a log whose database is missing or empty.
pub(crate) fn refuse_a_log_alone(path: &Path) -> Result<(), OpenError> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |it| it.len());
    let log = log_path(path);
    // The log first: a process that creates the file now writes to it before there is a log.
    if size(&log) > LOG_HEADER as u64 && size(path) == 0 {
        return Err(OpenError::LogAlone {
            path: path.to_owned(),
            log,
        });
    }
    Ok(())
}

/// Whether a file may have lost its log, judged by the files beside it.
///
/// Does not open the file itself: closing a descriptor would drop all locks of this process on it.
pub(crate) fn may_be_torn(path: &Path) -> bool {
    // Opening reports what cannot be read.
    may_lack_log(path).unwrap_or(false)
}

fn may_lack_log(path: &Path) -> io::Result<bool> {
    let log = log_path(path);
    if log.try_exists()? {
        return has_commits(&log);
    }
    // A process that serves a file locks it before it creates tables: without a lock file, the file was
    // created elsewhere.
    let was_served = [role_lock::TIMER, role_lock::ORCHESTRATION]
        .iter()
        .any(|role| role_lock::lock_name(path, role).exists());
    Ok(!was_served)
}

/// Whether a log has a complete frame that ends a transaction.
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

/// Refuses a file that may be torn if, according to SQLite, it keeps a log and has no tables.
pub(crate) fn refuse_what_is_torn(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), OpenError> {
    let failed = |error| open_error(path, error);
    if has_tables(connection).map_err(failed)? || !keeps_a_log(connection).map_err(failed)? {
        return Ok(());
    }
    // Another process may be creating the tables: wait for its write lock.
    let writing = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let is_made = has_tables(&writing).map_err(failed)?;
    drop(writing);
    if is_made {
        return Ok(());
    }
    // An empty file in log mode without our mark has lost nothing.
    let is_ours = application_id(connection).map_err(failed)? == MARK;
    if !is_ours && !leaves_out_a_log(connection, path).map_err(failed)? {
        return Ok(());
    }
    // Closing the last connection would remove the log, which may have the only copy of the data.
    let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keep, true).map_err(failed)?;
    Err(OpenError::CopiedWithoutLog {
        path: path.to_owned(),
    })
}

/// Marks a file as ours, unless it has tables or another mark. Must not run inside a transaction.
pub(crate) fn mark_if_new(connection: &mut Connection) -> rusqlite::Result<()> {
    if has_tables(connection)? || application_id(connection)? != 0 {
        return Ok(());
    }
    // Another program may have marked it meanwhile.
    let writing = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !has_tables(&writing)? && application_id(&writing)? == 0 {
        writing.pragma_update(None, "application_id", MARK)?;
    }
    writing.commit()?;
    if keeps_a_log(connection)? {
        // A mark in the log would be lost with it. A concurrent reader may prevent the checkpoint.
        frames_in_log(connection)?;
    }
    Ok(())
}

fn application_id(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Whether there is a log with commits of another file, which SQLite ignores.
fn leaves_out_a_log(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    let log = log_path(path);
    Ok(log.exists() && has_commits(&log).unwrap_or(true) && frames_in_log(connection)? <= 0)
}

/// Checkpoints the log as far as readers permit, and returns its number of frames.
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
