//! One wrapper that forwards every port, so that an interceptor is written once for all of them.
//!
//! A new method of a port is one line of the table below.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{
    CorrelationId, MessageEnvelope, ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    AbandonedExecution, AcceptOutcome, Backlog, BatchResult, BusPosition, BusPositionPort,
    CallChange, CallDeletion, CallPage, CallPageQuery, ChangeOutcome, ClaimBatch, ClaimOutcome,
    ClaimRef, ClaimedExecution, DataLoss, DeadLetter, DeadLetterClaim, DeadLetterMessage,
    DeadLetterPort, DeleteOutcome, DeletedCall, EventBusPort, Execution, ExecutionClaim,
    ExecutionEntry, ExecutionKey, ExecutionLogPort, ExecutionOutcome, FinishExecution, FiredCursor,
    FiredPage, FiredTimer, MarkOutcome, NewCall, OutboxBatch, OutboxOutcome, OutboxPort,
    OutboxPosition, PageCursor, PortError, PublishLater, PublishOutcome, PublishedMessage,
    RecordOutcome, RemoveOutcome, RetryLater, SaveOutcome, SaveTimer, ServiceCallPersistencePort,
    StartExecution, StoredCall, StoredDeadLetter, StuckCalls, SubmitOutcome, Subscribe,
    Subscription, TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort, WaitingQuery,
};
use uuid::Uuid;

/// Code that runs around every call of a port.
///
/// [`Faults`](crate::faults::Faults) and [`FakeClock`](crate::FakeClock) are interceptors; a test may
/// bring its own.
pub trait Interceptor: Send + Sync {
    /// Makes a call, or not, and answers for it. The call has no effect before it is polled.
    ///
    /// The operation is the method's name. Where two ports have a method of that name, it is followed
    /// by what the call is about, as in `purge_calls`.
    fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, PortError>> + Send,
    ) -> impl Future<Output = Result<T, PortError>> + Send;

    /// Waits for a notification, which is no call: it may never come, and cannot fail.
    fn listen<T: Send>(
        &self,
        notification: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        notification
    }
}

/// A port whose calls all go through an interceptor.
#[derive(Debug)]
pub struct Intercepted<P: ?Sized, I> {
    inner: Arc<P>,
    interceptor: I,
}

impl<P: ?Sized, I: Interceptor + Clone> Intercepted<P, I> {
    /// Wraps a port.
    pub fn new(inner: Arc<P>, interceptor: &I) -> Self {
        Self {
            inner,
            interceptor: interceptor.clone(),
        }
    }
}

/// The name of an operation: the method's, unless another is given.
macro_rules! operation {
    ($method:ident) => {
        stringify!($method)
    };
    ($method:ident $name:literal) => {
        $name
    };
}

/// Implements ports by a line for each method, and whatever is not a plain call in full.
macro_rules! forward {
    ($($port:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty $(as $name:literal)?;)*
        $({ $($in_full:tt)* })?
    })*) => {$(
        #[async_trait]
        impl<P: $port + ?Sized, I: Interceptor> $port for Intercepted<P, I> {
            $(async fn $method(&self, $($arg: $type),*) -> $answer {
                let call = self.inner.$method($($arg),*);
                self.interceptor.around(operation!($method $($name)?), call).await
            })*
            $($($in_full)*)?
        }
    )*};
}

forward! {
    TimerPersistencePort {
        save(batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome>;
        find(key: TimerKey) -> Result<Option<TimerEntry>, PortError>;
        find_due(tenant_id: TenantId, now: Timestamp, limit: usize) -> Result<Vec<ScheduledTimer>, PortError>;
        mark_fired(batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome>;
        delete(batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome>;
        find_by_correlation(id: CorrelationId, after: Option<TimerKey>, limit: usize) -> Result<Vec<TimerEntry>, PortError>;
        page(query: TimerPageQuery) -> Result<TimerPage, PortError>;
        purge(before: Timestamp, limit: usize) -> Result<usize, PortError>;
    }

    TimerQueuePort {
        claim_due_except(now: Timestamp, limit: usize, lease: Duration, excluded: BTreeSet<TenantId>) -> Result<ClaimBatch, PortError> as "claim_due";
        retry_later(batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome>;
        release(batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome>;
        dead_letter(batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome>;
        renew(batch: Vec<ClaimRef>, now: Timestamp, lease: Duration) -> BatchResult<ClaimOutcome>;
        backlog(now: Timestamp, limit: usize) -> Result<Backlog, PortError>;
        fired_since(since: Timestamp, after: Option<FiredCursor>, limit: usize) -> Result<FiredPage, PortError>;
    }

    DeadLetterPort {
        record(batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome>;
        list(after: Option<u64>, limit: usize) -> Result<Vec<StoredDeadLetter>, PortError>;
        remove(sequences: Vec<u64>) -> BatchResult<RemoveOutcome>;
    }

    BusPositionPort {
        load(stream: String) -> Result<Option<BusPosition>, PortError>;
        save(position: BusPosition) -> Result<(), PortError> as "save_position";
        owner(new: Uuid) -> Result<Option<Uuid>, PortError>;
        own_republication(stream: String, now: Timestamp, lease: Duration) -> Result<bool, PortError>;
    }

    EventBusPort {
        publish(batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome>;
        subscribe(request: Subscribe) -> Result<Box<dyn Subscription>, PortError>;
        recovered(loss: &DataLoss) -> Result<(), PortError>;
        {
            async fn lost(&self) -> DataLoss {
                self.interceptor.listen(self.inner.lost()).await
            }

            fn recovered_until(&self, loss: &DataLoss, until: Timestamp) {
                self.inner.recovered_until(loss, until);
            }

            fn readiness(&self) -> Result<(), String> {
                self.inner.readiness()
            }
        }
    }

    ServiceCallPersistencePort {
        submit(batch: Vec<NewCall>) -> BatchResult<SubmitOutcome>;
        find(keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> as "find_calls";
        was_submitted(keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError>;
        change(batch: Vec<CallChange>) -> BatchResult<ChangeOutcome>;
        delete(batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> as "delete_calls";
        page(query: CallPageQuery) -> Result<CallPage, PortError> as "page_calls";
        find_by_correlation(id: CorrelationId, after: Option<TimerKey>, limit: usize) -> Result<Vec<ServiceCall>, PortError> as "find_calls_by_correlation";
        find_stuck(now: Timestamp, limit: usize) -> Result<StuckCalls, PortError>;
        purge(before: Timestamp, now: Timestamp, limit: usize) -> Result<usize, PortError> as "purge_calls";
        {
            fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError> {
                self.inner.check_cursor(cursor)
            }
        }
    }

    OutboxPort {
        claim(now: Timestamp, limit: usize, lease: Duration) -> Result<OutboxBatch, PortError> as "claim_messages";
        retry_later(batch: Vec<PublishLater>, now: Timestamp) -> Result<(), PortError> as "publish_later";
        mark_published(batch: Vec<OutboxPosition>, at: Timestamp) -> BatchResult<OutboxOutcome>;
        dead_letter(batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome> as "dead_letter_messages";
        count(limit: usize) -> Result<usize, PortError>;
        about(key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError>;
        purge(before: Timestamp, limit: usize) -> Result<usize, PortError> as "purge_messages";
    }

    ExecutionLogPort {
        accept(batch: Vec<Execution>) -> BatchResult<AcceptOutcome>;
        claim(query: WaitingQuery, now: Timestamp, lease: Duration, start: &mut StartExecution<'_>) -> BatchResult<ClaimedExecution> as "claim_attempts";
        count_waiting(limit: usize) -> Result<usize, PortError>;
        renew(batch: Vec<ExecutionClaim>, now: Timestamp, lease: Duration) -> BatchResult<ExecutionOutcome> as "renew_attempts";
        take_over(held: BTreeSet<ExecutionKey>, now: Timestamp, lease: Duration, limit: usize) -> Result<Vec<AbandonedExecution>, PortError>;
        finish(batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome>;
        entries(call: TimerKey, limit: usize) -> Result<Vec<ExecutionEntry>, PortError>;
        delete(batch: Vec<DeletedCall>) -> BatchResult<()> as "delete_attempts";
        purge(before: Timestamp, limit: usize) -> Result<usize, PortError> as "purge_attempts";
    }
}
