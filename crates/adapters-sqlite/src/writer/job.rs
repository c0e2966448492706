//! Jobs of the writer: batches of items that are applied one by one and answered together.

use std::mem;

use punctual_domain::{MessageEnvelope, Timestamp};
use punctual_ports::{BatchResult, ClaimToken, Execution, OutboxPosition, OutboxRow, PortError};
use rusqlite::{Connection, OptionalExtension, ffi};
use tokio::sync::oneshot;

use super::appended::Appended;
use crate::call_store::HandedOver;
use crate::claims::{Claims, RowId, SharedClaims};
use crate::port_errors::{concerns_the_item, port_error};
use crate::sql;
use crate::writer::{Unfinished, execute};

/// The transaction of a group.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    claims: &'a SharedClaims,
    ended_leases: Vec<(RowId, ClaimToken)>,
    has_tombstones: Option<bool>,
    appended: Appended,
    /// Unfinished calls, once this transaction is committed.
    unfinished: Unfinished,
    units: Units,
    /// Whether a unit has to be undone by itself, which only a savepoint can do.
    must_repeat: bool,
}

/// How the units of a transaction are kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// By nothing, since hardly any ever fails. If one does after it has written something, all are
    /// applied again, protected.
    Bare,
    /// By a savepoint each.
    Protected,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        claims: &'a SharedClaims,
        appended: Appended,
        unfinished: Unfinished,
        units: Units,
    ) -> Self {
        Self {
            connection,
            claims,
            ended_leases: Vec::new(),
            has_tombstones: None,
            appended,
            unfinished,
            units,
            must_repeat: false,
        }
    }

    /// The leases.
    pub(crate) fn claims(&self) -> std::sync::MutexGuard<'a, Claims> {
        self.claims.lock()
    }

    /// Records that a row changes: no poll may claim its old state, and its lease ends.
    pub(crate) fn changes(&mut self, row: RowId) {
        let mut claims = self.claims.lock();
        claims.record_change(row);
        if let Some(lease) = claims.lease_on(row) {
            self.ended_leases.push((row, lease.token));
        }
    }

    /// Records an accepted call and the size of its request.
    pub(crate) const fn call_accepted(&mut self, request_bytes: usize) {
        self.unfinished.accept(request_bytes);
    }

    /// Records that a call has its outcome, or was deleted.
    pub(crate) const fn call_ended(&mut self) {
        self.unfinished.end();
    }

    /// Whether there is any tombstone: mostly there is none, and no key has to be read. Queried once per
    /// transaction.
    pub(crate) fn has_tombstones(&mut self) -> rusqlite::Result<bool> {
        if let Some(known) = self.has_tombstones {
            return Ok(known);
        }
        let found = self
            .connection
            .prepare_cached(sql::HAS_TOMBSTONES)?
            .query_row([], |_| Ok(()))
            .optional()?;
        self.has_tombstones = Some(found.is_some());
        Ok(found.is_some())
    }

    /// Records that this transaction has added a tombstone.
    pub(crate) fn tombstone_added(&mut self) {
        self.has_tombstones = Some(true);
    }

    /// The outbox time of a message: never earlier than that of a message appended before it, even if the
    /// clock was set back or another program has appended.
    pub(crate) fn created_at(&mut self, written_at: Timestamp) -> rusqlite::Result<Timestamp> {
        self.appended.created_at(self.connection, written_at)
    }

    /// Records that a message was appended just now, with the size of its row; `None` for one that was
    /// appended as published.
    pub(crate) fn appended(
        &mut self,
        created_at: Timestamp,
        to_publish: Option<&MessageEnvelope>,
        bytes: usize,
    ) -> rusqlite::Result<()> {
        let number = self.connection.last_insert_rowid();
        let message = || {
            to_publish.map(|envelope| HandedOver {
                row: OutboxRow {
                    position: OutboxPosition { created_at, number },
                    envelope: Ok(envelope.clone()),
                },
                bytes,
            })
        };
        if self.appended.add((number, created_at), message) || self.units == Units::Protected {
            return Ok(());
        }
        // Its time may be earlier than that of another program's.
        self.must_repeat = true;
        let repeated = ffi::Error::new(ffi::SQLITE_ABORT);
        Err(rusqlite::Error::SqliteFailure(repeated, None))
    }

    /// Records that an attempt was accepted and waits.
    pub(crate) fn accepted(&mut self, execution: &Execution) {
        self.appended.accept(execution);
    }

    /// Runs several statements of one item atomically. If one of them violates a constraint or a trigger
    /// of the host, the transaction alone would not undo the earlier ones.
    pub(crate) fn all_or_nothing<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = self.connection;
        if self.units == Units::Bare {
            let before = connection.total_changes();
            let written = write(self);
            // A single statement that fails undoes itself.
            let has_written = connection.total_changes() != before;
            self.must_repeat |= has_written && written.as_ref().is_err_and(concerns_the_item);
            return written;
        }
        execute(connection, "SAVEPOINT item")?;
        let end = self.appended.end();
        let written = write(self);
        // On some errors SQLite rolls back the complete transaction, including the savepoint.
        if written.is_err() && !connection.is_autocommit() {
            execute(connection, "ROLLBACK TO item")?;
            self.appended.forget_after(end);
        }
        if !connection.is_autocommit() {
            execute(connection, "RELEASE item")?;
        }
        written
    }

    /// Whether the group has to be applied again, protected.
    pub(super) fn must_repeat(&self) -> bool {
        self.must_repeat && !self.connection.is_autocommit()
    }

    pub(super) fn into_parts(self) -> (Vec<(RowId, ClaimToken)>, Unfinished, Appended) {
        (self.ended_leases, self.unfinished, self.appended)
    }
}

/// Work of the writer within a transaction. It may be applied again after a rollback.
pub(crate) trait Job: Send {
    /// Approximate number of rows that it writes.
    fn rows(&self) -> usize;
    /// Whether it stores something new, which a full file refuses. Writes that finish accepted work are
    /// not refused.
    fn needs_room(&self) -> bool;
    /// Applies it. An error fails the group.
    fn apply(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()>;
    /// Answers the caller with the outcomes, or with the error of the group.
    fn answer(self: Box<Self>, failed: Option<&PortError>);
}

/// How a batch is written.
pub(crate) struct Batch<F> {
    /// Applies one item.
    pub(crate) apply: F,
    /// As [`Job::needs_room`].
    pub(crate) needs_room: bool,
}

pub(super) struct BatchJob<I, O, F> {
    operation: &'static str,
    items: Vec<I>,
    batch: Batch<F>,
    outcomes: Vec<Result<O, PortError>>,
    reply: oneshot::Sender<BatchResult<O>>,
}

impl<I, O, F> BatchJob<I, O, F> {
    pub(super) const fn new(
        operation: &'static str,
        items: Vec<I>,
        batch: Batch<F>,
        reply: oneshot::Sender<BatchResult<O>>,
    ) -> Self {
        Self {
            operation,
            items,
            batch,
            outcomes: Vec::new(),
            reply,
        }
    }
}

impl<I, O, F> Job for BatchJob<I, O, F>
where
    I: Send,
    O: Send,
    F: FnMut(&mut Transaction<'_>, &I) -> rusqlite::Result<O> + Send,
{
    fn rows(&self) -> usize {
        self.items.len()
    }

    fn needs_room(&self) -> bool {
        self.batch.needs_room
    }

    fn apply(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()> {
        self.outcomes = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let outcome = match (self.batch.apply)(transaction, item) {
                Ok(outcome) => Ok(outcome),
                // SQLite has undone this statement only, unless the transaction has ended.
                Err(error)
                    if concerns_the_item(&error)
                        && !transaction.connection.is_autocommit()
                        && !transaction.must_repeat() =>
                {
                    Err(port_error(self.operation, error))
                }
                Err(error) => return Err(error),
            };
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    fn answer(mut self: Box<Self>, failed: Option<&PortError>) {
        let answer = match failed {
            None => Ok(mem::take(&mut self.outcomes)),
            Some(error) => Err(error.during(self.operation)),
        };
        // The caller may have been cancelled.
        let _ = self.reply.send(answer);
    }
}
