//! Noticing what other programs commit, at almost no cost while nobody does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use punctual_ports::ClockPort;
use rusqlite::Connection;

use super::SqliteTimerStore;
use crate::writer::log_path;

/// How often somebody looks whether another program has written.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After the log was last seen to change, SQLite is asked so many times more. A file system counts
/// time in steps, the coarsest of two seconds, and what was written within one step may look as if
/// nothing had been.
const LOOKS_AFTER_A_CHANGE: u32 = 3;

impl SqliteTimerStore {
    /// Calls `on_commit` at first, and then whenever another program has written to the file,
    /// within a second. Ends when the store is closed.
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
                        tracing::warn!(%error, "it is not known whether another program has written");
                        log.forget();
                    }
                    Err(_) => return,
                }
            }
            clock.sleep_for(LOOK_EVERY).await;
        }
    }

    /// A number that belongs to the writing connection, whose own commits do not change it.
    async fn data_version(&self) -> Result<i64, punctual_ports::PortError> {
        let version = |connection: &Connection| {
            connection.query_row("PRAGMA data_version", [], |row| row.get(0))
        };
        let operation = "look for foreign commits";
        self.writer.maintenance(operation, version).await
    }
}

/// Tells whether anything may have been written to the log since the last look.
///
/// Every commit is written to the log, by whichever program, and changes its length or its time of
/// change. To ask the file system for those is a hundred times cheaper than to ask SQLite, which has
/// to be done on the thread that writes.
struct LogWatch {
    path: PathBuf,
    last: Option<Stamp>,
    looks_to_come: u32,
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
            looks_to_come: 0,
        }
    }

    /// To be asked before SQLite is: what is written in between is then seen by the next look.
    fn may_have_changed(&mut self) -> bool {
        let stamp = stamp(&self.path);
        if stamp.is_none() || stamp != self.last {
            self.last = stamp;
            self.looks_to_come = LOOKS_AFTER_A_CHANGE;
            return true;
        }
        let more = self.looks_to_come > 0;
        self.looks_to_come = self.looks_to_come.saturating_sub(1);
        more
    }

    /// What was seen last was for nothing.
    const fn forget(&mut self) {
        self.last = None;
    }
}

/// `None` if it cannot be relied on. Elsewhere than on Unix, a file may be written to for long
/// before its time of change is.
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

    fn asked(log: &mut LogWatch, looks: usize) -> usize {
        (0..looks).filter(|_| log.may_have_changed()).count()
    }

    #[test]
    fn a_log_that_rests_is_no_reason_to_ask_and_one_that_is_written_to_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        let mut log = LogWatch::new(path);
        let once = 1 + LOOKS_AFTER_A_CHANGE as usize;
        assert_eq!(asked(&mut log, 10), once);
        file.write_all(b"longer").unwrap();
        assert_eq!(asked(&mut log, 10), once);

        // Over what was there, as after the log was folded in.
        file.rewind().unwrap();
        file.write_all(b"change").unwrap();
        let step = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(step).unwrap();
        assert_eq!(asked(&mut log, 10), once);

        log.forget();
        assert_eq!(asked(&mut log, 10), once);
    }

    #[test]
    fn without_a_log_to_look_at_one_has_to_ask() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogWatch::new(folder.path().join("none"));
        assert_eq!(asked(&mut log, 10), 10);
    }
}
