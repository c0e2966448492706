//! The timer's part in a deletion: the timer of a call that is gone goes too.
//!
//! Where both are in one database, it went with the call; where the timer has its own, this is how
//! it learns. A timer that was registered after the deletion is somebody else's, and is left alone.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{Answer, MessageHandler, PortError, TimerPersistencePort};

use super::CallPorts;
use super::outcome::{answer_of, no_answer};

/// Removes the timers of deleted calls.
#[derive(Clone)]
pub struct DeleteCallTimers {
    timers: Arc<dyn TimerPersistencePort>,
}

impl DeleteCallTimers {
    /// On this store of timers.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            timers: Arc::clone(&ports.timers),
        }
    }

    async fn forget(&self, key: TimerKey, deleted_at: Timestamp) -> Result<Answer, PortError> {
        // A call's timer is registered with the time of its submission, which is before its deletion.
        let found = self.timers.find(key.clone()).await?;
        if found.is_some_and(|it| it.timer().registration.registered_at > deleted_at) {
            tracing::debug!(%key, "a timer was registered after the deletion of a call: it stays");
            return Ok(Answer::Done);
        }
        // With the time of the deletion, so that a command which was sent before it and comes
        // after it brings nothing back.
        let deleted = self.timers.delete(vec![key], deleted_at).await?;
        let Some(outcome) = deleted.into_iter().next() else {
            return Ok(no_answer());
        };
        // A timer that fires at this moment does no harm: its call is gone.
        let outcome = outcome?;
        tracing::debug!(?outcome, "the timer of a deleted call is gone");
        Ok(Answer::Done)
    }
}

#[async_trait]
impl MessageHandler for DeleteCallTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = vec![Answer::Done; batch.len()];
        for (at, envelope) in batch.into_iter().enumerate() {
            let Message::ServiceCallDeleted(event) = envelope.message else {
                continue;
            };
            let key = TimerKey::new(event.tenant_id, event.service_call_id);
            answers[at] = match self.forget(key, event.deleted_at).await {
                Ok(answer) => answer,
                Err(error) => answer_of(&error),
            };
        }
        answers
    }
}
