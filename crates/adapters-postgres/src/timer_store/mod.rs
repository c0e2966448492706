//! A timer store on PostgreSQL that any number of instances share.

mod blocked_keys;
mod claiming;
mod deleting;
pub(crate) mod foreign_commits;
mod opening;
mod polling;
pub(crate) mod reading;
pub(crate) mod rows;
mod save_queue;
pub(crate) mod saving;
mod settling;
mod upkeep;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, DeleteOutcome, MarkOutcome, ScheduledTimer, TenantId, TimerEntry, TimerKey,
    Timestamp,
};
use punctual_ports::{
    Backlog, BatchResult, ClaimBatch, ClaimOutcome, ClaimRef, DeadLetterClaim, FiredCursor,
    FiredPage, FiredTimer, PortError, RetryLater, SaveOutcome, SaveTimer, TimerPage,
    TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};
use uuid::Uuid;

use crate::PostgresUrl;
use crate::SchemaSet;
use crate::call_store::Calls;
use crate::lane::{Connector, Lane};
use crate::schedule_in::Database;
use crate::settings::{CommitNotify, InstanceLabel, Role, StoreClock};
use crate::sql::Statements;
use blocked_keys::BlockedKeys;
use claiming::Poll;
use foreign_commits::Notifier;
use polling::Polling;
use save_queue::{SaveQueue, SharedWaiting};

/// Timers, dead letters and the positions of buses in one schema of a PostgreSQL database. Clones share the
/// connections; every other opening is another instance.
///
/// Must be used within a tokio runtime. An instance that fires should also
/// [`watch`](punctual_ports::Backend::watch) the store, so that timers of other instances are noticed at
/// once, and finally [`close`](Self::close) it.
#[derive(Clone)]
pub struct PostgresTimerStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) connector: Arc<Connector>,
    pub(crate) sql: Statements,
    pub(crate) instance: Uuid,
    pub(crate) set: SchemaSet,
    pub(crate) role: Role,
    pub(crate) time: StoreClock,
    pub(crate) label: InstanceLabel,
    commit_notify: CommitNotify,
    listen_url: PostgresUrl,
    name: String,
    claims: Lane,
    settle: Lane,
    saves: [Lane; 2],
    pub(crate) write: Lane,
    blocked: BlockedKeys,
    reads: [Lane; 2],
    /// `None` if the schema has timers alone.
    pub(crate) calls: Option<Arc<Calls>>,
    queue: SaveQueue,
    waiting: SharedWaiting,
    polling: Mutex<Polling>,
    notifier: Notifier,
    /// Milliseconds by which our clock is ahead of the server's.
    pub(crate) offset: AtomicI64,
    /// Which database it is, once somebody had to know.
    pub(crate) database: tokio::sync::Mutex<Option<Database>>,
}

impl Inner {
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let single = [&self.claims, &self.settle, &self.write];
        let of_calls = self.calls.iter().flat_map(|calls| calls.lanes());
        let timers = single.into_iter().chain(&self.saves).chain(&self.reads);
        timers.chain(of_calls)
    }
}

impl PostgresTimerStore {
    pub(crate) fn polling(&self) -> MutexGuard<'_, Polling> {
        let polling = self.inner.polling.lock();
        polling.unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server's clock reads at an instant of ours, as far as is known.
    fn server_time(&self, now: Timestamp) -> Timestamp {
        let offset = self.inner.offset.load(Ordering::Acquire);
        let ahead = Duration::from_millis(offset.max(0).unsigned_abs());
        let behind = Duration::from_millis(offset.min(0).unsigned_abs());
        now.saturating_sub(ahead).saturating_add(behind)
    }
}

#[async_trait]
impl TimerPersistencePort for PostgresTimerStore {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let clock = self.inner.time.given(now);
        self.inner.queue.save(batch, clock).await
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        self.find_one(key).await
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        self.find_overdue(tenant_id, now, limit).await
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.mark(batch).await
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.delete_all(batch, now).await
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        self.trace(correlation_id, after, limit).await
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        self.page_of(query).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.purge_before(before, limit).await
    }
}

#[async_trait]
impl TimerQueuePort for PostgresTimerStore {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        self.claim(Poll::new(now, limit, lease, &excluded)).await
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.retry(batch).await
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.end_claims(batch).await
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.give_up(batch).await
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.extend(batch, now, lease).await
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        self.count(now, limit).await
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        self.fired(since, after, limit).await
    }
}
