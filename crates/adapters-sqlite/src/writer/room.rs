//! The size limit of a file.
//!
//! The limit applies to new timers and calls. Writes that finish accepted work are never refused: a
//! call that can neither start nor finish would use its room for ever. So that the file stays within
//! its limit all the same, each unfinished call counts with what it will still write.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::statvfs;

use crate::call_sql;

const USED_PAGES: &str = "\
    SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count";
/// SQLite's maximum page count, which means no limit.
const ALL_PAGES: u64 = 4_294_967_294;
/// Number of pages beyond the limit that a group of new rows may still use: it was admitted below the
/// limit, and SQLite refuses it only if it is far larger than the room left.
const HEADROOM: u64 = 256;
/// Approximate number of bytes that a call still writes besides its request.
const TO_FINISH: u64 = 8 * 1024;
/// Number of copies of its request: in a command, in the attempt, and redacted beside it.
const COPIES: u64 = 3;

/// Length in bytes below which a log is not worth a checkpoint of its own.
const SHORT_LOG: u64 = 1024 * 1024;
/// Number of free bytes below which a disk counts as full and a checkpoint would fail.
const FULL_DISK: u64 = 256 * 1024;

/// Calls that were accepted and have no outcome yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    calls: u64,
    request_bytes: u64,
}

impl Unfinished {
    /// Reads the stored ones.
    pub(crate) fn stored(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row(call_sql::UNFINISHED, [], |row| {
            let (calls, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(Self {
                calls: calls.unsigned_abs(),
                request_bytes: bytes.unsigned_abs(),
            })
        })
    }

    pub(super) const fn accept(&mut self, request_bytes: usize) {
        self.calls += 1;
        self.request_bytes = self.request_bytes.saturating_add(request_bytes as u64);
    }

    /// Removes one of them. Its size is no longer known: the average is subtracted.
    pub(super) const fn end(&mut self) {
        if let Some(share) = self.request_bytes.checked_div(self.calls) {
            self.request_bytes -= share;
            self.calls -= 1;
        }
    }

    /// Number of bytes that they will still write.
    const fn to_write(self) -> u64 {
        let copies = self.request_bytes.saturating_mul(COPIES);
        copies.saturating_add(self.calls.saturating_mul(TO_FINISH))
    }
}

/// The limit of a file.
#[derive(Debug)]
pub(crate) struct Limit {
    bytes: u64,
    page: u64,
    /// Whether SQLite enforces it.
    is_enforced: bool,
}

impl Limit {
    pub(crate) fn new(connection: &Connection, bytes: u64) -> rusqlite::Result<Self> {
        let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let page = u64::from(page.max(1));
        // A long log would use up the room of the file.
        let pages = u32::try_from(bytes / 8 / page).unwrap_or(u32::MAX);
        let pages = i64::from(pages.clamp(16, 10_000));
        connection.pragma_update(None, "wal_autocheckpoint", pages)?;
        let log = i64::try_from(page).map_or(i64::MAX, |page| pages.saturating_mul(page));
        connection.pragma_update(None, "journal_size_limit", log)?;
        Ok(Self {
            bytes,
            page,
            is_enforced: false,
        })
    }

    /// Makes SQLite enforce the limit approximately, or not at all.
    pub(super) fn enforce(
        &mut self,
        connection: &Connection,
        enforced: bool,
    ) -> rusqlite::Result<()> {
        if self.is_enforced != enforced {
            let pages = if enforced {
                self.bytes / self.page + HEADROOM
            } else {
                ALL_PAGES
            };
            let limit = format!("PRAGMA max_page_count = {pages}");
            connection.query_row(&limit, [], |_| Ok(()))?;
            self.is_enforced = enforced;
        }
        Ok(())
    }

    /// Whether the file, its log and the unfinished calls leave no room for anything new.
    pub(super) fn is_reached(
        &self,
        connection: &Connection,
        log: &Path,
        unfinished: Unfinished,
        busy_timeout: Duration,
    ) -> rusqlite::Result<bool> {
        let is_reached = |log_bytes: u64| {
            let mut used = connection.prepare_cached(USED_PAGES)?;
            let used: i64 = used.query_row([], |row| row.get(0))?;
            let used = used.unsigned_abs().saturating_mul(self.page);
            let all = used.saturating_add(log_bytes);
            Ok(all.saturating_add(unfinished.to_write()) >= self.bytes)
        };
        let length = || std::fs::metadata(log).map_or(0, |log| log.len());
        let before = length();
        if !is_reached(before)? || before <= self.bytes / 32 {
            return is_reached(before);
        }
        // A checkpoint may free enough.
        checkpoint(connection, busy_timeout)?;
        is_reached(length())
    }
}

/// Checkpoints a log that is longer than the room left on its disk.
///
/// A checkpoint needs at most as much room as the log is long. After a log has filled the disk, no
/// checkpoint and no write would be possible any more.
pub(super) fn checkpoint_before_disk_is_full(
    connection: &Connection,
    log: &Path,
    busy_timeout: Duration,
) -> rusqlite::Result<()> {
    let length = std::fs::metadata(log).map_or(0, |log| log.len());
    if length < SHORT_LOG {
        return Ok(());
    }
    let Ok(disk) = statvfs(log) else {
        return Ok(());
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if (FULL_DISK..length).contains(&free) {
        checkpoint(connection, busy_timeout)?;
    }
    Ok(())
}

/// Checkpoints and truncates the log, unless a reader still needs it: waiting for it would hold the
/// write lock and block every other program.
pub(super) fn checkpoint(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(busy_timeout)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_calls_need_no_room_whatever_their_size() {
        let mut unfinished = Unfinished::default();
        unfinished.end();
        assert_eq!(unfinished.to_write(), 0);
        unfinished.accept(10);
        unfinished.accept(1_000);
        let both = unfinished.to_write();
        unfinished.end();
        assert_eq!(unfinished.to_write() * 2, both);
        unfinished.end();
        assert_eq!(unfinished, Unfinished::default());
    }
}
