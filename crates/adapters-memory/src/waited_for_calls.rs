//! The same for the ports of service calls.

use async_trait::async_trait;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, TimerKey, Timestamp};
use punctual_ports::{
    AcceptOutcome, BatchResult, BeginExecution, CallChange, CallDeletion, CallPage, CallPageQuery,
    ChangeOutcome, Execution, ExecutionEntry, ExecutionLogPort, ExecutionOutcome, FinishExecution,
    NewCall, OpenExecution, OutboxBurial, OutboxOutcome, OutboxPlace, OutboxPort, OutboxRow,
    Overlooked, PageCursor, PortError, PublishedMessage, ServiceCallPersistencePort, StoredCall,
    SubmitOutcome, WaitingQuery,
};

use crate::WaitedFor;

#[async_trait]
impl<P: ServiceCallPersistencePort> ServiceCallPersistencePort for WaitedFor<P> {
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        self.wait_for(self.inner.submit(batch)).await
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        self.wait_for(self.inner.find(keys)).await
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        self.wait_for(self.inner.was_submitted(keys)).await
    }

    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        self.wait_for(self.inner.change(batch)).await
    }

    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        self.wait_for(self.inner.delete(batch)).await
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        self.wait_for(self.inner.page(query)).await
    }

    fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError> {
        self.inner.check_cursor(cursor)
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<ServiceCall>, PortError> {
        let work = self.inner.find_by_correlation(correlation_id, after, limit);
        self.wait_for(work).await
    }

    async fn overlooked(&self, now: Timestamp, limit: usize) -> Result<Overlooked, PortError> {
        self.wait_for(self.inner.overlooked(now, limit)).await
    }

    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        self.wait_for(self.inner.purge(before, now, limit)).await
    }
}

#[async_trait]
impl<P: OutboxPort> OutboxPort for WaitedFor<P> {
    async fn unpublished(
        &self,
        after: Option<OutboxPlace>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, PortError> {
        self.wait_for(self.inner.unpublished(after, limit)).await
    }

    async fn mark_published(
        &self,
        batch: Vec<OutboxPlace>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome> {
        self.wait_for(self.inner.mark_published(batch, at)).await
    }

    async fn bury(&self, batch: Vec<OutboxBurial>) -> BatchResult<OutboxOutcome> {
        self.wait_for(self.inner.bury(batch)).await
    }

    async fn count(&self, limit: usize) -> Result<usize, PortError> {
        self.wait_for(self.inner.count(limit)).await
    }

    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError> {
        self.wait_for(self.inner.about(key, limit)).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.wait_for(self.inner.purge(before, limit)).await
    }
}

#[async_trait]
impl<P: ExecutionLogPort> ExecutionLogPort for WaitedFor<P> {
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome> {
        self.wait_for(self.inner.accept(batch)).await
    }

    async fn waiting(&self, query: WaitingQuery) -> Result<Vec<Execution>, PortError> {
        self.wait_for(self.inner.waiting(query)).await
    }

    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError> {
        self.wait_for(self.inner.count_waiting(limit)).await
    }

    async fn begin(&self, batch: Vec<BeginExecution>) -> BatchResult<ExecutionOutcome> {
        self.wait_for(self.inner.begin(batch)).await
    }

    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome> {
        self.wait_for(self.inner.finish(batch)).await
    }

    async fn open(
        &self,
        began_before: Timestamp,
        limit: usize,
    ) -> Result<Vec<OpenExecution>, PortError> {
        self.wait_for(self.inner.open(began_before, limit)).await
    }

    async fn entries(
        &self,
        call: TimerKey,
        limit: usize,
    ) -> Result<Vec<ExecutionEntry>, PortError> {
        self.wait_for(self.inner.entries(call, limit)).await
    }
}
