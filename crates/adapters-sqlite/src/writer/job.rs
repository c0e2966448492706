//! A command of the writer: a batch of items, each applied by itself, answered together.

use std::cell::Cell;
use std::mem;

use punctual_domain::Timestamp;
use punctual_ports::{BatchResult, ClaimToken, PortError};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::oneshot;

use crate::claims::{Claims, RowId, SharedClaims};
use crate::port_errors::{concerns_the_item, port_error};
use crate::timer_store::rows::parsed;
use crate::writer::{Unfinished, execute};
use crate::{call_sql, sql};

/// The transaction that a group shares.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    claims: &'a SharedClaims,
    ended: Vec<(RowId, ClaimToken)>,
    has_tombstones: Option<bool>,
    /// When the last message was put into the outbox, by this thread.
    last_created: &'a Cell<Timestamp>,
    /// Whether other programs' messages were looked at too.
    is_last_known: bool,
    /// What was accepted and has not ended, once this is committed.
    unfinished: Unfinished,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        claims: &'a SharedClaims,
        last_created: &'a Cell<Timestamp>,
        unfinished: Unfinished,
    ) -> Self {
        Self {
            connection,
            claims,
            ended: Vec::new(),
            has_tombstones: None,
            last_created,
            is_last_known: false,
            unfinished,
        }
    }

    /// What is in hand.
    pub(crate) fn claims(&self) -> std::sync::MutexGuard<'a, Claims> {
        self.claims.lock()
    }

    /// A row changes: no look may claim what it was, and whoever had it in hand has it no more.
    pub(crate) fn changes(&mut self, row: RowId) {
        let mut claims = self.claims.lock();
        claims.is_changing(row);
        if let Some(held) = claims.on(row) {
            self.ended.push((row, held.token));
        }
    }

    /// A call was accepted, with a request of this size.
    pub(crate) const fn call_accepted(&mut self, request_bytes: usize) {
        self.unfinished.accept(request_bytes);
    }

    /// A call has its outcome, or is deleted.
    pub(crate) const fn call_ended(&mut self) {
        self.unfinished.end();
    }

    /// Whether any deletion is remembered: mostly none is, and then no key needs to be looked up.
    /// Asked once a transaction, inside which nobody else can add one.
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

    /// A deletion was remembered in this transaction.
    pub(crate) fn tombstone_added(&mut self) {
        self.has_tombstones = Some(true);
    }

    /// When a message that was written at this time is put into the outbox: never before one that was
    /// put there earlier, also if the clock was set back, or another program was here.
    pub(crate) fn created_at(&mut self, written_at: Timestamp) -> rusqlite::Result<Timestamp> {
        if !self.is_last_known {
            let mut statement = self.connection.prepare_cached(call_sql::LAST_CREATED)?;
            // What cannot be read is no time of ours, and no message comes after it.
            let last = statement
                .query_row([], |row| Ok(parsed(row, 0).ok()))
                .optional()?;
            let last: Option<Timestamp> = last.flatten();
            let known = self.last_created.get();
            self.last_created
                .set(last.map_or(known, |last| last.max(known)));
            self.is_last_known = true;
        }
        let created_at = self.last_created.get().max(written_at);
        self.last_created.set(created_at);
        Ok(created_at)
    }

    /// Several statements of one item. The transaction alone does not undo the first if a later one
    /// fails by the item's own fault: a constraint or trigger that the host has added, for instance.
    pub(crate) fn all_or_nothing<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = self.connection;
        execute(connection, "SAVEPOINT item")?;
        let written = write(self);
        // On some errors SQLite has rolled the whole transaction back, and the savepoint with it.
        if written.is_err() && !connection.is_autocommit() {
            execute(connection, "ROLLBACK TO item")?;
        }
        if !connection.is_autocommit() {
            execute(connection, "RELEASE item")?;
        }
        written
    }

    pub(super) fn into_parts(self) -> (Vec<(RowId, ClaimToken)>, Unfinished) {
        (self.ended, self.unfinished)
    }
}

/// Something that the writer does within a transaction. It may be applied again after a rollback.
pub(crate) trait Job: Send {
    /// About how many rows it writes.
    fn rows(&self) -> usize;
    /// Whether it is something new, which is refused where there is no room. What finishes something
    /// that was accepted is not.
    fn needs_room(&self) -> bool;
    /// Applies it. An error fails the whole group.
    fn apply(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()>;
    /// Answers whoever asked: with what was applied, or with why the group failed.
    fn answer(self: Box<Self>, failed: Option<&PortError>);
}

/// How a batch is written.
pub(crate) struct Batch<F> {
    /// Applies one item.
    pub(crate) apply: F,
    /// Whether it is something new, which is refused where there is no room.
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
                // SQLite has undone this statement and nothing else, unless it says otherwise.
                Err(error)
                    if concerns_the_item(&error) && !transaction.connection.is_autocommit() =>
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
        // Whoever asked may be gone by now.
        let _ = self.reply.send(answer);
    }
}
