//! Brings a file's tables to what this program needs (docs/decisions/0015).
//!
//! The whole run is one transaction under the write lock: a crash at any statement leaves the file
//! as it was, and of several programs that start at once one migrates while the others wait and
//! then find nothing left to do. A file that is damaged, of the other set, newer than this program
//! or somebody else's is refused before anything is written to it.

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
use punctual_migrations::{Migration, SchemaSet, plan};
use rusqlite::{Connection, OpenFlags};

use crate::OpenError;
use crate::connection::{absolute, check_version, open_writable};
use crate::open_error::{drift_error, open_error};
use crate::torn_copy::{mark_if_new, refuse_a_log_alone};
use history::History;
pub use report::{MigrationState, Report, Status};

/// How long [`migrate`] waits for another program that is migrating the same file. An upgrade that
/// copies a large table takes seconds.
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

/// Which migrations the file has been through and which are pending. Changes nothing.
pub fn migration_status(path: &Path, set: SchemaSet) -> Result<Status, OpenError> {
    let path = absolute(path)?;
    refuse_a_log_alone(&path)?;
    if path.try_exists().is_ok_and(|exists| !exists) {
        return Err(OpenError::Missing { path });
    }
    let mut connection = open_readable(&path).map_err(|error| open_error(&path, error))?;
    status_of(&mut connection, &path, set)
}

/// The same over a connection that can read.
pub(crate) fn status_of(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<Status, OpenError> {
    let (history, _) = look(connection, path, set)?;
    Ok(Status {
        migrations: history.states(set),
    })
}

/// Applies what is pending over a connection that can write, and leaves it with foreign keys on if
/// there was anything. It waits for other programs as long as the connection's busy timeout says.
pub(crate) fn migrate_connection(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
    now: Timestamp,
) -> Result<Report, OpenError> {
    let (history, pending) = look(connection, path, set)?;
    // Even the mark and the switch to the write-ahead log write to the file, so they come after the
    // refusals. The mark comes first: it has to be in the file itself.
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

/// Refuses a file that is not ours to migrate, and touches nothing.
pub(crate) fn check_connection(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(), OpenError> {
    look(connection, path, set).map(drop)
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

/// The history and what is pending, seen at one instant and without the write lock. It costs time
/// only if something is pending: then our tables are checked before they are rewritten.
fn look(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(History, Vec<&'static Migration>), OpenError> {
    let snapshot = connection
        .transaction()
        .map_err(|error| open_error(path, error))?;
    let (history, pending) = judge(&snapshot, path, set)?;
    if !pending.is_empty() {
        refusals::refuse_damaged_tables(&snapshot, path, set)?;
    }
    Ok((history, pending))
}

/// Reads the history and refuses a file that is not ours to migrate.
fn judge(
    connection: &Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(History, Vec<&'static Migration>), OpenError> {
    let history = History::read(connection, path)?;
    let pending = plan(&history.applied(), set).map_err(|drift| drift_error(path, set, drift))?;
    refusals::refuse_taken_names(connection, path, set, &history, &pending)?;
    Ok((history, pending))
}
