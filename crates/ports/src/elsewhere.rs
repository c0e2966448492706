//! The ports of a module whose tables are in another database.
//!
//! A process that runs some of the modules has a database for each of its own, and none for the others. What
//! needs their ports all the same, such as the view of a call, finds nothing in them; what would write to
//! them is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::{ServiceCall, SubmitOutcome};
use punctual_domain::{
    CorrelationId, DeleteOutcome, MarkOutcome, ScheduledTimer, TenantId, TimerEntry, TimerKey,
    Timestamp,
};

use crate::{
    Backlog, BatchResult, CallChange, CallDeletion, CallPage, CallPageQuery, ChangeOutcome,
    ClaimBatch, ClaimOutcome, ClaimRef, DeadLetterClaim, FiredCursor, FiredPage, FiredTimer,
    NewCall, PageCursor, PortError, PortErrorKind, RetryLater, SaveOutcome, SaveTimer,
    ServiceCallPersistencePort, StoredCall, StuckCalls, TimerPage, TimerPageQuery,
    TimerPersistencePort, TimerQueuePort,
};

/// The timers of a database that has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimersElsewhere;

/// The service calls of a database that has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallsElsewhere;

fn no_timers<T>(operation: &'static str) -> Result<T, PortError> {
    let reason = "the timers are in another database: run the module timer on that one";
    Err(PortError::new(PortErrorKind::Rejected, operation, reason))
}

fn no_calls<T>(operation: &'static str) -> Result<T, PortError> {
    let reason =
        "the service calls are in another database: run the module orchestration on that one";
    Err(PortError::new(PortErrorKind::Rejected, operation, reason))
}

#[async_trait]
impl TimerPersistencePort for TimersElsewhere {
    async fn save(&self, _: Vec<SaveTimer>, _: Timestamp) -> BatchResult<SaveOutcome> {
        no_timers("save timers")
    }

    async fn find(&self, _: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        Ok(None)
    }

    async fn find_due(
        &self,
        _: TenantId,
        _: Timestamp,
        _: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        Ok(Vec::new())
    }

    async fn mark_fired(&self, _: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        no_timers("mark timers as reached")
    }

    async fn delete(&self, _: Vec<TimerKey>, _: Timestamp) -> BatchResult<DeleteOutcome> {
        no_timers("delete timers")
    }

    async fn find_by_correlation(
        &self,
        _: CorrelationId,
        _: Option<TimerKey>,
        _: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        Ok(Vec::new())
    }

    async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        if query.after.is_some() {
            return Err(PageCursor::rejection("list timers"));
        }
        Ok(TimerPage {
            timers: Vec::new(),
            next: None,
        })
    }

    async fn purge(&self, _: Timestamp, _: usize) -> Result<usize, PortError> {
        Ok(0)
    }
}

#[async_trait]
impl TimerQueuePort for TimersElsewhere {
    async fn claim_due_except(
        &self,
        _: Timestamp,
        _: usize,
        _: Duration,
        _: BTreeSet<TenantId>,
    ) -> Result<ClaimBatch, PortError> {
        no_timers("claim due timers")
    }

    async fn retry_later(&self, _: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        no_timers("retry timers later")
    }

    async fn release(&self, _: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        no_timers("release timers")
    }

    async fn dead_letter(&self, _: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        no_timers("dead-letter timers")
    }

    async fn renew(
        &self,
        _: Vec<ClaimRef>,
        _: Timestamp,
        _: Duration,
    ) -> BatchResult<ClaimOutcome> {
        no_timers("renew the leases of timers")
    }

    async fn backlog(&self, _: Timestamp, _: usize) -> Result<Backlog, PortError> {
        Ok(Backlog::default())
    }

    async fn fired_since(
        &self,
        _: Timestamp,
        _: Option<FiredCursor>,
        _: usize,
    ) -> Result<FiredPage, PortError> {
        Ok(FiredPage {
            timers: Vec::new(),
            next: None,
        })
    }
}

#[async_trait]
impl ServiceCallPersistencePort for CallsElsewhere {
    async fn submit(&self, _: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        no_calls("submit service calls")
    }

    async fn find(&self, keys: Vec<TimerKey>) -> Result<Vec<Option<StoredCall>>, PortError> {
        Ok(keys.iter().map(|_| None).collect())
    }

    async fn was_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        Ok(vec![false; keys.len()])
    }

    async fn change(&self, _: Vec<CallChange>) -> BatchResult<ChangeOutcome> {
        no_calls("change service calls")
    }

    async fn delete(&self, _: Vec<CallDeletion>) -> BatchResult<ChangeOutcome> {
        no_calls("delete service calls")
    }

    async fn page(&self, query: CallPageQuery) -> Result<CallPage, PortError> {
        if let Some(cursor) = &query.after {
            self.check_cursor(cursor)?;
        }
        Ok(CallPage {
            calls: Vec::new(),
            next: None,
        })
    }

    fn check_cursor(&self, _: &PageCursor) -> Result<(), PortError> {
        Err(PageCursor::rejection("list service calls"))
    }

    async fn find_by_correlation(
        &self,
        _: CorrelationId,
        _: Option<TimerKey>,
        _: usize,
    ) -> Result<Vec<ServiceCall>, PortError> {
        Ok(Vec::new())
    }

    async fn find_stuck(&self, now: Timestamp, _: usize) -> Result<StuckCalls, PortError> {
        Ok(StuckCalls {
            as_of: now,
            calls: Vec::new(),
            next: None,
        })
    }

    async fn purge(&self, _: Timestamp, _: Timestamp, _: usize) -> Result<usize, PortError> {
        Ok(0)
    }
}
