//! Detection of other programs' commits, at almost no cost while there are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use punctual_ports::ClockPort;
use rusqlite::Connection;

use super::SqliteTimerStore;
use crate::writer::log_path;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of further checks of SQLite after the log last changed. File systems round times, the
/// coarsest to two seconds, and a second write within one step may be invisible.
const CHECKS_AFTER_CHANGE: u32 = 3;

impl SqliteTimerStore {
    /// Calls `on_commit` once, and then within a second after another program has written to the file.
    /// Ends when the store is closed.
    pub async fn watch_foreign_commits(
        &self,
        clock: Arc<dyn ClockPort>,
        on_commit: impl Fn() + Send,
    ) {
        let mut log = LogWatch::new(log_path(&self.path));
        let mut last = None;
        while !self.writer.is_closed() {
            if log.may_have_changed() {
                match self.data_version().await {
                    Ok(version) if last.replace(version) == Some(version) => {}
                    Ok(_) => on_commit(),
                    Err(error) if error.is_retryable() => {
                        tracing::warn!(%error, "could not check whether another program has written");
                        log.forget();
                    }
                    Err(_) => return,
                }
            }
            clock.sleep_for(CHECK_INTERVAL).await;
        }
    }

    /// The `data_version` of the writing connection, which only commits of others change.
    async fn data_version(&self) -> Result<i64, punctual_ports::PortError> {
        let version = |connection: &Connection| {
            connection.query_row("PRAGMA data_version", [], |row| row.get(0))
        };
        let operation = "check for foreign commits";
        self.writer.maintenance(operation, version).await
    }
}

/// Detects whether the log may have been written to since the last check.
///
/// Every commit of any program changes the log's length or modification time. To read those is a
/// hundred times cheaper than to query SQLite on the writer's thread.
struct LogWatch {
    path: PathBuf,
    last: Option<Stamp>,
    checks_left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: SystemTime,
}

impl LogWatch {
    const fn new(path: PathBuf) -> Self {
        Self {
            path,
            last: None,
            checks_left: 0,
        }
    }

    /// Must be called before SQLite is queried, so that the next check sees a write in between.
    fn may_have_changed(&mut self) -> bool {
        let stamp = stamp(&self.path);
        if stamp.is_none() || stamp != self.last {
            self.last = stamp;
            self.checks_left = CHECKS_AFTER_CHANGE;
            return true;
        }
        let more = self.checks_left > 0;
        self.checks_left = self.checks_left.saturating_sub(1);
        more
    }

    /// Makes the next check report a change.
    const fn forget(&mut self) {
        self.last = None;
    }
}

/// `None` if it is unreliable: other systems than Unix may update the modification time late.
fn stamp(log: &Path) -> Option<Stamp> {
    if !cfg!(unix) {
        return None;
    }
    let metadata = std::fs::metadata(log).ok()?;
    Some(Stamp {
        length: metadata.len(),
        modified: metadata.modified().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Seek, Write};

    fn changes(log: &mut LogWatch, checks: usize) -> usize {
        (0..checks).filter(|_| log.may_have_changed()).count()
    }

    #[test]
    fn sqlite_is_queried_only_after_the_log_was_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        let mut log = LogWatch::new(path);
        let once = 1 + CHECKS_AFTER_CHANGE as usize;
        assert_eq!(changes(&mut log, 10), once);
        file.write_all(b"longer").unwrap();
        assert_eq!(changes(&mut log, 10), once);

        // Overwritten in place, as after a checkpoint.
        file.rewind().unwrap();
        file.write_all(b"change").unwrap();
        let step = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(step).unwrap();
        assert_eq!(changes(&mut log, 10), once);

        log.forget();
        assert_eq!(changes(&mut log, 10), once);
    }

    #[test]
    fn without_a_log_sqlite_is_always_queried() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogWatch::new(folder.path().join("none"));
        assert_eq!(changes(&mut log, 10), 10);
    }
}
