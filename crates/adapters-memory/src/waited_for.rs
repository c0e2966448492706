//! A store whose calls take real time, on a clock that must not go on meanwhile.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{CorrelationId, ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp};
use punctual_ports::{
    Backlog, BatchResult, Burial, BusPosition, BusPositionPort, ClaimBatch, ClaimOutcome, ClaimRef,
    DeadLetter, DeadLetterPort, DeleteOutcome, FiredCursor, FiredPage, FiredTimer, MarkOutcome,
    PortError, RecordOutcome, RemoveOutcome, RetryLater, SaveOutcome, SaveTimer, StoredDeadLetter,
    TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};

use crate::FakeClock;

/// A store that a [`FakeClock`] waits for, because its threads know nothing of that clock: without
/// this, time would pass by a look at a file as soon as some task sleeps on the clock.
pub struct WaitedFor<P> {
    pub(crate) inner: P,
    clock: FakeClock,
}

impl<P> WaitedFor<P> {
    /// Wraps a store.
    pub const fn new(inner: P, clock: FakeClock) -> Self {
        Self { inner, clock }
    }

    pub(crate) async fn wait_for<T>(&self, call: impl Future<Output = T> + Send) -> T {
        let _at_work = self.clock.at_work();
        call.await
    }
}

#[async_trait]
impl<P: TimerPersistencePort> TimerPersistencePort for WaitedFor<P> {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        self.wait_for(self.inner.save(batch, now)).await
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        self.wait_for(self.inner.find(key)).await
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        let work = self.inner.find_due(tenant_id, now, limit);
        self.wait_for(work).await
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        let work = self.inner.mark_fired(batch);
        self.wait_for(work).await
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        self.wait_for(self.inner.delete(batch, now)).await
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        let work = self.inner.find_by_correlation(correlation_id, after, limit);
        self.wait_for(work).await
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        self.wait_for(self.inner.page(query)).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.wait_for(self.inner.purge(before, limit)).await
    }
}

#[async_trait]
impl<P: TimerQueuePort> TimerQueuePort for WaitedFor<P> {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        passed_over: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        let work = self.inner.claim_due_except(now, limit, lease, passed_over);
        self.wait_for(work).await
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        let work = self.inner.retry_later(batch);
        self.wait_for(work).await
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        self.wait_for(self.inner.release(batch)).await
    }

    async fn bury(&self, batch: Vec<Burial>) -> BatchResult<ClaimOutcome> {
        self.wait_for(self.inner.bury(batch)).await
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        let work = self.inner.renew(batch, now, lease);
        self.wait_for(work).await
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        self.wait_for(self.inner.backlog(now, limit)).await
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        let work = self.inner.fired_since(since, after, limit);
        self.wait_for(work).await
    }
}

#[async_trait]
impl<P: DeadLetterPort> DeadLetterPort for WaitedFor<P> {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        self.wait_for(self.inner.record(batch)).await
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        self.wait_for(self.inner.list(after, limit)).await
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        self.wait_for(self.inner.remove(sequences)).await
    }
}

#[async_trait]
impl<P: BusPositionPort> BusPositionPort for WaitedFor<P> {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        self.wait_for(self.inner.load(stream)).await
    }

    async fn keep(&self, position: BusPosition) -> Result<(), PortError> {
        self.wait_for(self.inner.keep(position)).await
    }
}
