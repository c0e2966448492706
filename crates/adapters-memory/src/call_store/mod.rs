//! In-memory store of service calls, their messages and their attempts.

mod attempts;
mod calls;
mod outbox;
mod reading;
mod submitting;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::messages::Listeners;
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

use crate::{MemoryTimerStore, each, lock};
use attempts::Attempts;
use calls::Calls;
use outbox::Outbox;
use submitting::Submissions;

/// Service calls, their outbox and their attempts in memory. Clones share their content, and are one
/// instance; [`another_instance`](Self::another_instance) shares the content alone.
///
/// It shares a database with a store of timers: deleting a call deletes its timer, and both share their
/// dead letters.
///
/// ```
/// # use punctual_adapters_memory::{MemoryCallStore, MemoryTimerStore};
/// # use punctual_ports::OutboxPort;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let timers = MemoryTimerStore::new();
/// let calls = MemoryCallStore::beside(&timers);
/// assert_eq!(calls.count(10).await?, 0);
/// # Ok::<(), punctual_ports::PortError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct MemoryCallStore {
    state: Arc<Mutex<State>>,
    timers: MemoryTimerStore,
}

/// State behind one lock.
#[derive(Default)]
struct State {
    calls: Calls,
    submissions: Submissions,
    outbox: Outbox,
    attempts: Attempts,
}

impl MemoryCallStore {
    /// An empty store, with an empty store of timers beside it.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store beside these timers.
    pub fn beside(timers: &MemoryTimerStore) -> Self {
        Self {
            state: Arc::default(),
            timers: timers.clone(),
        }
    }

    /// An empty store of attempts and their messages, whose calls and timers are in other databases.
    pub fn executions_alone() -> Self {
        let state = State {
            attempts: Attempts::apart(),
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            timers: MemoryTimerStore::default(),
        }
    }

    /// The timers beside it.
    pub fn timers(&self) -> MemoryTimerStore {
        self.timers.clone()
    }

    /// Another instance on the same calls and timers, as another process has them: what one has claimed,
    /// the other does not get.
    #[must_use]
    pub fn another_instance(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            timers: self.timers.another_instance(),
        }
    }

    /// The state after a crash of the only instance: every acknowledged write, no turns, and no claims.
    pub fn crash_and_reopen(&self) {
        let mut state = lock(&self.state);
        state.attempts.forget_instances();
        state.outbox.forget_claims();
        drop(state);
        self.timers.crash_and_reopen();
    }
}

impl MemoryCallStore {
    /// The number of this instance, and when a lease that it gets now ends.
    fn owner(&self, now: Timestamp, lease: Duration) -> (u64, Timestamp) {
        let until = self.timers.time(now).saturating_add(lease);
        (self.timers.instance_number(), until)
    }
}

impl State {
    fn change(&mut self, change: CallChange) -> ChangeOutcome {
        let outcome = self.calls.change(change.call, change.expected_version);
        if outcome == ChangeOutcome::Changed {
            self.outbox.append(change.outbox, change.listeners);
        }
        outcome
    }

    fn delete(&mut self, deletion: CallDeletion, timers: &MemoryTimerStore) -> ChangeOutcome {
        let Some(call) = self.calls.delete(&deletion.key, deletion.expected_version) else {
            return ChangeOutcome::Outdated;
        };
        // A schedule is sent when its call is submitted, by a clock that may have been set back since.
        let deleted_at = deletion.deleted_at.max(call.details().submitted_at);
        timers.remove_with_call(&deletion.key, Some(deleted_at));
        self.attempts.remove_of(&deletion.key);
        self.submissions
            .tombstone(&deletion.key, deletion.deleted_at);
        self.outbox.append(deletion.outbox, Listeners::Anyone);
        ChangeOutcome::Changed
    }

    fn purge(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
        timers: &MemoryTimerStore,
    ) -> usize {
        let old = self.calls.finished_before(before, limit);
        for key in &old {
            self.calls.remove(key);
            timers.remove_with_call(key, None);
            self.attempts.remove_of(key);
            self.submissions.tombstone(key, now);
        }
        let left = limit - old.len();
        old.len() + self.submissions.purge(before, left)
    }

    fn accept(&mut self, execution: Execution) -> AcceptOutcome {
        if !self.attempts.are_apart() && !self.calls.has(&execution.key.call) {
            return AcceptOutcome::NoParent;
        }
        self.attempts.accept(execution)
    }

    fn claim_attempts(
        &mut self,
        query: &WaitingQuery,
        started_at: Timestamp,
        (owner, until): (u64, Timestamp),
        start: &mut StartExecution<'_>,
    ) -> Vec<Result<ClaimedExecution, PortError>> {
        let mut claimed = Vec::new();
        for execution in self.attempts.waiting(query) {
            if let Some(messages) = start(&execution) {
                let lease = self.attempts.new_lease(owner, until);
                self.attempts.begin(&execution.key.call, started_at, lease);
                self.outbox.append(messages, Listeners::Anyone);
                let token = lease.token;
                claimed.push(Ok(ClaimedExecution { execution, token }));
            }
        }
        claimed
    }

    fn finish(&mut self, finish: FinishExecution) -> ExecutionOutcome {
        let (at, outcome) = (finish.finished_at, finish.outcome);
        let outcome = self.attempts.finish(&finish.claim, at, outcome);
        if outcome == ExecutionOutcome::Applied {
            self.outbox.append(finish.outbox, Listeners::Anyone);
        }
        outcome
    }
}

#[async_trait]
impl ServiceCallPersistencePort for MemoryCallStore {
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        each(&self.state, batch, |state, new| {
            let now = self.timers.time(new.call.details().submitted_at);
            Ok(state.submit(new.by_the_clock_of_the_store(now)))
        })
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        let state = lock(&self.state);
        Ok(keys.iter().map(|key| state.calls.find(key)).collect())
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        let state = lock(&self.state);
        let known = keys.iter().map(|key| state.submissions.has(key));
        Ok(known.collect())
    }

    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        each(&self.state, batch, |state, item| Ok(state.change(item)))
    }

    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        each(&self.state, batch, |state, deletion| {
            Ok(state.delete(deletion, &self.timers))
        })
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        lock(&self.state).calls.page(&query)
    }

    fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError> {
        reading::read_cursor(cursor).map(drop)
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<ServiceCall>, PortError> {
        let state = lock(&self.state);
        Ok(state
            .calls
            .find_by_correlation(correlation_id, after.as_ref(), limit))
    }

    async fn find_stuck(&self, now: Timestamp, limit: usize) -> Result<StuckCalls, PortError> {
        let as_of = self.timers.time(now).min(now);
        Ok(lock(&self.state).calls.find_stuck(as_of, limit))
    }

    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        let mut state = lock(&self.state);
        Ok(state.purge(before, now, limit, &self.timers))
    }
}

#[async_trait]
impl OutboxPort for MemoryCallStore {
    async fn claim(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<OutboxBatch, PortError> {
        let ((owner, until), time) = (self.owner(now, lease), self.timers.time(now));
        let mut batch = lock(&self.state).outbox.claim(owner, time, until, limit);
        batch.next_at = batch.next_at.map(|at| self.timers.to_caller(at, now));
        Ok(batch)
    }

    async fn retry_later(&self, batch: Vec<PublishLater>, now: Timestamp) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        for later in batch {
            let (owner, at) = self.owner(now, later.after);
            state.outbox.retry_later(owner, later.position, at);
        }
        Ok(())
    }

    async fn mark_published(
        &self,
        batch: Vec<OutboxPosition>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome> {
        each(&self.state, batch, |state, position| {
            Ok(state.outbox.mark(position, at))
        })
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome> {
        each(&self.state, batch, |state, dead| {
            let outcome = state.outbox.mark(dead.position, dead.dead_letter.failed_at);
            if outcome == OutboxOutcome::Marked {
                self.timers.put_dead_letter(dead.dead_letter);
            }
            Ok(outcome)
        })
    }

    async fn count(&self, limit: usize) -> Result<usize, PortError> {
        Ok(lock(&self.state).outbox.count(limit))
    }

    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError> {
        Ok(lock(&self.state).outbox.about(&key, limit))
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        Ok(lock(&self.state).outbox.purge(before, limit))
    }
}

#[async_trait]
impl ExecutionLogPort for MemoryCallStore {
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome> {
        each(&self.state, batch, |state, item| Ok(state.accept(item)))
    }

    async fn claim(
        &self,
        query: WaitingQuery,
        now: Timestamp,
        lease: Duration,
        start: &mut StartExecution<'_>,
    ) -> BatchResult<ClaimedExecution> {
        let owner = self.owner(now, lease);
        Ok(lock(&self.state).claim_attempts(&query, now, owner, start))
    }

    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError> {
        Ok(lock(&self.state).attempts.count_waiting(limit))
    }

    async fn renew(
        &self,
        batch: Vec<ExecutionClaim>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ExecutionOutcome> {
        let (_, until) = self.owner(now, lease);
        each(&self.state, batch, |state, claim| {
            Ok(state.attempts.renew(&claim, until))
        })
    }

    async fn take_over(
        &self,
        held: BTreeSet<ExecutionKey>,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<AbandonedExecution>, PortError> {
        let ((owner, until), now) = (self.owner(now, lease), self.timers.time(now));
        let attempts = &mut lock(&self.state).attempts;
        Ok(attempts.take_over(&held, owner, now, until, limit))
    }

    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome> {
        each(&self.state, batch, |state, item| Ok(state.finish(item)))
    }

    async fn entries(
        &self,
        call: TimerKey,
        limit: usize,
    ) -> Result<Vec<ExecutionEntry>, PortError> {
        Ok(lock(&self.state).attempts.entries(&call, limit))
    }

    async fn delete(&self, batch: Vec<DeletedCall>) -> BatchResult<()> {
        each(&self.state, batch, |state, deleted| {
            state.attempts.delete(&deleted);
            Ok(())
        })
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        let State {
            attempts, outbox, ..
        } = &mut *lock(&self.state);
        Ok(attempts.purge(before, limit, |call| outbox.has_unpublished(call)))
    }
}
