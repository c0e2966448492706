//! A migration run: one transaction, with foreign keys off.

use std::path::Path;

use punctual_domain::Timestamp;
use punctual_migrations::{Migration, SchemaSet};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, TransactionBehavior};

use super::report::Report;
use super::{history, history::History, read_history, refusals};
use crate::OpenError;
use crate::open_error::open_error;

/// Applies all pending migrations, or none.
pub(super) fn apply_pending(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
    now: Timestamp,
) -> Result<Report, OpenError> {
    let wrap = |error| open_error(path, error);
    prepare_connection(connection).map_err(wrap)?;
    let result = run(connection, path, set, now);
    let restored = restore_connection(connection).map_err(wrap);
    let report = result?;
    restored?;
    Ok(report)
}

/// Sets the pragmas that a migration needs and that cannot be changed within a transaction.
fn prepare_connection(connection: &Connection) -> rusqlite::Result<()> {
    // With foreign keys on, dropping a table deletes its rows first, and the deletion cascades.
    connection.pragma_update(None, "foreign_keys", false)?;
    // Otherwise renaming a table fails over any view in the file that is broken, also over an
    // embedder's, and over every view of the table that was dropped a statement before.
    connection.pragma_update(None, "legacy_alter_table", true)
}

fn restore_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "legacy_alter_table", false)?;
    connection.pragma_update(None, "foreign_keys", true)
}

fn run(
    connection: &mut Connection,
    path: &Path,
    set: SchemaSet,
    now: Timestamp,
) -> Result<Report, OpenError> {
    let wrap = |error| open_error(path, error);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(wrap)?;
    // Another program may have migrated the file while we waited for the lock.
    let (history, pending) = read_history(&transaction, path, set)?;
    if !pending.is_empty() {
        apply(&transaction, set, &history, &pending, now).map_err(wrap)?;
        refusals::refuse_dangling_rows(&transaction, path, set)?;
    }
    let migrations = History::read(&transaction, path)?.states(set);
    transaction.commit().map_err(wrap)?;
    for migration in &pending {
        tracing::info!(
            path = %path.display(),
            migration = migration.name,
            "migrated the database"
        );
    }
    Ok(Report {
        migrations,
        applied_now: pending.len(),
    })
}

pub(super) fn apply(
    connection: &Connection,
    set: SchemaSet,
    history: &History,
    pending: &[&'static Migration],
    now: Timestamp,
) -> rusqlite::Result<()> {
    if !history.exists() {
        history::create(connection)?;
    }
    for migration in pending {
        execute(connection, migration, now)?;
        history::record(connection, set, migration, now)?;
    }
    Ok(())
}

/// Runs a migration's statements, with `:now` bound where they name it.
fn execute(connection: &Connection, migration: &Migration, now: Timestamp) -> rusqlite::Result<()> {
    let mut batch = Batch::new(connection, migration.sql);
    while let Some(mut statement) = batch.next()? {
        if let Some(index) = statement.parameter_index(":now")? {
            statement.raw_bind_parameter(index, now.to_string())?;
        }
        statement.raw_execute()?;
    }
    Ok(())
}
