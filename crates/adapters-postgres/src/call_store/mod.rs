//! A store of service calls on PostgreSQL, beside the timers that belong to them, for any number of
//! instances.

mod apart;
mod attempts;
mod changing;
mod grouping;
mod outbox;
mod paging;
mod reading;
mod rows;
mod starting;
mod submitting;
mod turns;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, TimerKey, Timestamp};
use punctual_ports::{
    AbandonedExecution, AcceptOutcome, BatchResult, CallChange, CallDeletion, CallPage,
    CallPageQuery, ChangeOutcome, ClaimedExecution, DeadLetterMessage, DeletedCall, Execution,
    ExecutionClaim, ExecutionEntry, ExecutionKey, ExecutionLogPort, ExecutionOutcome,
    FinishExecution, NewCall, OutboxBatch, OutboxOutcome, OutboxPort, OutboxPosition, PageCursor,
    PortError, PublishLater, PublishedMessage, ServiceCallPersistencePort, StartExecution,
    StoredCall, StuckCalls, SubmitOutcome, WaitingQuery,
};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::call_sql::CallStatements;
use crate::execution_sql::ExecutionStatements;
use crate::lane::{BEGIN_DURABLE, BEGIN_READ, Connector, Lane, Parameter, Session};
use crate::settings::StoreClock;
use crate::values::{Instant, sql_limit};
use crate::{PostgresTimerStore, SchemaSet};
use attempts::Renew;
use grouping::Queue;
use paging::ListPosition;
use turns::Turns;

/// Service calls, their outbox and their attempts, in the schema of a [`PostgresTimerStore`]. Clones share its
/// connections.
#[derive(Clone)]
pub struct PostgresCallStore {
    timers: PostgresTimerStore,
    calls: Arc<Calls>,
}

/// What the calls of an instance have: connections, and queues of what is to be written on them.
pub(crate) struct Calls {
    sql: CallStatements,
    /// Where the schema has attempts alone.
    apart: Option<ExecutionStatements>,
    schema: String,
    instance: Uuid,
    time: StoreClock,
    /// Whatever must not be lost.
    writes: [Lane; 3],
    /// Which of them is next if none is free.
    next_write: AtomicUsize,
    outbox: Lane,
    /// What handlers of messages wait for.
    finds: Lane,
    /// What people wait for.
    reads: Lane,
    turns: Turns,
    submissions: Queue<NewCall>,
    changes: Queue<CallChange>,
    deletions: Queue<CallDeletion>,
    accepts: Queue<Execution>,
    finishes: Queue<FinishExecution>,
    renewals: Queue<Renew>,
    forgotten: Queue<DeletedCall>,
}

impl Calls {
    /// Must be called within a runtime, which the queues are emptied by.
    pub(crate) fn start(
        connector: &Arc<Connector>,
        quoted_schema: &str,
        instance: Uuid,
        set: SchemaSet,
        time: StoreClock,
    ) -> Arc<Self> {
        let mut sql = CallStatements::of(quoted_schema);
        let apart = set == SchemaSet::ExecutionOnly;
        let apart = apart.then(|| ExecutionStatements::of(quoted_schema));
        if let Some(apart) = &apart {
            sql.accept.clone_from(&apart.accept);
            sql.claim_messages.clone_from(&apart.claim_messages);
        }
        let write = || Lane::durable(connector, "write calls");
        let calls = Arc::new(Self {
            sql,
            apart,
            schema: connector.schema.clone(),
            instance,
            time,
            writes: [write(), write(), write()],
            next_write: AtomicUsize::new(0),
            outbox: Lane::new(connector, "outbox"),
            finds: Lane::new(connector, "find calls"),
            reads: Lane::new(connector, "read calls"),
            turns: Turns::default(),
            submissions: Queue::default(),
            changes: Queue::default(),
            deletions: Queue::default(),
            accepts: Queue::default(),
            finishes: Queue::default(),
            renewals: Queue::default(),
            forgotten: Queue::default(),
        });
        calls.submissions.start(&calls);
        calls.changes.start(&calls);
        calls.deletions.start(&calls);
        calls.accepts.start(&calls);
        calls.finishes.start(&calls);
        calls.renewals.start(&calls);
        calls.forgotten.start(&calls);
        calls
    }

    /// One of the connections for writing, if possible one that is free.
    fn writer(&self) -> &Lane {
        let free = self.writes.iter().find(|lane| lane.is_idle());
        free.unwrap_or_else(|| {
            let next = self.next_write.fetch_add(1, Ordering::Relaxed);
            &self.writes[next % self.writes.len()]
        })
    }

    const fn reader(&self) -> &Lane {
        &self.reads
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let single = [&self.outbox, &self.finds, &self.reads];
        self.writes.iter().chain(single)
    }

    /// Refuses what comes from now on, and waits until what waits is being written.
    pub(crate) async fn drain(&self) {
        self.submissions.close();
        self.changes.close();
        self.deletions.close();
        self.accepts.close();
        self.finishes.close();
        self.renewals.close();
        self.forgotten.close();
        self.submissions.drained().await;
        self.changes.drained().await;
        self.deletions.drained().await;
        self.accepts.drained().await;
        self.finishes.drained().await;
        self.renewals.drained().await;
        self.forgotten.drained().await;
    }

    /// The lock that is waited for by those that claim the same.
    fn turn_params<'a>(&'a self, of: &'a i32) -> Vec<Parameter<'a>> {
        vec![(of, Type::INT4), (&self.schema, Type::TEXT)]
    }

    /// Runs one statement that returns a number.
    async fn count(
        self: &Arc<Self>,
        lane: &Lane,
        operation: &'static str,
        begin: &'static str,
        statement: fn(&CallStatements) -> &String,
        (before, limit): (Option<Timestamp>, usize),
    ) -> Result<usize, PortError> {
        let calls = Arc::clone(self);
        let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
            let calls = Arc::clone(&calls);
            Box::pin(async move {
                let (before, limit) = (before.map(Instant), sql_limit(limit));
                let mut params: Vec<Parameter<'_>> = Vec::new();
                if before.is_some() {
                    params.push((&before, Type::TIMESTAMPTZ));
                }
                params.push((&limit, Type::INT8));
                changing::count(&session, begin, statement(&calls.sql), params).await
            })
        };
        lane.run(operation, work).await
    }
}

impl PostgresTimerStore {
    /// The service calls beside the timers, or attempts without them; `None` if the schema is to hold timers
    /// alone.
    pub fn calls(&self) -> Option<PostgresCallStore> {
        self.inner.calls.as_ref().map(|calls| PostgresCallStore {
            timers: self.clone(),
            calls: Arc::clone(calls),
        })
    }
}

impl PostgresCallStore {
    /// The timers, dead letters and positions in the same schema.
    pub const fn timers(&self) -> &PostgresTimerStore {
        &self.timers
    }
}

#[async_trait]
impl ServiceCallPersistencePort for PostgresCallStore {
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        self.calls.submissions.write(batch).await
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        reading::find(&self.calls, keys).await
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        reading::was_submitted(&self.calls, keys).await
    }

    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        self.calls.changes.write(batch).await
    }

    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        self.calls.deletions.write(batch).await
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        let after = query.after.as_ref().map(ListPosition::of_cursor);
        let after = after.transpose()?;
        paging::page(&self.calls, query, after).await
    }

    fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError> {
        ListPosition::of_cursor(cursor).map(drop)
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<ServiceCall>, PortError> {
        reading::find_by_correlation(&self.calls, correlation_id, after, limit).await
    }

    async fn find_stuck(&self, now: Timestamp, limit: usize) -> Result<StuckCalls, PortError> {
        reading::find_stuck(&self.calls, now, limit).await
    }

    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        changing::purge(&self.calls, before, now, limit).await
    }
}

#[async_trait]
impl OutboxPort for PostgresCallStore {
    async fn claim(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<OutboxBatch, PortError> {
        outbox::claim(&self.calls, now, limit, lease).await
    }

    async fn retry_later(&self, batch: Vec<PublishLater>, now: Timestamp) -> Result<(), PortError> {
        outbox::retry_later(&self.calls, batch, now).await
    }

    async fn mark_published(
        &self,
        batch: Vec<OutboxPosition>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome> {
        outbox::mark_published(&self.calls, batch, at).await
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for message in batch {
            outcomes.push(outbox::dead_letter(&self.calls, message).await);
        }
        Ok(outcomes)
    }

    async fn count(&self, limit: usize) -> Result<usize, PortError> {
        let counted = self.calls.count(
            &self.calls.reads,
            "count unpublished messages",
            BEGIN_READ,
            |sql| &sql.count_messages,
            (None, limit),
        );
        counted.await
    }

    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError> {
        outbox::about(&self.calls, key, limit).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        let purged = self.calls.count(
            self.calls.writer(),
            "remove old messages",
            BEGIN_DURABLE,
            |sql| &sql.purge_messages,
            (Some(before), limit),
        );
        purged.await
    }
}

#[async_trait]
impl ExecutionLogPort for PostgresCallStore {
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome> {
        self.calls.accepts.write(batch).await
    }

    async fn claim(
        &self,
        query: WaitingQuery,
        now: Timestamp,
        lease: Duration,
        start: &mut StartExecution<'_>,
    ) -> BatchResult<ClaimedExecution> {
        starting::claim(&self.calls, query, now, lease, start).await
    }

    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError> {
        let counted = self.calls.count(
            &self.calls.reads,
            "count waiting attempts",
            BEGIN_READ,
            |sql| &sql.count_attempts,
            (None, limit),
        );
        counted.await
    }

    async fn renew(
        &self,
        batch: Vec<ExecutionClaim>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ExecutionOutcome> {
        let batch = batch.into_iter().map(|claim| Renew { claim, now, lease });
        self.calls.renewals.write(batch.collect()).await
    }

    async fn take_over(
        &self,
        held: BTreeSet<ExecutionKey>,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<AbandonedExecution>, PortError> {
        attempts::take_over(&self.calls, held, now, lease, limit).await
    }

    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome> {
        self.calls.finishes.write(batch).await
    }

    async fn entries(
        &self,
        call: TimerKey,
        limit: usize,
    ) -> Result<Vec<ExecutionEntry>, PortError> {
        attempts::entries(&self.calls, call, limit).await
    }

    async fn delete(&self, batch: Vec<DeletedCall>) -> BatchResult<()> {
        if self.calls.apart.is_none() {
            return Ok(batch.into_iter().map(|_| Ok(())).collect());
        }
        self.calls.forgotten.write(batch).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        if self.calls.apart.is_none() {
            return Ok(0);
        }
        apart::purge(&self.calls, before, limit).await
    }
}
