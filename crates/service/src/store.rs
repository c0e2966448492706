//! Opens databases for commands, which may block: nothing else runs in their process.

use std::path::Path;
use std::sync::Arc;

use punctual_adapters_postgres::{PostgresSettings, PostgresTimerStore};
use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore, migration_status};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_ports::{ClockPort, IdPort};

use crate::failure::Failure;

/// Refuses what is there and can never be a database: SQLite would only speak of an I/O error.
pub(crate) fn refuse_what_is_no_file(path: &Path) -> Result<(), Failure> {
    let shown = crate::display::path(path);
    match path.metadata() {
        Ok(it) if it.is_dir() => Err(Failure::refused(format!(
            "the database {shown} is a folder: name a file"
        ))),
        Ok(it) if !it.is_file() => Err(Failure::refused(format!(
            "the database {shown} is not a file but a device, pipe or socket: name a file"
        ))),
        _ => Ok(()),
    }
}

/// Opens a database that may be served by another process.
pub(crate) fn open(
    settings: &SqliteSettings,
    clock: &SystemClock,
) -> Result<SqliteTimerStore, Failure> {
    refuse_what_is_no_file(&settings.path)?;
    Ok(SqliteTimerStore::open(settings, clock.now())?)
}

/// Opens a database that has to be there already.
pub(crate) fn open_existing(
    settings: &SqliteSettings,
    clock: &SystemClock,
) -> Result<SqliteTimerStore, Failure> {
    refuse_what_is_no_file(&settings.path)?;
    // To read must not change: it may be another program's file, or one of an older version.
    if migration_status(&settings.path, settings.set)?.pending() > 0 {
        return Err(Failure::failed(format!(
            "the database {} has no timers, or is not up to date: name another with --db, or bring it up to date with `timer-service migrate`",
            crate::display::path(&settings.path)
        )));
    }
    open(settings, clock)
}

/// Opens a PostgreSQL database beside those who fire its timers.
pub(crate) async fn open_postgres(
    settings: &PostgresSettings,
    clock: &SystemClock,
) -> Result<PostgresTimerStore, Failure> {
    let clock = Arc::new(clock.clone());
    let opened = PostgresTimerStore::open(settings, clock, UuidIds.next_id());
    Ok(opened.await?)
}
