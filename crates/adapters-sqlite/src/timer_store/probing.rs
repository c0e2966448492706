//! Whether something can be written now, asked by writing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use punctual_ports::{PortError, PortErrorKind, WriteHealth};

use super::SqliteTimerStore;
use crate::port_errors::stopped;
use crate::writer::Transaction;

const OPERATION: &str = "write to the database";
/// What a call may need at once: after a disk was full, less than this is as good as none.
const ROOM: usize = 256 * 1024;

impl SqliteTimerStore {
    /// How writing goes, as far as somebody has tried to.
    pub fn write_health(&self) -> WriteHealth {
        self.health.get()
    }

    /// Writes something small, as durably as anything else, to see whether that is possible. What is
    /// stored stays as it is.
    ///
    /// # Errors
    /// With the reason why a new timer or call would be refused.
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

/// Writes the first page as it is: the number in it belongs to the host, and is given back to it.
fn write_nothing_new(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let connection = transaction.connection;
    let kept: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", kept)
}

/// Makes a file of some size beside the database, and removes it. A page that fits where others were
/// does not show that there is room for more.
fn find_room_beside(database: &Path) -> io::Result<()> {
    let mut name = database.as_os_str().to_owned();
    name.push(".room");
    let path = Path::new(&name);
    let fill = |mut file: File| {
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()
    };
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).open(path);
    let tried = opened.and_then(fill);
    // It may not be there.
    let _ = std::fs::remove_file(path);
    tried
}
