//! Opening the database, on a thread where waiting for it holds nobody up.

use std::path::Path;
use std::time::Duration;

use punctual_adapters_sqlite::{OpenError, SqliteSettings, SqliteTimerStore, migration_status};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

use crate::failure::Failure;

/// How long to wait for a role that another process has: long enough for one that is about to end.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Refuses what is there and can never be a database: SQLite would only speak of an I/O error.
pub(crate) fn refuse_what_is_no_file(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
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

/// Opens the database; a role that is taken is asked for again for a second.
pub(crate) async fn open(
    settings: &SqliteSettings,
    clock: &SystemClock,
) -> Result<SqliteTimerStore, Failure> {
    refuse_what_is_no_file(&settings.path)?;
    let give_up = clock.monotonic() + PATIENCE;
    loop {
        let (wish, now) = (settings.clone(), clock.now());
        let opened = tokio::task::spawn_blocking(move || SqliteTimerStore::open(&wish, now)).await;
        match opened {
            Ok(Ok(store)) => return Ok(store),
            Ok(Err(OpenError::RoleTaken { .. })) if clock.monotonic() < give_up => {
                clock.sleep_for(BETWEEN_TRIES).await;
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::failed(format!("opening was broken off: {error}"))),
        }
    }
}

/// Opens a database that has to be there already.
pub(crate) async fn open_existing(
    settings: &SqliteSettings,
    clock: &SystemClock,
) -> Result<SqliteTimerStore, Failure> {
    refuse_what_is_no_file(&settings.path)?;
    let (path, set) = (settings.path.clone(), settings.set);
    let looked = tokio::task::spawn_blocking(move || migration_status(&path, set)).await;
    let status =
        looked.map_err(|error| Failure::failed(format!("a look broke off: {error}")))??;
    // To read must not change: it may be another program's file, or one of an older version.
    if status.pending() > 0 {
        return Err(Failure::failed(format!(
            "the database {} has no timers, or is not up to date: name another with --db, or bring it up to date with `timer-service migrate`",
            settings.path.display()
        )));
    }
    open(settings, clock).await
}
