//! A timer store on one SQLite file.

mod claiming;
mod fired_since;
mod foreign_commits;
mod opening;
mod probing;
mod reading;
pub(crate) mod rows;
mod saving;
mod settling;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, ScheduleOrigin, ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    Backlog, BatchResult, BusPosition, BusPositionPort, ClaimBatch, ClaimOutcome, ClaimRef,
    DeadLetter, DeadLetterClaim, DeadLetterPort, DeleteOutcome, FiredCursor, FiredPage, FiredTimer,
    MarkOutcome, PortError, PortErrorKind, RecordOutcome, RemoveOutcome, RetryLater, SaveOutcome,
    SaveTimer, StoredDeadLetter, TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};
use rusqlite::Connection;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::call_store::Recipient;
use crate::claims::SharedClaims;
use crate::connection::Readers;
use crate::file_identity::FileIdentity;
use crate::port_errors::{port_error, stopped};
use crate::role_lock::{self, RoleLock};
use crate::writer::{Batch, SharedHealth, Transaction, Writer};
use crate::{Role, SchemaSet, bus_positions, dead_letters};
use claiming::Claimer;
use settling::OthersMayFire;

pub(crate) use saving::save_on;

/// Timers, dead letters and the positions of buses on one SQLite file. Clones share it.
///
/// One thread writes, and all waiting commands share one commit. Reads run beside it. A write returns
/// after its commit, which is as durable as [`Synchronous`](crate::Synchronous) says.
///
/// Must be called within a tokio runtime. A process that fires should also
/// [`watch`](punctual_ports::Backend::watch) the store, so that commits of other programs and of
/// [`schedule_in`](crate::schedule_in) are noticed within a second, and finally
/// [`close`](Self::close) it.
#[derive(Clone)]
pub struct SqliteTimerStore {
    writer: Writer,
    readers: Readers,
    reads: Arc<Semaphore>,
    browsing: Arc<Semaphore>,
    claimer: Arc<Mutex<Claimer>>,
    claims: SharedClaims,
    pub(crate) recipient: Recipient,
    identity: FileIdentity,
    health: SharedHealth,
    pub(crate) role: Role,
    pub(crate) set: SchemaSet,
    limits_commands: bool,
    path: PathBuf,
    /// How long another process may still fire timers that it claimed before our deletion.
    foreign_lease: Duration,
}

impl SqliteTimerStore {
    /// Writes a batch, each item by itself.
    pub(crate) async fn each<I, O>(
        &self,
        operation: &'static str,
        items: Vec<I>,
        needs_room: bool,
        apply: impl FnMut(&mut Transaction<'_>, &I) -> rusqlite::Result<O> + Send + 'static,
    ) -> BatchResult<O>
    where
        I: Send + 'static,
        O: Send + 'static,
    {
        let batch = Batch { apply, needs_room };
        self.writer.write(operation, items, batch).await
    }

    /// Writes a batch of one.
    pub(crate) async fn once<O: Send + 'static>(
        &self,
        operation: &'static str,
        apply: impl Fn(&mut Transaction<'_>) -> rusqlite::Result<O> + Send + 'static,
    ) -> Result<O, PortError> {
        let apply = move |transaction: &mut Transaction<'_>, (): &()| apply(transaction);
        let answers = self.each(operation, vec![()], false, apply).await?;
        let only = answers.into_iter().next();
        only.unwrap_or_else(|| Err(stopped(operation)))
    }

    /// Reads for listings and traces, which may take long. One connection is always left for firing
    /// and calls.
    pub(crate) async fn browse<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, PortError> {
        let permit = Arc::clone(&self.browsing).acquire_owned().await;
        let permit = permit.map_err(|_| stopped(operation))?;
        self.read(operation, move |connection| {
            // Held until the read has ended, even if its caller was cancelled.
            let _permit = permit;
            read(connection)
        })
        .await
    }

    /// Reads on a connection of the pool, beside the writer.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, PortError> {
        // Otherwise readers that wait would occupy the runtime's blocking threads.
        let permit = Arc::clone(&self.reads).acquire_owned().await;
        let permit = permit.map_err(|_| stopped(operation))?;
        let readers = self.readers.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let connection = readers.get().map_err(|error| {
                PortError::new(PortErrorKind::Unavailable, operation, error.to_string())
            })?;
            read(&connection).map_err(|error| port_error(operation, error))
        });
        reading.await.map_err(|_| stopped(operation))?
    }

    /// Whether another process, whose claims are unknown here, may be firing timers to be deleted. The
    /// lock, if any, keeps such a process from starting meanwhile.
    fn others_may_fire(&self) -> (OthersMayFire, Option<RoleLock>) {
        if self.role == Role::Timer {
            return (OthersMayFire::No, None);
        }
        match RoleLock::keep_free(&self.path, role_lock::TIMER) {
            Ok(Some(free)) => (OthersMayFire::No, Some(free)),
            _ => (OthersMayFire::Within(self.foreign_lease), None),
        }
    }
}

#[async_trait]
impl TimerPersistencePort for SqliteTimerStore {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        // The timer of a call was promised when the call was accepted.
        let is_new = |timer: &SaveTimer| {
            self.limits_commands || !matches!(timer.origin, ScheduleOrigin::Command { .. })
        };
        let needs_room = self.set == SchemaSet::TimersOnly && batch.iter().any(is_new);
        self.each(
            "save timers",
            batch,
            needs_room,
            move |transaction, timer| saving::save(transaction, timer, now),
        )
        .await
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        self.read("find a timer", move |connection| {
            reading::find(connection, &key)
        })
        .await
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        self.read("find due timers", move |connection| {
            reading::find_due(connection, &tenant_id, now, limit)
        })
        .await
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        let operation = "mark timers as reached";
        let (order, batch) = settling::sort_by_row(&self.claims.lock(), batch);
        let marked = self
            .each(operation, batch, false, |transaction, fired| {
                Ok(match fired.check() {
                    Ok(()) => Ok(settling::mark(transaction, fired)?),
                    Err(early) => Err(early),
                })
            })
            .await?;
        let marked = marked.into_iter().map(Result::flatten);
        Ok(settling::restore_order(&order, marked))
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        let (others, free) = self.others_may_fire();
        self.each("delete timers", batch, false, move |transaction, key| {
            // Held until the commit, since the closure lives as long as the command.
            let _free = &free;
            settling::delete(transaction, key, now, others)
        })
        .await
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        self.browse("trace timers", move |connection| {
            reading::find_by_correlation(connection, correlation_id, after.as_ref(), limit)
        })
        .await
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        let after = query.after.as_ref().map(reading::read_cursor).transpose()?;
        self.browse("list timers", move |connection| {
            reading::page(connection, &query, after)
        })
        .await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.once("remove old timers", move |transaction| {
            settling::purge(transaction, before, limit)
        })
        .await
    }
}

#[async_trait]
impl TimerQueuePort for SqliteTimerStore {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        let operation = "claim due timers";
        if self.role != Role::Timer {
            return Err(PortError::new(
                PortErrorKind::Rejected,
                operation,
                "the database was opened beside the process that fires timers: open it for the \
                 timer role",
            ));
        }
        if self.writer.is_closed() {
            // Another process may have the role by now.
            return Err(stopped(operation));
        }
        let (claimer, claims) = (Arc::clone(&self.claimer), self.claims.clone());
        let polling = tokio::task::spawn_blocking(move || {
            // A panic in an earlier poll leaves no state behind: it dropped its snapshot.
            let mut claimer = claimer.lock().unwrap_or_else(PoisonError::into_inner);
            claimer.claim_due(&claims, now, limit, lease, &excluded)
        });
        let batch = polling.await.map_err(|_| stopped(operation))?;
        let batch = batch.map_err(|error| port_error(operation, error))?;
        self.check_file()?;
        Ok(batch)
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        self.each("retry timers later", batch, false, settling::retry_later)
            .await
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        let mut claims = self.claims.lock();
        let release = |claim: ClaimRef| Ok(outcome(claims.release(&claim)));
        Ok(batch.into_iter().map(release).collect())
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        self.each("dead-letter timers", batch, false, settling::dead_letter)
            .await
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        let until = now.saturating_add(lease);
        let mut claims = self.claims.lock();
        let renew = |claim: ClaimRef| Ok(outcome(claims.renew(&claim, until)));
        Ok(batch.into_iter().map(renew).collect())
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        self.read("count timers", move |connection| {
            reading::backlog(connection, now, limit)
        })
        .await
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        self.read("find fired timers", move |connection| {
            fired_since::fired_since(connection, since, after.as_ref(), limit)
        })
        .await
    }
}

const fn outcome(applied: bool) -> ClaimOutcome {
    if applied {
        ClaimOutcome::Applied
    } else {
        ClaimOutcome::Lost
    }
}

#[async_trait]
impl DeadLetterPort for SqliteTimerStore {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        self.each(
            "record dead letters",
            batch,
            false,
            |transaction, dead_letter| dead_letters::record(transaction.connection, dead_letter),
        )
        .await
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        self.read("list dead letters", move |connection| {
            dead_letters::list(connection, after, limit)
        })
        .await
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        let operation = "remove dead letters";
        self.each(operation, sequences, false, |transaction, sequence| {
            dead_letters::remove(transaction.connection, *sequence)
        })
        .await
    }
}

#[async_trait]
impl BusPositionPort for SqliteTimerStore {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        self.read("load a stream position", move |connection| {
            bus_positions::load(connection, &stream)
        })
        .await
    }

    async fn save(&self, position: BusPosition) -> Result<(), PortError> {
        let operation = "store a stream position";
        let position = bus_positions::StorablePosition::new(operation, position)?;
        // Like a mark, it is accepted by a full file.
        self.once(operation, move |transaction| {
            bus_positions::save(transaction.connection, &position)
        })
        .await
    }

    async fn owner(&self, new: Uuid) -> Result<Option<Uuid>, PortError> {
        let owner = self.once("keep the id of the database", move |transaction| {
            bus_positions::owner(transaction.connection, new)
        });
        owner.await.map(Some)
    }
}
