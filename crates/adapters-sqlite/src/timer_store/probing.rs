//! Write probe: whether a new timer or call can be stored.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use punctual_ports::{PortError, PortErrorKind, WriteHealth};

use super::SqliteTimerStore;
use crate::inspect::beside;
use crate::port_errors::stopped;
use crate::writer::Transaction;

const OPERATION: &str = "write to the database";
/// Free bytes that a disk must have after it was full: what one call may need at once.
const ROOM: usize = 256 * 1024;

impl SqliteTimerStore {
    /// Health of the writes so far.
    pub fn write_health(&self) -> WriteHealth {
        self.health.get()
    }

    /// Probes with a small durable write whether something can be stored. Stored data do not change.
    ///
    /// # Errors
    /// The reason why a new timer or call would be refused.
    pub async fn probe_write(&self) -> Result<(), PortError> {
        let is_full = |error: &PortError| error.kind() == PortErrorKind::StorageFull;
        if self.health.get().problem.as_ref().is_some_and(is_full) {
            let path = self.path.clone();
            let trying = tokio::task::spawn_blocking(move || find_room_beside(&path));
            let tried = trying.await.map_err(|_| stopped(OPERATION))?;
            tried.map_err(|error| {
                let reason = format!("there is no room left on its disk: {error}");
                PortError::new(PortErrorKind::StorageFull, OPERATION, reason).with_source(error)
            })?;
        }
        let apply = |transaction: &mut Transaction<'_>, (): &()| write_nothing_new(transaction);
        let written = self.each(OPERATION, vec![()], true, apply);
        let written = written.await?.into_iter().next();
        written.unwrap_or_else(|| Err(stopped(OPERATION)))
    }
}

/// Rewrites the first page unchanged: `user_version` belongs to the host.
fn write_nothing_new(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let connection = transaction.connection;
    let kept: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", kept)
}

/// Creates a file of [`ROOM`] bytes beside the database and removes it. A write to a reused page does
/// not prove that the disk has room for more.
fn find_room_beside(database: &Path) -> io::Result<()> {
    let path = beside(database, ".room");
    let fill = |mut file: File| {
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()
    };
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).open(&path);
    let tried = opened.and_then(fill);
    // It may not exist.
    let _ = std::fs::remove_file(path);
    tried
}
