//! In-memory timer store.

mod claiming;
mod instances;
mod positions;
mod reading;
mod settling;
mod state;
mod writing;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{CorrelationId, ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp};
use punctual_ports::{
    Backlog, BatchResult, BusPosition, BusPositionPort, ClaimBatch, ClaimOutcome, ClaimRef,
    DeadLetter, DeadLetterClaim, DeadLetterPort, DeleteOutcome, FiredCursor, FiredPage, FiredTimer,
    MarkOutcome, PortError, RecordOutcome, RemoveOutcome, RetryLater, SaveOutcome, SaveTimer,
    StoredDeadLetter, TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};
use uuid::Uuid;

use crate::{each, lock};
use instances::Instance;
use state::State;

/// Timers, dead letters and the positions of buses in memory. Clones share their content, and are one
/// instance; [`another_instance`](Self::another_instance) shares the content alone.
///
/// ```
/// # use punctual_adapters_memory::MemoryTimerStore;
/// # use punctual_domain::{TenantId, TimerKey};
/// # use punctual_ports::TimerPersistencePort;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryTimerStore::new();
/// let key = TimerKey::named(TenantId::default(), "order-123");
/// assert_eq!(store.find(key).await?, None);
/// # Ok::<(), punctual_ports::PortError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct MemoryTimerStore {
    state: Arc<Mutex<State>>,
    instance: Instance,
}

impl MemoryTimerStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another instance on the same timers, as another process has them: what one has claimed, the other
    /// does not get.
    #[must_use]
    pub fn another_instance(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            instance: Instance::after(&self.instance),
        }
    }

    /// The state after a crash: every acknowledged write, and no claims.
    pub fn crash_and_reopen(&self) {
        let mut state = lock(&self.state);
        state.forget_claims();
        state.positions.end_all();
    }

    /// Loses all claims while the instances run on, as a crash of a database does.
    pub fn lose_claims(&self) {
        lock(&self.state).lose_claims();
    }

    /// Stops a clock of the store's own at an instant. Without one, as at first, the store has none, and
    /// the time that a caller gives is its time.
    pub fn set_clock(&self, now: Option<Timestamp>) {
        lock(&self.state).clock.set(now);
    }

    /// The number of this instance, which no other of the same timers has.
    pub(crate) fn instance_number(&self) -> u64 {
        self.instance.number()
    }

    /// The time of the store, which is the caller's if it has no clock.
    pub(crate) fn time(&self, callers: Timestamp) -> Timestamp {
        lock(&self.state).clock.or(callers)
    }

    /// What the caller's clock will read when the store's reads `at`.
    pub(crate) fn to_caller(&self, at: Timestamp, callers: Timestamp) -> Timestamp {
        lock(&self.state).clock.to_caller(at, callers)
    }

    /// Removes a timer together with its call. A deletion leaves a tombstone, a purge does not.
    pub(crate) fn remove_with_call(&self, key: &TimerKey, deleted_at: Option<Timestamp>) {
        lock(&self.state).remove(key, deleted_at);
    }

    /// Records a dead letter of a store that shares this one.
    pub(crate) fn put_dead_letter(&self, dead_letter: DeadLetter) {
        lock(&self.state).dead_letters.record(dead_letter);
    }
}

#[async_trait]
impl TimerPersistencePort for MemoryTimerStore {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        each(
            &self.state,
            batch,
            |state, timer| Ok(state.save(timer, now)),
        )
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        Ok(lock(&self.state).find(&key))
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        Ok(lock(&self.state).find_due(&tenant_id, now, limit))
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        each(&self.state, batch, |state, fired| state.mark_fired(&fired))
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        each(&self.state, batch, |state, key| Ok(state.delete(&key, now)))
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        Ok(lock(&self.state).find_by_correlation(correlation_id, after.as_ref(), limit))
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        lock(&self.state).page(&query)
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        Ok(lock(&self.state).purge(before, limit))
    }
}

#[async_trait]
impl TimerQueuePort for MemoryTimerStore {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        Ok(lock(&self.state).claim_due(self.instance.number(), now, limit, lease, &excluded))
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        each(&self.state, batch, |state, retry| {
            Ok(state.retry_later(&retry))
        })
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        each(&self.state, batch, |state, claim| Ok(state.release(&claim)))
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        each(
            &self.state,
            batch,
            |state, dead| Ok(state.dead_letter(dead)),
        )
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        each(&self.state, batch, |state, claim| {
            let until = state.clock.or(now).saturating_add(lease);
            Ok(state.renew(&claim, until))
        })
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        Ok(lock(&self.state).backlog(now, limit))
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        Ok(lock(&self.state).fired_since(since, after, limit))
    }
}

#[async_trait]
impl DeadLetterPort for MemoryTimerStore {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        each(&self.state, batch, |state, dead_letter| {
            Ok(state.dead_letters.record(dead_letter))
        })
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        Ok(lock(&self.state).dead_letters.list(after, limit))
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        each(&self.state, sequences, |state, sequence| {
            Ok(state.dead_letters.remove(sequence))
        })
    }
}

#[async_trait]
impl BusPositionPort for MemoryTimerStore {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        Ok(lock(&self.state).positions.load(&self.instance, &stream))
    }

    async fn save(&self, position: BusPosition) -> Result<(), PortError> {
        lock(&self.state).positions.save(&self.instance, position);
        Ok(())
    }

    async fn owner(&self, new: Uuid) -> Result<Option<Uuid>, PortError> {
        Ok(Some(lock(&self.state).positions.id(new)))
    }

    async fn own_republication(
        &self,
        stream: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<bool, PortError> {
        let mut state = lock(&self.state);
        let now = state.clock.or(now);
        Ok(state.positions.own(&self.instance, stream, now, lease))
    }
}
