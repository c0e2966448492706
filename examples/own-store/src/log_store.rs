//! The ports on top of state and log: each call locks both, writes what it changed, and then answers.

use std::collections::BTreeSet;
use std::io;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::ports::{
    Backend, Backlog, BatchResult, BusPosition, BusPositionPort, ClaimBatch, ClaimOutcome,
    ClaimRef, ClockPort, CorrelationId, DeadLetter, DeadLetterClaim, DeadLetterPort, DeleteOutcome,
    FiredCursor, FiredPage, FiredTimer, FiringId, MarkOutcome, OnChange, PageCursor, PortError,
    PortErrorKind, RecordOutcome, RemoveOutcome, RetryLater, SaveOutcome, SaveTimer,
    ScheduledTimer, StoredDeadLetter, TenantId, TimerEntry, TimerKey, TimerPage, TimerPageQuery,
    TimerPersistencePort, TimerQueuePort, TimerStores, Timestamp, async_trait,
};
use tokio::sync::Notify;

use crate::log::Log;
use crate::state::State;

/// Timers in one file, all of them in memory too. Clones share it.
///
/// What a bigger store would add: an index for each order in which timers are read, one sync for the calls
/// of many callers, and a new file without what is outdated once the log has become long.
#[derive(Clone)]
pub struct LogStore {
    path: PathBuf,
    /// `None` once the store was closed, or lost.
    open: Arc<Mutex<Option<(State, Log)>>>,
    broken: Arc<Notify>,
}

impl LogStore {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or written, is open in another process, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut state = State::default();
        let log = Log::open(path.as_ref(), |record| state.apply(record))?;
        Ok(Self {
            path: path.as_ref().to_path_buf(),
            open: Arc::new(Mutex::new(Some((state, log)))),
            broken: Arc::default(),
        })
    }

    /// Works on the state and answers when all that was changed is on the disk. Syncing blocks, so it
    /// is done on a thread that may. Since that thread goes on if the caller does not wait, no write is
    /// ever cut in half by a caller.
    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        let store = self.clone();
        let run = tokio::task::spawn_blocking(move || store.run_blocking(operation, work));
        run.await
            .unwrap_or_else(|panic| Err(self.lost(operation, &panic)))
    }

    fn run_blocking<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut State) -> T,
    ) -> Result<T, PortError> {
        let mut open = self.open.lock().map_err(|it| self.lost(operation, &it))?;
        let Some((state, log)) = &mut *open else {
            let why = "the store is closed";
            return Err(PortError::new(PortErrorKind::Stopped, operation, why));
        };
        let answer = work(state);
        let changes = take(&mut state.unsynced);
        if !changes.is_empty()
            && let Err(error) = log.append(&changes)
        {
            // The memory is ahead of the file now, and nobody may act on it.
            *open = None;
            return Err(self.lost(operation, &error));
        }
        Ok(answer)
    }

    fn lost(&self, operation: &'static str, why: &dyn std::error::Error) -> PortError {
        self.broken.notify_one();
        PortError::new(PortErrorKind::Broken, operation, why.to_string())
    }

    async fn each<I: Send + 'static, O: Send + 'static>(
        &self,
        operation: &'static str,
        batch: Vec<I>,
        mut work: impl FnMut(&mut State, I) -> Result<O, PortError> + Send + 'static,
    ) -> BatchResult<O> {
        let all = move |state: &mut State| {
            let items = batch.into_iter();
            items.map(|item| work(state, item)).collect()
        };
        self.run(operation, all).await
    }
}

#[async_trait]
impl Backend for LogStore {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.clone())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    // Nobody else can commit, because the file is locked: there is only its loss to report.
    async fn watch(&self, _clock: Arc<dyn ClockPort>, _on_change: OnChange) -> PortError {
        self.broken.notified().await;
        PortError::new(PortErrorKind::Broken, "watch the log", "a write has failed")
    }

    // An empty line is as durable as a timer, and means nothing when the log is replayed.
    async fn probe_write(&self) -> Result<(), PortError> {
        self.run("probe the log", |state| state.unsynced.push(b'\n'))
            .await
    }

    async fn close(&self) {
        self.close_soon();
    }

    // All that was answered is on the disk, so there is nothing to wait for.
    fn close_soon(&self) {
        if let Ok(mut open) = self.open.lock() {
            *open = None;
        }
    }
}

#[async_trait]
impl TimerPersistencePort for LogStore {
    async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome> {
        let save = move |state: &mut State, timer| Ok(state.save(timer, now));
        self.each("save timers", batch, save).await
    }

    async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        let find = move |state: &mut State| Some(state.timers.get(&key)?.entry.clone());
        self.run("find a timer", find).await
    }

    async fn find_due(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        let find = move |state: &mut State| {
            let scheduled = state.timers.values().filter(|row| row.ready_at().is_some());
            let mut due: Vec<_> = scheduled
                .map(|row| row.entry.timer().clone())
                .filter(|timer| timer.key.tenant_id == tenant_id)
                .filter(|timer| timer.registration.due_at <= now)
                .collect();
            due.sort_by_key(|timer| timer.registration.due_at);
            due.truncate(limit);
            due
        };
        self.run("find due timers", find).await
    }

    async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        let mark = |state: &mut State, fired| state.mark_fired(&fired);
        self.each("mark timers", batch, mark).await
    }

    async fn delete(&self, batch: Vec<TimerKey>, now: Timestamp) -> BatchResult<DeleteOutcome> {
        let delete = move |state: &mut State, key| Ok(state.delete(key, now));
        self.each("delete timers", batch, delete).await
    }

    async fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        let find = move |state: &mut State| {
            let rows = state.timers.iter();
            rows.filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
                .filter(|(_, row)| row.entry.timer().correlation_id == correlation_id)
                .take(limit)
                .map(|(_, row)| row.entry.clone())
                .collect()
        };
        self.run("find the timers of a request", find).await
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        let order = |id: &FiringId| (id.registration.due_at, id.key.service_call_id);
        let after = query.after.as_ref().map(|cursor| cursor.0.parse());
        let after = after.transpose();
        let after = after.map_err(|_| PageCursor::rejection("list timers"))?;
        let after = after.as_ref().map(order);
        let page = move |state: &mut State| {
            let entries = state.timers.values().map(|row| &row.entry);
            let mut timers: Vec<_> = entries
                .filter(|entry| entry.timer().key.tenant_id == query.tenant_id)
                .filter(|entry| query.state.is_none_or(|state| entry.state() == state))
                .filter(|entry| Some(order(&entry.timer().firing_id())) > after)
                .cloned()
                .collect();
            timers.sort_by_key(|entry| order(&entry.timer().firing_id()));
            let more = timers.len() > query.limit;
            timers.truncate(query.limit);
            let last = timers.last().filter(|_| more);
            let next = last.map(|entry| PageCursor(entry.timer().firing_id().to_string()));
            TimerPage { timers, next }
        };
        self.run("list timers", page).await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        let purge = move |state: &mut State| state.purge(before, limit);
        self.run("purge timers", purge).await
    }
}

#[async_trait]
impl TimerQueuePort for LogStore {
    async fn claim_due_except(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        let claim = move |state: &mut State| state.claim_due(now, limit, lease, &excluded);
        self.run("claim timers", claim).await
    }

    async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        let retry = |state: &mut State, it| Ok(outcome(state.retry_later(it)));
        self.each("retry timers", batch, retry).await
    }

    async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        let release = |state: &mut State, claim| Ok(state.release(&claim));
        self.each("release timers", batch, release).await
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        let dead_letter = |state: &mut State, it| Ok(outcome(state.dead_letter(it)));
        self.each("dead-letter timers", batch, dead_letter).await
    }

    async fn renew(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        let until = now.saturating_add(lease);
        let renew = move |state: &mut State, claim| Ok(state.renew(&claim, until));
        self.each("renew leases", batch, renew).await
    }

    async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        let count = move |state: &mut State| {
            let scheduled = state.timers.values().filter_map(|row| row.ready_at());
            Backlog {
                pending: scheduled.clone().take(limit).count(),
                overdue: scheduled.filter(|at| *at <= now).take(limit).count(),
            }
        };
        self.run("count timers", count).await
    }

    async fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        let find = move |state: &mut State| {
            let reached = state.timers.values().filter_map(|row| match &row.entry {
                TimerEntry::Reached { timer, .. } => Some(timer),
                TimerEntry::Scheduled { .. } => None,
            });
            let mut timers: Vec<_> = reached
                .filter(|timer| timer.reached_at() >= since)
                .filter(|timer| Some(FiredCursor::of(timer)) > after)
                .cloned()
                .collect();
            timers.sort_by_key(FiredCursor::of);
            let more = timers.len() > limit;
            timers.truncate(limit);
            let next = timers.last().filter(|_| more).map(FiredCursor::of);
            FiredPage { timers, next }
        };
        self.run("find fired timers", find).await
    }
}

fn outcome(settled: Result<(), ClaimOutcome>) -> ClaimOutcome {
    settled.map_or_else(|outcome| outcome, |()| ClaimOutcome::Applied)
}

#[async_trait]
impl DeadLetterPort for LogStore {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        let record = |state: &mut State, dead_letter| Ok(state.record(dead_letter));
        self.each("record dead letters", batch, record).await
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        let list = move |state: &mut State| {
            let later = state.dead_letters.iter();
            let later = later.filter(|(sequence, _)| Some(**sequence) > after);
            let stored = later.map(|(&sequence, dead_letter)| StoredDeadLetter {
                sequence,
                dead_letter: dead_letter.clone(),
            });
            stored.take(limit).collect()
        };
        self.run("list dead letters", list).await
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        let remove = |state: &mut State, sequence| Ok(state.remove(sequence));
        self.each("remove dead letters", sequences, remove).await
    }
}

#[async_trait]
impl BusPositionPort for LogStore {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        let load = move |state: &mut State| state.positions.get(&stream).cloned();
        self.run("load a position", load).await
    }

    async fn save(&self, position: BusPosition) -> Result<(), PortError> {
        self.run("save a position", |state| state.save_position(position))
            .await
    }
}
