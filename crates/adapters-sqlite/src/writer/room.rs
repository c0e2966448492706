//! Room for new promises, where a file has a limit.
//!
//! The limit is for what is new. Whatever finishes what was accepted before is never refused for
//! it: a call that can neither begin nor end would keep its room for ever. So that the file stays
//! within its limit all the same, each unfinished call counts with what it will still write.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::statvfs;

use crate::call_sql;

const USED_PAGES: &str = "\
    SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count";
/// What SQLite takes for no limit at all.
const ALL_PAGES: u64 = 4_294_967_294;
/// Number of pages beyond the limit that a group of new rows may still take: it was let in below the
/// limit, and is to be refused by it only if it is far larger than what was left.
const HEADROOM: u64 = 256;
/// About what a call still writes besides its request: states, messages, an attempt and its outcome.
const TO_FINISH: u64 = 8 * 1024;
/// So often its request is written again: into a command, into the attempt, and redacted beside it.
const COPIES: u64 = 3;

/// Length in bytes below which a log is not worth a checkpoint of its own.
const SHORT_LOG: u64 = 1024 * 1024;
/// Number of bytes without which a disk counts as full: a checkpoint would take the last of them, and fail.
const FULL_DISK: u64 = 256 * 1024;

/// Calls that were accepted and have no outcome yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    calls: u64,
    request_bytes: u64,
}

impl Unfinished {
    /// Those that are stored.
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

    /// One of them has ended. How large it was is not known any more: it takes its share with it.
    pub(super) const fn end(&mut self) {
        if let Some(share) = self.request_bytes.checked_div(self.calls) {
            self.request_bytes -= share;
            self.calls -= 1;
        }
    }

    /// What they will still write.
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
    /// Whether SQLite was told to let the file grow no further.
    is_held: bool,
}

impl Limit {
    pub(crate) fn new(connection: &Connection, bytes: u64) -> rusqlite::Result<Self> {
        let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let page = u64::from(page.max(1));
        // A log that is folded in late, or stays long, would take what the file may have.
        let pages = u32::try_from(bytes / 8 / page).unwrap_or(u32::MAX);
        let pages = i64::from(pages.clamp(16, 10_000));
        connection.pragma_update(None, "wal_autocheckpoint", pages)?;
        let log = i64::try_from(page).map_or(i64::MAX, |page| pages.saturating_mul(page));
        connection.pragma_update(None, "journal_size_limit", log)?;
        Ok(Self {
            bytes,
            page,
            is_held: false,
        })
    }

    /// Lets the file grow to about its limit only, or as far as it has to.
    pub(super) fn hold(&mut self, connection: &Connection, held: bool) -> rusqlite::Result<()> {
        if self.is_held != held {
            let pages = if held {
                self.bytes / self.page + HEADROOM
            } else {
                ALL_PAGES
            };
            let limit = format!("PRAGMA max_page_count = {pages}");
            connection.query_row(&limit, [], |_| Ok(()))?;
            self.is_held = held;
        }
        Ok(())
    }

    /// Whether the file, its log and what was accepted leave no room for anything new.
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
        // Perhaps it is the log alone.
        checkpoint(connection, busy_timeout)?;
        is_reached(length())
    }
}

/// Checkpoints a log that is longer than the room left on its disk.
///
/// A checkpoint needs at most as much room as the log is long. A log that grew until the disk is full
/// would have left none: nothing could be written any more, although what is stored is small.
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

/// Checkpoints the whole log and empties it, unless somebody still reads it.
fn checkpoint(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(busy_timeout)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_needs_no_room_whatever_its_size_was() {
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
