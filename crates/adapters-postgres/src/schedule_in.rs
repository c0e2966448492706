//! Scheduling inside a caller's own transaction, so that its rows and its timer commit together.

use std::sync::atomic::Ordering;

use punctual_domain::Timestamp;
use punctual_ports::{PortError, PortErrorKind, SaveOutcome, SaveTimer};
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use crate::lane::Parameter;
use crate::migrate::quoted;
use crate::port_errors::{Failure, stopped};
use crate::timer_store::foreign_commits::CHANNEL;
use crate::timer_store::reading::text;
use crate::timer_store::rows::column;
use crate::timer_store::saving::{TRIES, change_in, insert_in, removed_again};
use crate::{PostgresTimerStore, SchemaSet};

const OPERATION: &str = "schedule a timer";

/// A database of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Database {
    server: String,
    id: String,
    name: String,
    has_timers: bool,
}

impl Database {
    fn read(row: &Row) -> Result<Self, Failure> {
        Ok(Self {
            server: column(row, "server")?,
            id: column(row, "id")?,
            name: column(row, "name")?,
            has_timers: column(row, "has_timers")?,
        })
    }
}

impl PostgresTimerStore {
    /// Stores a timer within a transaction of the caller's, on a connection of the caller's to the same
    /// database. It is durable when, and only when, the caller's commit is.
    ///
    /// The outcome is that of any other schedule: `AlreadyReached` stores nothing. The timer is registered by
    /// the server's clock at the time of this call. `now` counts only where the store follows the clocks of
    /// its callers.
    ///
    /// The tables are found whatever the `search_path` is, and no setting of the transaction is changed when
    /// this returns. Its role needs the rights to read, insert, update and delete in them.
    ///
    /// Until the transaction ends, others that schedule or delete the same key wait for it, for up to five
    /// seconds, and so does this if another transaction has scheduled the key; then the error is `Busy`. Two
    /// transactions that schedule the same keys in different orders may wait for each other; the server
    /// notices it and refuses one of them, which is `Busy` too.
    ///
    /// The worker of this store searches for the timer from its due time on; it polls then if its
    /// `WakeSignal` is notified of that instant. When other instances are woken is a
    /// [setting](crate::CommitNotify).
    ///
    /// `Transaction` is that of `tokio-postgres` 0.7, which this crate re-exports.
    ///
    /// # Errors
    /// If it cannot be stored. Unless the transaction is on another database, which is `Rejected`, the
    /// server accepts nothing more from it: roll it back, to a savepoint at least.
    pub async fn schedule_in(
        &self,
        transaction: &Transaction<'_>,
        timer: &SaveTimer,
        now: Timestamp,
    ) -> Result<SaveOutcome, PortError> {
        if self.inner.connector.is_closed.load(Ordering::Acquire) {
            return Err(stopped(OPERATION));
        }
        self.check_database(transaction).await?;
        let outcome = self
            .save_in(transaction, timer, now)
            .await
            .map_err(|failure| failure.during(OPERATION))?
            .ok_or_else(|| removed_again(OPERATION))?;
        if matches!(outcome, SaveOutcome::Created | SaveOutcome::Rescheduled) {
            self.polling().await_commit(timer.due_at, now);
            self.notify_in(transaction, timer.due_at)
                .await
                .map_err(|failure| failure.during(OPERATION))?;
        }
        Ok(outcome)
    }

    async fn save_in(
        &self,
        transaction: &Transaction<'_>,
        timer: &SaveTimer,
        now: Timestamp,
    ) -> Result<Option<SaveOutcome>, Failure> {
        let (inner, clock) = (&self.inner, self.inner.time.given(now));
        for round in 0..TRIES {
            if insert_in(transaction, &inner.sql, inner.set, timer, clock).await? {
                return Ok(Some(SaveOutcome::Created));
            }
            // Absent once may be purged just now; absent twice has no parent.
            let owns = round > 0 && inner.set == SchemaSet::Shared;
            let outcome = change_in(transaction, &inner.sql, timer, clock, owns).await?;
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
        Ok(None)
    }

    async fn notify_in(
        &self,
        transaction: &Transaction<'_>,
        due_at: Timestamp,
    ) -> Result<(), Failure> {
        if let Some(payload) = self.notification_in(due_at) {
            let params: [Parameter<'_>; 2] = [(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
            transaction
                .query_typed(&self.inner.sql.notify, &params)
                .await?;
        }
        Ok(())
    }

    /// A timer in another database would be stored there, and not fire here.
    async fn check_database(&self, transaction: &Transaction<'_>) -> Result<(), PortError> {
        let table = format!("{}.timer_queue", quoted(&self.inner.connector.schema));
        let params: [Parameter<'_>; 1] = [(&table, Type::TEXT)];
        let row = transaction.query_typed_one(&self.inner.sql.database, &params);
        let theirs = row
            .await
            .map_err(Failure::from)
            .and_then(|row| Database::read(&row))
            .map_err(|failure| failure.during(OPERATION))?;
        let mut known = self.inner.database.lock().await;
        if known.as_ref() == Some(&theirs) {
            return Ok(());
        }
        // Nothing is known yet, or the database was restored elsewhere meanwhile.
        let params = vec![text(&table)];
        let ours = self.read(OPERATION, |sql| &sql.database, params, Database::read);
        *known = ours.await?.pop();
        if known.as_ref() == Some(&theirs) {
            return Ok(());
        }
        let reason = format!(
            "the transaction is on the database {}, but the timers are in {}: open your connection on that one",
            theirs.name,
            self.name(),
        );
        Err(PortError::new(PortErrorKind::Rejected, OPERATION, reason))
    }
}
