//! A store of service calls on one SQLite file, beside the timers that belong to them.

mod attempt_claims;
mod attempts;
mod changing;
mod outbox;
mod outbox_claims;
mod paging;
mod reading;
mod rows;
mod submitting;
mod turns;
mod waiting_attempts;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
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

use crate::call_sql;
use crate::{OpenError, Role, SchemaSet, SqliteSettings, SqliteTimerStore};
use attempt_claims::AttemptClaims;
use attempts::Begin;
use outbox_claims::Read;
pub(crate) use outbox_claims::{HandedOver, OutboxClaims};
use paging::ListPosition;
use turns::{Turns, Waiting};
pub(crate) use waiting_attempts::WaitingAttempts;

/// Service calls, their outbox and their attempts on one SQLite file. Clones share it.
///
/// Shares the file of a [`SqliteTimerStore`]: one thread writes both, and all waiting commands share one
/// commit.
#[derive(Clone)]
pub struct SqliteCallStore {
    file: SqliteTimerStore,
    turns: Turns,
    attempt_claims: AttemptClaims,
    queues: Queues,
}

/// What the writer hands over to a store. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Queues {
    /// Messages to be published.
    pub(crate) outbox: OutboxClaims,
    /// Attempts to be made.
    pub(crate) waiting: WaitingAttempts,
}

/// The queues of the store that was opened last. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Recipient(Arc<Mutex<Queues>>);

impl Recipient {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queues(&self) -> Queues {
        self.lock().clone()
    }
}

impl SqliteCallStore {
    /// Opens a file as [`SqliteTimerStore::open`] does.
    ///
    /// # Errors
    /// If the file cannot be used, or is to hold timers alone.
    pub fn open(settings: &SqliteSettings, now: Timestamp) -> Result<Self, OpenError> {
        SqliteTimerStore::open(settings, now)?.calls()
    }

    pub(crate) fn on(file: SqliteTimerStore) -> Self {
        let queues = Queues::default();
        *file.recipient.lock() = queues.clone();
        Self {
            file,
            turns: Turns::default(),
            attempt_claims: AttemptClaims::default(),
            queues,
        }
    }

    /// The timers, dead letters and positions on the same file.
    pub const fn timers(&self) -> &SqliteTimerStore {
        &self.file
    }

    /// The file, as it was found behind any links.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Finishes the queued commands and closes the file, timers included.
    pub async fn close(&self) {
        self.file.close().await;
    }

    /// Ends the claims of messages that are published now.
    fn published(
        &self,
        positions: Vec<OutboxPosition>,
        marked: &[Result<OutboxOutcome, PortError>],
    ) {
        for (position, _) in positions
            .into_iter()
            .zip(marked)
            .filter(|(_, it)| it.is_ok())
        {
            self.queues.outbox.end(position);
        }
    }

    /// Waiting attempts in turn, from memory if it has any.
    async fn waiting(&self, query: WaitingQuery) -> Result<Vec<Execution>, PortError> {
        let (turns, list) = (self.turns.clone(), &self.queues.waiting);
        if let Some(chosen) = list.choose(&query, |tenant| turns.last(tenant)) {
            turns.note(&chosen);
            return Ok(chosen);
        }
        let read = self.file.read("find waiting attempts", move |connection| {
            turns::waiting(connection, &turns, &query)
        });
        Ok(match read.await? {
            Waiting::Some(chosen) => chosen,
            Waiting::NoneOfQuery => Vec::new(),
            Waiting::None => {
                list.nothing_waits();
                Vec::new()
            }
        })
    }

    /// Whether the file has attempts alone.
    fn calls_are_elsewhere(&self) -> bool {
        self.file.set == SchemaSet::ExecutionOnly
    }

    /// Whether the file may hold timers.
    fn has_timers(&self) -> bool {
        self.file.role != Role::Calls
    }
}

#[async_trait]
impl ServiceCallPersistencePort for SqliteCallStore {
    async fn submit(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        let operation = "submit service calls";
        self.file
            .each(operation, batch, true, submitting::submit)
            .await
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        self.file
            .read("find service calls", move |connection| {
                reading::find(connection, &keys)
            })
            .await
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        self.file
            .read("find submissions", move |connection| {
                reading::was_submitted(connection, &keys)
            })
            .await
    }

    async fn change(&self, batch: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        let operation = "change service calls";
        self.file
            .each(operation, batch, false, changing::change)
            .await
    }

    async fn delete(&self, batch: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        let operation = "delete service calls";
        let has_timers = self.has_timers();
        self.file
            .each(operation, batch, false, move |transaction, deletion| {
                changing::delete(transaction, deletion, has_timers)
            })
            .await
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        let after = query
            .after
            .as_ref()
            .map(ListPosition::of_cursor)
            .transpose()?;
        self.file
            .browse("list service calls", move |connection| {
                paging::page(connection, &query, after)
            })
            .await
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
        self.file
            .browse("trace service calls", move |connection| {
                reading::find_by_correlation(connection, correlation_id, after.as_ref(), limit)
            })
            .await
    }

    async fn find_stuck(&self, now: Timestamp, limit: usize) -> Result<StuckCalls, PortError> {
        self.file
            .read("find stuck service calls", move |connection| {
                reading::find_stuck(connection, now, limit)
            })
            .await
    }

    async fn purge(
        &self,
        before: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        self.file
            .once("remove old service calls", move |transaction| {
                changing::purge(transaction, before, now, limit)
            })
            .await
    }
}

#[async_trait]
impl OutboxPort for SqliteCallStore {
    async fn claim(
        &self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
    ) -> Result<OutboxBatch, PortError> {
        let claims = &self.queues.outbox;
        let _claiming = claims.claiming.lock().await;
        let to_read = claims.to_read(now, limit);
        let read = if to_read.again.is_empty() && to_read.new.is_none() {
            Read::default()
        } else {
            let (again, new) = (to_read.again.clone(), to_read.new);
            let read = self
                .file
                .read("find unpublished messages", move |connection| {
                    outbox::unpublished(connection, &again, new)
                });
            read.await?
        };
        if !read.nothing_to_start.is_empty() {
            for marked in self
                .mark_published(read.nothing_to_start.clone(), now)
                .await?
            {
                marked?;
            }
        }
        Ok(claims.claim(to_read, read, now, now.saturating_add(lease)))
    }

    async fn retry_later(&self, batch: Vec<PublishLater>, now: Timestamp) -> Result<(), PortError> {
        for PublishLater { position, after } in batch {
            let at = now.saturating_add(after);
            self.queues.outbox.end_at(position, at);
        }
        Ok(())
    }

    async fn mark_published(
        &self,
        batch: Vec<OutboxPosition>,
        at: Timestamp,
    ) -> BatchResult<OutboxOutcome> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let to_mark = self.queues.outbox.to_mark(&batch);
        let marked = self.file.once(outbox::MARK, move |transaction| {
            outbox::mark_all(transaction, &to_mark, at)
        });
        let marked = marked.await?;
        self.published(batch, &marked);
        Ok(marked)
    }

    async fn dead_letter(&self, batch: Vec<DeadLetterMessage>) -> BatchResult<OutboxOutcome> {
        let positions = batch.iter().map(|dead| dead.position).collect();
        let marked = self
            .file
            .each("dead-letter messages", batch, false, outbox::dead_letter)
            .await?;
        self.published(positions, &marked);
        Ok(marked)
    }

    async fn count(&self, limit: usize) -> Result<usize, PortError> {
        self.file
            .read("count unpublished messages", move |connection| {
                reading::count(connection, call_sql::WAITING_MESSAGES, limit)
            })
            .await
    }

    async fn about(&self, key: TimerKey, limit: usize) -> Result<Vec<PublishedMessage>, PortError> {
        self.file
            .browse("find messages about a service call", move |connection| {
                outbox::about(connection, &key, limit)
            })
            .await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        self.file
            .once("remove old messages", move |transaction| {
                outbox::purge(transaction, before, limit)
            })
            .await
    }
}

#[async_trait]
impl ExecutionLogPort for SqliteCallStore {
    async fn accept(&self, batch: Vec<Execution>) -> BatchResult<AcceptOutcome> {
        let apart = self.calls_are_elsewhere();
        self.file
            .each("accept attempts", batch, false, move |transaction, item| {
                attempts::accept(transaction, item, apart)
            })
            .await
    }

    async fn claim(
        &self,
        query: WaitingQuery,
        now: Timestamp,
        _lease: Duration,
        start: &mut StartExecution<'_>,
    ) -> BatchResult<ClaimedExecution> {
        let _claiming = self.queues.waiting.claiming.lock().await;
        let (mut batch, mut chosen) = (Vec::new(), Vec::new());
        for execution in self.waiting(query).await? {
            if let Some(outbox) = start(&execution) {
                batch.push(Begin {
                    key: execution.key.clone(),
                    started_at: now,
                    outbox,
                });
                chosen.push(execution);
            }
        }
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let begun = self
            .file
            .each("start attempts", batch, false, attempts::begin)
            .await?;
        let mut claimed = Vec::with_capacity(chosen.len());
        for (execution, begun) in chosen.into_iter().zip(begun) {
            if begun.is_ok() {
                self.queues.waiting.remove(&execution);
            }
            match begun {
                Ok(true) => {
                    let token = self.attempt_claims.claim(execution.key.clone()).token;
                    claimed.push(Ok(ClaimedExecution { execution, token }));
                }
                Ok(false) => {}
                Err(error) => claimed.push(Err(error)),
            }
        }
        Ok(claimed)
    }

    async fn count_waiting(&self, limit: usize) -> Result<usize, PortError> {
        self.file
            .browse("count waiting attempts", move |connection| {
                reading::count(connection, call_sql::WAITING_ATTEMPTS, limit)
            })
            .await
    }

    async fn renew(
        &self,
        batch: Vec<ExecutionClaim>,
        _now: Timestamp,
        _lease: Duration,
    ) -> BatchResult<ExecutionOutcome> {
        let claims = &self.attempt_claims;
        let renew = |claim| {
            Ok(if claims.is_current(&claim) {
                ExecutionOutcome::Applied
            } else {
                ExecutionOutcome::NotThere
            })
        };
        Ok(batch.into_iter().map(renew).collect())
    }

    async fn take_over(
        &self,
        held: BTreeSet<ExecutionKey>,
        _now: Timestamp,
        _lease: Duration,
        limit: usize,
    ) -> Result<Vec<AbandonedExecution>, PortError> {
        let started = self.file.read("find started attempts", move |connection| {
            attempts::started(connection, &held, limit)
        });
        let take = |(key, correlation_id)| AbandonedExecution {
            claim: self.attempt_claims.claim(key),
            correlation_id,
        };
        Ok(started.await?.into_iter().map(take).collect())
    }

    async fn finish(&self, batch: Vec<FinishExecution>) -> BatchResult<ExecutionOutcome> {
        let of: Vec<ExecutionClaim> = batch.iter().map(|it| it.claim.clone()).collect();
        let claims = self.attempt_claims.clone();
        let finished = self
            .file
            .each("finish attempts", batch, false, move |transaction, item| {
                attempts::finish(transaction, item, &claims)
            })
            .await?;
        for (claim, outcome) in of.iter().zip(&finished) {
            if outcome.is_ok() {
                self.attempt_claims.end(claim);
            }
        }
        Ok(finished)
    }

    async fn entries(
        &self,
        call: TimerKey,
        limit: usize,
    ) -> Result<Vec<ExecutionEntry>, PortError> {
        self.file
            .browse("find the attempts of a call", move |connection| {
                attempts::entries(connection, &call, limit)
            })
            .await
    }

    async fn delete(&self, batch: Vec<DeletedCall>) -> BatchResult<()> {
        if !self.calls_are_elsewhere() {
            return Ok(batch.into_iter().map(|_| Ok(())).collect());
        }
        let operation = "delete the attempts of deleted calls";
        self.file
            .each(operation, batch, false, attempts::delete)
            .await
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError> {
        if !self.calls_are_elsewhere() {
            return Ok(0);
        }
        self.file
            .once("remove old attempts", move |transaction| {
                attempts::purge(transaction, before, limit)
            })
            .await
    }
}
