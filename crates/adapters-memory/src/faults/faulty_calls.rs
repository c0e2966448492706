//! The ports of service calls again, with faults.
//!
//! Several ports have a method of the same name, so these say in full what they are: a fault for
//! `purge` alone would hit whichever port comes first.

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

use super::Faulty;

#[async_trait]
impl<P: ServiceCallPersistencePort + ?Sized> ServiceCallPersistencePort for Faulty<P> {
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        let work = self.inner.submit(batch);
        self.faults.call("submit", work).await
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        self.faults.call("find_calls", self.inner.find(keys)).await
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        let work = self.inner.was_submitted(keys);
        self.faults.call("was_submitted", work).await
    }

    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        let work = self.inner.change(batch);
        self.faults.call("change", work).await
    }

    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        let work = self.inner.delete(batch);
        self.faults.call("delete_calls", work).await
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        self.faults.call("page_calls", self.inner.page(query)).await
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
        self.faults.call("find_calls_by_correlation", work).await
    }

    async fn overlooked(&self, now: Timestamp, limit: usize) -> Result<Overlooked, PortError> {
        let work = self.inner.overlooked(now, limit);
        self.faults.call("overlooked", work).await
    }

    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        let work = self.inner.purge(before, now, limit);
        self.faults.call("purge_calls", work).await
    }
}

#[async_trait]
impl<P: OutboxPort + ?Sized> OutboxPort for Faulty<P> {
    async fn unpublished(
        &self,
        after: Option<OutboxPlace>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, PortError> {
        let work = self.inner.unpublished(after, limit);
        self.faults.call("unpublished", work).await
    }

    async fn mark_published(
        &self,
        batch: Vec<OutboxPlace>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome> {
        let work = self.inner.mark_published(batch, at);
        self.faults.call("mark_published", work).await
    }

    async fn bury(&self, batch: Vec<OutboxBurial>) -> BatchResult<OutboxOutcome> {
        let work = self.inner.bury(batch);
        self.faults.call("bury_messages", work).await
    }

    async fn count(&self, limit: usize) -> Result<usize, PortError> {
        self.faults.call("count", self.inner.count(limit)).await
    }

    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError> {
        let work = self.inner.about(key, limit);
        self.faults.call("about", work).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        let work = self.inner.purge(before, limit);
        self.faults.call("purge_messages", work).await
    }
}

#[async_trait]
impl<P: ExecutionLogPort + ?Sized> ExecutionLogPort for Faulty<P> {
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome> {
        let work = self.inner.accept(batch);
        self.faults.call("accept", work).await
    }

    async fn waiting(&self, query: WaitingQuery) -> Result<Vec<Execution>, PortError> {
        let work = self.inner.waiting(query);
        self.faults.call("waiting", work).await
    }

    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError> {
        let work = self.inner.count_waiting(limit);
        self.faults.call("count_waiting", work).await
    }

    async fn begin(&self, batch: Vec<BeginExecution>) -> BatchResult<ExecutionOutcome> {
        let work = self.inner.begin(batch);
        self.faults.call("begin", work).await
    }

    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome> {
        let work = self.inner.finish(batch);
        self.faults.call("finish", work).await
    }

    async fn open(
        &self,
        began_before: Timestamp,
        limit: usize,
    ) -> Result<Vec<OpenExecution>, PortError> {
        let work = self.inner.open(began_before, limit);
        self.faults.call("open", work).await
    }

    async fn entries(
        &self,
        call: TimerKey,
        limit: usize,
    ) -> Result<Vec<ExecutionEntry>, PortError> {
        let work = self.inner.entries(call, limit);
        self.faults.call("entries", work).await
    }
}
