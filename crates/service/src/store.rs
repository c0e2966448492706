//! Opening the database, on a thread where waiting for it holds nobody up.

use std::time::Duration;

use punctual_adapters_sqlite::{OpenError, SqliteSettings, SqliteTimerStore};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

use crate::failure::Failure;

/// How long to wait for a role that another process has: long enough for one that is about to end.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Opens the database; a role that is taken is asked for again for a second.
pub(crate) async fn open(
    settings: &SqliteSettings,
    clock: &SystemClock,
) -> Result<SqliteTimerStore, Failure> {
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
    if let Ok(false) = settings.path.try_exists() {
        let path = settings.path.clone();
        return Err(OpenError::Missing { path }.into());
    }
    open(settings, clock).await
}
