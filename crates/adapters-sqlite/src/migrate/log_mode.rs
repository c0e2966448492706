//! The switch to the write-ahead log, which lasts: readers and the writer do not stop each other.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::OpenError;
use crate::open_error::open_error;

/// How often the switch is tried. Two programs that switch at once stop each other at most a time
/// or two; a reader that stays makes each attempt last as long as the busy timeout, so few.
const ATTEMPTS: usize = 5;

/// Puts the file into write-ahead-log mode. Must not run inside a transaction.
pub(super) fn use_write_ahead_log(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), OpenError> {
    let wrap = |error| open_error(path, error);
    for _ in 0..ATTEMPTS {
        if is_set(&mode(connection).map_err(wrap)?) {
            return Ok(());
        }
        match switch(connection) {
            Ok(mode) if is_set(&mode) => return Ok(()),
            Ok(mode) => {
                let reason = format!(
                    "SQLite stayed in journal mode {mode}: use a file system that can share memory, for example a local disk"
                );
                return Err(OpenError::other(path, reason));
            }
            // SQLite does not always wait here, although it has a busy timeout: two programs that
            // switch at once could wait for each other for ever. Beginning a write does wait.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .map_err(wrap)?;
            }
            Err(error) => return Err(wrap(error)),
        }
    }
    Err(OpenError::Busy {
        path: path.to_owned(),
    })
}

/// A database in memory has no log, and needs none.
fn is_set(mode: &str) -> bool {
    matches!(mode, "wal" | "memory")
}

fn mode(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

fn switch(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
}
