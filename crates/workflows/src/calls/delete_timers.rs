//! Deleting the timers of deleted calls.
//!
//! In one database a timer is deleted with its call; a timer store of its own learns it from the
//! event. A timer that was registered after the deletion belongs to no call, and is left alone.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{Answer, MessageHandler, PortError, TimerPersistencePort};

use super::CallPorts;
use crate::answers::{answer_of, no_answer};

/// Deletes the timers of deleted calls.
#[derive(Clone)]
pub struct DeleteCallTimers {
    timers: Arc<dyn TimerPersistencePort>,
}

impl DeleteCallTimers {
    /// On this store of timers.
    pub fn new(ports: &CallPorts) -> Self {
        Self::of(Arc::clone(&ports.timers))
    }

    /// On a store of timers whose calls are elsewhere.
    pub fn of(timers: Arc<dyn TimerPersistencePort>) -> Self {
        Self { timers }
    }

    async fn delete(&self, key: TimerKey, deleted_at: Timestamp) -> Result<Answer, PortError> {
        // A call's timer is registered with the time of its submission, which is before its deletion.
        let found = self.timers.find(key.clone()).await?;
        if found.is_some_and(|it| it.timer().registration.registered_at > deleted_at) {
            tracing::debug!(%key, "a timer was registered after the deletion of a call: it stays");
            return Ok(Answer::Done);
        }
        // With the time of the deletion, so that a command sent before it and delivered after it does
        // not recreate the timer.
        let deleted = self.timers.delete(vec![key], deleted_at).await?;
        let Some(outcome) = deleted.into_iter().next() else {
            return Ok(no_answer());
        };
        // A timer that fires at this moment does no harm: its call is deleted.
        let outcome = outcome?;
        tracing::debug!(?outcome, "the timer of a deleted call is deleted");
        Ok(Answer::Done)
    }
}

#[async_trait]
impl MessageHandler for DeleteCallTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = vec![Answer::Done; batch.len()];
        for (index, envelope) in batch.into_iter().enumerate() {
            let Message::ServiceCallDeleted(event) = envelope.message else {
                continue;
            };
            let key = TimerKey::new(event.tenant_id, event.service_call_id);
            answers[index] = match self.delete(key, event.deleted_at).await {
                Ok(answer) => answer,
                Err(error) => answer_of(&error),
            };
        }
        answers
    }
}
