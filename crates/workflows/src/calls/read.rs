//! Looking at calls: one with all that belongs to it, or a page of them.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{TimerEntry, TimerKey};
use punctual_ports::{CallPage, CallPageQuery, ExecutionEntry, PortError};

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

/// Shows calls. What it gives may have secrets in the request of a call that has not finished:
/// whoever shows it to people shows what is left by `redacted`.
#[derive(Clone)]
pub struct ReadCalls {
    pub(super) ports: CallPorts,
}

/// More attempts than a call can have.
pub(super) const ATTEMPTS: usize = 10;

impl ReadCalls {
    /// The most calls that one page has.
    pub const MAX_PAGE: usize = 1_000;

    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            ports: ports.clone(),
        }
    }

    /// One call with all that belongs to it.
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

    /// Some calls of a tenant, latest due first.
    ///
    /// # Errors
    /// `Rejected` for a cursor that no page gave; otherwise if the store cannot be read now.
    pub async fn page(&self, mut query: CallPageQuery) -> Result<CallPage, PortError> {
        query.limit = query.limit.clamp(1, Self::MAX_PAGE);
        self.ports.calls.page(query).await
    }
}
