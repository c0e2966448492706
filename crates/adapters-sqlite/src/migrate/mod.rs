//! Schema migrations (docs/decisions/0015).
//!
//! A run is one transaction under the write lock: a crash at any statement leaves the file unchanged,
//! and of several programs that start at once one migrates while the others wait. A file that is
//! damaged, of the other set, newer than this program or not ours is refused before any write.

mod apply;
#[cfg(test)]
mod connection_tests;
mod history;
#[cfg(test)]
mod interruption_tests;
mod log_mode;
mod refusals;
mod report;
#[cfg(test)]
mod scenarios;

use std::path::Path;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_migrations::{Dialect, Migration, SchemaSet, plan};
use rusqlite::{Connection, OpenFlags};

use crate::OpenError;
use crate::connection::{absolute, check_version, open_writable};
use crate::open_error::{drift_error, open_error};
use crate::torn_copy::{mark_if_new, refuse_a_log_alone};
use history::History;
pub use report::{MigrationState, Report, Status};

/// Busy timeout of [`migrate`]: another program's upgrade that copies a large table takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates the file and its folder if they are missing, and applies what is pending.
pub fn migrate(path: &Path, set: SchemaSet, now: Timestamp) -> Result<Report, OpenError> {
    check_version(rusqlite::version_number())?;
    let path = absolute(path)?;
    create_folder(&path)?;
    refuse_a_log_alone(&path)?;
    let mut connection = open_writable(&path, PATIENCE)?;
    migrate_connection(&mut connection, &path, set, now)
}

/// Lists the applied and the pending migrations of a file. Changes nothing.
pub fn migration_status(path: &Path, set: SchemaSet) -> Result<Status, OpenError> {
    let path = absolute(path)?;
    refuse_a_log_alone(&path)?;
    if path.try_exists().is_ok_and(|exists| !exists) {
        return Err(OpenError::Missing { path });
    }
    let mut connection = open_readable(&path).map_err(|error| open_error(&path, error))?;
    status_of(&mut connection, &path, set)
}

/// Lists them over a connection that can read.
pub(crate) fn status_of(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<Status, OpenError> {
    let (history, _) = check(connection, path, set)?;
    Ok(Status {
        migrations: history.states(set),
    })
}

/// Applies the pending migrations over a connection that can write, within its busy timeout. If there
/// are any, foreign keys are on afterwards.
pub(crate) fn migrate_connection(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
    now: Timestamp,
) -> Result<Report, OpenError> {
    let (history, pending) = check(connection, path, set)?;
    // The mark and the switch to the write-ahead log write to the file, so they follow the refusals. The
    // mark precedes the switch: it has to be in the file itself.
    mark_if_new(connection).map_err(|error| open_error(path, error))?;
    log_mode::use_write_ahead_log(connection, path)?;
    if pending.is_empty() {
        return Ok(Report {
            migrations: history.states(set),
            applied_now: 0,
        });
    }
    apply::apply_pending(connection, path, set, now)
}

/// Refuses a file that must not be migrated. Changes nothing.
pub(crate) fn check_connection(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(), OpenError> {
    check(connection, path, set).map(drop)
}

/// Creates the folder of a database file, with those above it.
pub(crate) fn create_folder(path: &Path) -> Result<(), OpenError> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|source| OpenError::Folder {
        path: folder.to_owned(),
        source,
    })
}

pub(crate) fn open_readable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Reads the history and the pending migrations in one snapshot, without the write lock. Only if there
/// are any, checks our tables for damage.
fn check(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(History, Vec<&'static Migration>), OpenError> {
    let snapshot = connection
        .transaction()
        .map_err(|error| open_error(path, error))?;
    let (history, pending) = read_history(&snapshot, path, set)?;
    if !pending.is_empty() {
        refusals::refuse_damaged_tables(&snapshot, path, set)?;
    }
    Ok((history, pending))
}

/// Reads the history and refuses a file that must not be migrated.
fn read_history(
    connection: &Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(History, Vec<&'static Migration>), OpenError> {
    let history = History::read(connection, path)?;
    let pending = plan(&history.applied(), set, Dialect::Sqlite)
        .map_err(|drift| drift_error(path, set, drift))?;
    refusals::refuse_taken_names(connection, path, set, &history, &pending)?;
    Ok((history, pending))
}
