//! Every port again, with faults.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, MessageEnvelope, ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    Backlog, BatchResult, Burial, BusPosition, BusPositionPort, ClaimBatch, ClaimOutcome, ClaimRef,
    DeadLetter, DeadLetterPort, DeleteOutcome, EventBusPort, FiredCursor, FiredPage, FiredTimer,
    Loss, MarkOutcome, PortError, PublishOutcome, RecordOutcome, RemoveOutcome, RetryLater,
    SaveOutcome, SaveTimer, StoredDeadLetter, Subscribe, Subscription, TimerPage, TimerPageQuery,
    TimerPersistencePort, TimerQueuePort,
};

use super::Faults;

/// A port whose calls go wrong as [`Faults`] say.
pub struct Faulty<P: ?Sized> {
    pub(super) inner: Arc<P>,
    pub(super) faults: Faults,
}

impl<P: ?Sized> Faulty<P> {
    /// Wraps a port.
    pub fn new(inner: Arc<P>, faults: &Faults) -> Self {
        Self {
            inner,
            faults: faults.clone(),
        }
    }
}

#[async_trait]
impl<P: TimerPersistencePort + ?Sized> TimerPersistencePort for Faulty<P> {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        self.faults.call("save", self.inner.save(batch, now)).await
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        self.faults.call("find", self.inner.find(key)).await
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        let work = self.inner.find_due(tenant_id, now, limit);
        self.faults.call("find_due", work).await
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        let work = self.inner.mark_fired(batch);
        self.faults.call("mark_fired", work).await
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        self.faults
            .call("delete", self.inner.delete(batch, now))
            .await
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        let work = self.inner.find_by_correlation(correlation_id, after, limit);
        self.faults.call("find_by_correlation", work).await
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        self.faults.call("page", self.inner.page(query)).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.faults
            .call("purge", self.inner.purge(before, limit))
            .await
    }
}

#[async_trait]
impl<P: TimerQueuePort + ?Sized> TimerQueuePort for Faulty<P> {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        passed_over: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        let work = self.inner.claim_due_except(now, limit, lease, passed_over);
        self.faults.call("claim_due", work).await
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        let work = self.inner.retry_later(batch);
        self.faults.call("retry_later", work).await
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        self.faults.call("release", self.inner.release(batch)).await
    }

    async fn bury(&self, batch: Vec<Burial>) -> BatchResult<ClaimOutcome> {
        self.faults.call("bury", self.inner.bury(batch)).await
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        let work = self.inner.renew(batch, now, lease);
        self.faults.call("renew", work).await
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        let work = self.inner.backlog(now, limit);
        self.faults.call("backlog", work).await
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        let work = self.inner.fired_since(since, after, limit);
        self.faults.call("fired_since", work).await
    }
}

#[async_trait]
impl<P: DeadLetterPort + ?Sized> DeadLetterPort for Faulty<P> {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        self.faults.call("record", self.inner.record(batch)).await
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        self.faults
            .call("list", self.inner.list(after, limit))
            .await
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        self.faults
            .call("remove", self.inner.remove(sequences))
            .await
    }
}

#[async_trait]
impl<P: BusPositionPort + ?Sized> BusPositionPort for Faulty<P> {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        self.faults.call("load", self.inner.load(stream)).await
    }

    async fn keep(&self, position: BusPosition) -> Result<(), PortError> {
        self.faults.call("keep", self.inner.keep(position)).await
    }
}

#[async_trait]
impl<P: EventBusPort + ?Sized> EventBusPort for Faulty<P> {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        self.faults.call("publish", self.inner.publish(batch)).await
    }

    async fn subscribe(&self, wish: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        self.faults
            .call("subscribe", self.inner.subscribe(wish))
            .await
    }

    async fn lost(&self) -> Loss {
        // Nothing is asked of the other side, so nothing goes wrong; but a process that has ended
        // hears of nothing.
        let loss = self.inner.lost().await;
        if self.faults.has_crashed() {
            return pending().await;
        }
        loss
    }

    async fn made_good(&self, loss: &Loss) -> Result<(), PortError> {
        let work = self.inner.made_good(loss);
        self.faults.call("made_good", work).await
    }

    fn made_good_until(&self, loss: &Loss, until: Timestamp) {
        self.inner.made_good_until(loss, until);
    }

    fn readiness(&self) -> Result<(), String> {
        self.inner.readiness()
    }
}
