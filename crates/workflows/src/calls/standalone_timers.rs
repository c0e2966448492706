//! Standalone timers: those that belong to no call, in a store of their own beside those of calls.
//!
//! Orchestration acknowledges the event of a timer without a call and does nothing. Without another
//! subscriber, the timer would be lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, TimerKey};
use punctual_ports::{Answer, MessageHandler, PortError, ServiceCallPersistencePort};

use super::CallPorts;
use crate::answers::{answer_of, no_answer};

/// Forwards the events of timers that never belonged to a call, and acknowledges those of calls, which
/// orchestration handles.
pub struct ForwardStandaloneTimers {
    calls: Arc<dyn ServiceCallPersistencePort>,
    handler: Arc<dyn MessageHandler>,
}

impl ForwardStandaloneTimers {
    /// On these adapters, to this handler.
    pub fn new(ports: &CallPorts, handler: Arc<dyn MessageHandler>) -> Self {
        Self {
            calls: Arc::clone(&ports.calls),
            handler,
        }
    }

    async fn are_of_calls(
        &self,
        batch: &[MessageEnvelope],
    ) -> Result<BTreeMap<TimerKey, bool>, PortError> {
        let keys: Vec<TimerKey> = batch.iter().map(key).collect();
        // Deleted calls too: their timers are not standalone.
        let known = self.calls.was_submitted(keys.clone()).await?;
        Ok(keys.into_iter().zip(known).collect())
    }
}

fn key(envelope: &MessageEnvelope) -> TimerKey {
    let message = &envelope.message;
    TimerKey::new(message.tenant_id().clone(), message.service_call_id())
}

#[async_trait]
impl MessageHandler for ForwardStandaloneTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let of_calls = match self.are_of_calls(&batch).await {
            Ok(of_calls) => of_calls,
            Err(error) => {
                tracing::warn!(%error, "the calls of timers cannot be read now: the timers are left for later");
                return vec![answer_of(&error); batch.len()];
            }
        };
        let is_standalone =
            |envelope: &MessageEnvelope| of_calls.get(&key(envelope)) == Some(&false);
        let standalone: Vec<MessageEnvelope> = batch
            .iter()
            .filter(|it| is_standalone(it))
            .cloned()
            .collect();
        let mut answers = if standalone.is_empty() {
            Vec::new().into_iter()
        } else {
            self.handler.handle(standalone).await.into_iter()
        };
        let answer = |envelope| {
            if is_standalone(envelope) {
                answers.next().unwrap_or_else(no_answer)
            } else {
                Answer::Done
            }
        };
        batch.iter().map(answer).collect()
    }
}

/// Rejects standalone timers: without a subscriber, each becomes a dead letter, which is visible.
pub struct RejectStandaloneTimers;

#[async_trait]
impl MessageHandler for RejectStandaloneTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let reason =
            "the timer belongs to no service call, and there is no other subscriber of timers";
        let answer = Answer::Poison {
            reason: reason.to_owned(),
        };
        vec![answer; batch.len()]
    }
}
