//! Scheduling inside a caller's own transaction, so that its row and its timer commit together.

use punctual_domain::Timestamp;
use punctual_ports::{PortError, SaveOutcome, SaveTimer};
use rusqlite::Transaction;

use crate::port_errors::port_error;
use crate::sql;
use crate::timer_store::save_on;

/// Stores a timer within a transaction of the caller's, on a connection of the caller's to the same
/// file. It is durable when, and only when, the caller's commit is.
///
/// The outcome is that of any other schedule: `AlreadyReached` stores nothing.
///
/// The worker learns of it at its next poll; within a second, if the process that fires runs
/// [`SqliteTimerStore::watch_foreign_commits`](crate::SqliteTimerStore::watch_foreign_commits); at
/// once, if the caller notifies its `WakeSignal` of the due time after the commit.
///
/// `Transaction` is that of `rusqlite` 0.40, which this crate re-exports. To begin it with
/// `TransactionBehavior::Immediate` spares the caller a `SQLITE_BUSY` that no waiting can cure: a
/// transaction that has read cannot start to write after another connection has written.
///
/// ```
/// # use punctual_adapters_sqlite::*;
/// # use punctual_domain::*;
/// # use punctual_ports::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.db");
/// # let now: Timestamp = "2026-12-24T18:00:00Z".parse()?;
/// let store = SqliteTimerStore::open(&SqliteSettings::timers(&path), now)?;
/// let mut mine = rusqlite::Connection::open(&path)?;
/// mine.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY)")?;
///
/// let timer = SaveTimer {
///     key: TimerKey::named(TenantId::default(), "order-123"),
///     correlation_id: CorrelationId::from_uuid(uuid::Uuid::nil()),
///     due_at: now,
///     data: None,
///     origin: ScheduleOrigin::Direct,
/// };
/// let transaction = mine.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
/// transaction.execute("INSERT INTO orders VALUES ('order-123')", [])?;
/// schedule_in(&transaction, &timer, now)?;
/// transaction.commit()?; // both, or neither
/// assert!(store.find(timer.key).await?.is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If it cannot be stored. What the transaction did before still stands, and the caller decides what
/// becomes of it.
pub fn schedule_in(
    transaction: &Transaction<'_>,
    timer: &SaveTimer,
    now: Timestamp,
) -> Result<SaveOutcome, PortError> {
    take_write_lock(transaction)
        .and_then(|()| save_on(transaction, timer, now, true))
        .map(|saved| saved.outcome)
        .map_err(|error| port_error("schedule a timer", error))
}

/// Starts to write before the first read, so that the transaction waits for the write lock instead of
/// failing at once.
fn take_write_lock(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let no_row = rusqlite::types::Null;
    transaction
        .prepare_cached(sql::DELETE_ROW)?
        .execute([no_row])?;
    Ok(())
}
