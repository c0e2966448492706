//! Deleting the attempts of deleted calls.
//!
//! In one database an attempt is deleted with its call; a store of attempts alone learns it from the event,
//! and remembers it for commands that come later.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{Message, MessageEnvelope, TimerKey};
use punctual_ports::{Answer, DeletedCall, ExecutionLogPort, MessageHandler};

use super::CallPorts;
use crate::answers::{answer_of, no_answer};

/// Deletes the attempts of deleted calls.
#[derive(Clone)]
pub struct DeleteCallAttempts {
    executions: Arc<dyn ExecutionLogPort>,
}

impl DeleteCallAttempts {
    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            executions: Arc::clone(&ports.executions),
        }
    }
}

#[async_trait]
impl MessageHandler for DeleteCallAttempts {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = vec![Answer::Done; batch.len()];
        let (mut indexes, mut deleted) = (Vec::new(), Vec::new());
        for (index, envelope) in batch.into_iter().enumerate() {
            if let Message::ServiceCallDeleted(event) = envelope.message {
                indexes.push(index);
                deleted.push(DeletedCall {
                    key: TimerKey::new(event.tenant_id, event.service_call_id),
                    deleted_at: event.deleted_at,
                });
            }
        }
        if deleted.is_empty() {
            return answers;
        }
        let forgotten = self.executions.delete(deleted).await;
        let mut forgotten = forgotten.map(Vec::into_iter);
        for index in indexes {
            answers[index] = match &mut forgotten {
                Ok(forgotten) => match forgotten.next() {
                    Some(Ok(())) => Answer::Done,
                    Some(Err(error)) => answer_of(&error),
                    None => no_answer(),
                },
                Err(error) => answer_of(error),
            };
        }
        answers
    }
}
