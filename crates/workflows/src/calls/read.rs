//! Reading calls: one with its timer and attempts, or a page of them.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{TimerEntry, TimerKey};
use punctual_ports::{CallPage, CallPageQuery, ExecutionEntry, PageCursor, PortError};

use super::CallPorts;

/// A call with its timer and its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallView {
    /// The call.
    pub call: ServiceCall,
    /// Its timer, if there is one yet.
    pub timer: Option<TimerEntry>,
    /// Its attempts: one at most.
    pub attempts: Vec<ExecutionEntry>,
}

/// Reads calls. The request of a call that has not finished may have secrets: a view for people uses
/// `redacted`.
#[derive(Clone)]
pub struct ReadCalls {
    pub(super) ports: CallPorts,
}

/// Maximum number of attempts read; a call has at most one.
pub(super) const ATTEMPTS: usize = 10;

impl ReadCalls {
    /// Maximum number of calls in one page.
    pub const MAX_PAGE: usize = 1_000;

    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            ports: ports.clone(),
        }
    }

    /// One call with its timer and attempts.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn find(&self, key: TimerKey) -> Result<Option<CallView>, PortError> {
        let found = self.ports.calls.find(vec![key.clone()]).await?;
        let Some(stored) = found.into_iter().flatten().next() else {
            return Ok(None);
        };
        Ok(Some(CallView {
            call: stored.call,
            timer: self.ports.timers.find(key.clone()).await?,
            attempts: self.ports.executions.entries(key, ATTEMPTS).await?,
        }))
    }

    /// Number of attempts that wait for their turn, counted up to `limit`.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn waiting_attempts(&self, limit: usize) -> Result<usize, PortError> {
        self.ports.executions.count_waiting(limit).await
    }

    /// Which of these calls exist, in the order of the keys.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn are_there(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        let found = self.ports.calls.find(keys).await?;
        Ok(found.iter().map(Option::is_some).collect())
    }

    /// Which of these keys are of calls, or of deleted calls with a tombstone, in the order of the keys.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn were_submitted(&self, keys: Vec<TimerKey>) -> Result<Vec<bool>, PortError> {
        self.ports.calls.was_submitted(keys).await
    }

    /// Checks that a cursor is one that a page may have returned.
    ///
    /// # Errors
    /// `Rejected` if it is not.
    pub fn check_cursor(&self, cursor: &PageCursor) -> Result<(), PortError> {
        self.ports.calls.check_cursor(cursor)
    }

    /// A page of a tenant's calls, latest due first.
    ///
    /// # Errors
    /// `Rejected` for a cursor that no page returned; otherwise if the store cannot be read now.
    pub async fn page(&self, mut query: CallPageQuery) -> Result<CallPage, PortError> {
        query.limit = query.limit.clamp(1, Self::MAX_PAGE);
        self.ports.calls.page(query).await
    }
}
