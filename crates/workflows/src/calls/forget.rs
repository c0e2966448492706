//! The timer's part in a deletion: the timer of a call that is gone goes too.
//!
//! Where both are in one database, it went with the call; where the timer has its own, this is how
//! it learns.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{Message, MessageEnvelope, TimerKey};
use punctual_ports::{Answer, MessageHandler, TimerPersistencePort};

use super::CallPorts;
use super::outcome::{answer_of, no_answer};

/// Removes the timers of deleted calls.
#[derive(Clone)]
pub struct ForgetDeletedCalls {
    timers: Arc<dyn TimerPersistencePort>,
}

impl ForgetDeletedCalls {
    /// On this store of timers.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            timers: Arc::clone(&ports.timers),
        }
    }
}

#[async_trait]
impl MessageHandler for ForgetDeletedCalls {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = vec![Answer::Done; batch.len()];
        for (at, envelope) in batch.into_iter().enumerate() {
            let Message::ServiceCallDeleted(event) = envelope.message else {
                continue;
            };
            // With the time of the deletion, so that a command which was sent before it and comes
            // after it brings nothing back.
            let key = TimerKey::new(event.tenant_id, event.service_call_id);
            let deleted = self.timers.delete(vec![key], event.deleted_at).await;
            answers[at] = match deleted.map(|deleted| deleted.into_iter().next()) {
                Ok(Some(Ok(outcome))) => {
                    // A timer that fires at this moment does no harm: its call is gone.
                    tracing::debug!(?outcome, "the timer of a deleted call is gone");
                    Answer::Done
                }
                Ok(Some(Err(error))) | Err(error) => answer_of(&error),
                Ok(None) => no_answer(),
            };
        }
        answers
    }
}
