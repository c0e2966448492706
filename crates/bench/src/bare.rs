//! The bare loop: plain rusqlite on one thread, which is what this hardware can do.
//!
//! It uses the same schema and pragmas as the store, prepared statements, and nothing else: no
//! channel, no runtime, no outcome for each row. Whatever the store is slower than this is the
//! price of what it does besides.

use std::path::Path;

use punctual_adapters_sqlite::Synchronous;
use punctual_adapters_system::UuidIds;
use punctual_domain::Timestamp;
use punctual_ports::IdPort;
use punctual_workflows::TimerRequest;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use uuid::Uuid;

use crate::Outcome;

const UPSERT: &str = "
    INSERT INTO timer_schedules
        (tenant_id, service_call_id, correlation_id, due_at, registered_at, state, data)
    VALUES (?1, ?2, ?3, ?4, ?5, 'Scheduled', NULL)
    ON CONFLICT (tenant_id, service_call_id) DO UPDATE SET
        due_at = excluded.due_at,
        correlation_id = excluded.correlation_id,
        registered_at = excluded.registered_at,
        data = excluded.data,
        state = 'Scheduled',
        reached_at = NULL,
        attempts = 0,
        retry_at = NULL";

const SELECT_DUE: &str = "
    SELECT rowid, tenant_id, service_call_id, correlation_id, due_at, registered_at, data, attempts
    FROM timer_schedules
    WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= ?1
    ORDER BY coalesce(retry_at, due_at)
    LIMIT ?2";

const MARK: &str = "
    UPDATE timer_schedules SET state = 'Reached', reached_at = ?1
    WHERE rowid = ?2 AND state = 'Scheduled'";

const POLL: &str = "
    SELECT coalesce(retry_at, due_at) FROM timer_schedules
    WHERE state = 'Scheduled'
    ORDER BY coalesce(retry_at, due_at)
    LIMIT 1";

/// One connection.
pub(crate) struct Bare {
    pub(crate) connection: Connection,
}

/// A due timer, as a loop would hand it to its handler: all columns of `SELECT_DUE`.
type Due = (
    i64,
    String,
    String,
    String,
    String,
    String,
    Option<String>,
    u32,
);

impl Bare {
    /// Opens a file with the store's pragmas, so that a commit is durable.
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        Self::open_with(path, Synchronous::Full)
    }

    /// Opens a file with the store's pragmas.
    pub(crate) fn open_with(path: &Path, synchronous: Synchronous) -> Outcome<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(match synchronous {
            Synchronous::Full => "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
            Synchronous::Normal => "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
        })?;
        connection.execute_batch(
            "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA temp_store = MEMORY",
        )?;
        let bare = Self { connection };
        bare.tune(16, 10_000)?;
        Ok(bare)
    }

    /// Opens a file to fill it as fast as possible: without durability while building.
    pub(crate) fn open_to_build(path: &Path) -> Outcome<Self> {
        let bare = Self::open_with(path, Synchronous::Normal)?;
        bare.connection.pragma_update(None, "synchronous", "OFF")?;
        bare.tune(512, 10_000)?;
        Ok(bare)
    }

    /// Stores timers, `per_transaction` in each transaction.
    pub(crate) fn upsert(
        &mut self,
        timers: &[TimerRequest],
        per_transaction: usize,
        now: Timestamp,
    ) -> Outcome<()> {
        let registered_at = now.to_string();
        for chunk in timers.chunks(per_transaction) {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut upsert = transaction.prepare_cached(UPSERT)?;
            for timer in chunk {
                let [mut id, mut correlation] = [Uuid::encode_buffer(); 2];
                let id = as_text(timer.key.service_call_id.as_uuid(), &mut id);
                let correlation = as_text(UuidIds.next_id(), &mut correlation);
                let due_at = timer.due_at.to_string();
                let tenant = timer.key.tenant_id.as_str();
                upsert.execute(params![tenant, id, correlation, due_at, registered_at])?;
            }
            drop(upsert);
            transaction.commit()?;
        }
        Ok(())
    }

    /// Selects due timers and marks them, `batch` in each transaction, until nothing is due or it is
    /// not to go on, which is asked with how many were selected; returns how many were marked.
    pub(crate) fn drain(
        &mut self,
        batch: usize,
        now: Timestamp,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Outcome<usize> {
        let (now, limit) = (now.to_string(), i64::try_from(batch)?);
        let mut drained = 0;
        loop {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut select = transaction.prepare_cached(SELECT_DUE)?;
            let due = select.query_map(params![now, limit], |row| Due::try_from(row))?;
            let mut due = due.collect::<Result<Vec<_>, _>>()?;
            drop(select);
            if due.is_empty() || !goes_on(due.len()) {
                return Ok(drained);
            }
            // In the order of the file, which is faster than in that of the due times.
            due.sort_unstable_by_key(|timer| timer.0);
            let mut mark = transaction.prepare_cached(MARK)?;
            for timer in &due {
                drained += mark.execute(params![now, timer.0])?;
            }
            drop(mark);
            transaction.commit()?;
        }
    }

    /// When the next timer is due.
    pub(crate) fn poll(&self) -> Outcome<Option<String>> {
        let mut poll = self.connection.prepare_cached(POLL)?;
        Ok(poll.query_row([], |row| row.get(0)).optional()?)
    }

    /// How many timers are in a state.
    pub(crate) fn count(&self, state: &str) -> Outcome<usize> {
        let sql = "SELECT count(*) FROM timer_schedules WHERE state = ?1";
        let count: i64 = self.connection.query_row(sql, [state], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    /// Folds the log into the file, and leaves none behind.
    pub(crate) fn checkpoint(&self) -> Outcome<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
        if busy == 0 {
            return Ok(());
        }
        Err("failed to checkpoint the log: another process has the file open".into())
    }

    /// Drops the indexes of the timers, and returns the statements that create them.
    pub(crate) fn drop_indexes(&self) -> Outcome<String> {
        let sql = "SELECT name, sql FROM sqlite_schema
                   WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'timer_schedules'";
        let mut select = self.connection.prepare(sql)?;
        let indexes = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let indexes = indexes.collect::<Result<Vec<(String, String)>, _>>()?;
        for (name, _) in &indexes {
            self.connection
                .execute_batch(&format!("DROP INDEX {name}"))?;
        }
        Ok(indexes.into_iter().map(|(_, sql)| sql + ";").collect())
    }

    /// Another page cache, in MiB, and another length of the log, in pages; zero lets it grow.
    pub(crate) fn tune(&self, cache: i64, checkpoint: i64) -> Outcome<()> {
        let connection = &self.connection;
        connection.pragma_update(None, "cache_size", -1_024 * cache)?;
        Ok(connection.pragma_update(None, "wal_autocheckpoint", checkpoint)?)
    }
}

fn as_text(id: Uuid, buffer: &mut [u8]) -> &str {
    id.hyphenated().encode_lower(buffer)
}
