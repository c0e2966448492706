//! Timers that belong to no call, in a store of their own beside those of calls.
//!
//! Orchestration has nothing to do when the timer of an unknown call is due, and says that it is done.
//! Where nobody else hears the timer, that would be a success without a receiver.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, TimerKey};
use punctual_ports::{Answer, MessageHandler, PortError, ServiceCallPersistencePort};

use super::CallPorts;
use super::outcome::{answer_of, no_answer};

/// Tells somebody of the due timers that belong to no call, and never belonged to one. Those of calls
/// are orchestration's: this handler is done with them.
pub struct ForwardStandaloneTimers {
    calls: Arc<dyn ServiceCallPersistencePort>,
    whom: Arc<dyn MessageHandler>,
}

impl ForwardStandaloneTimers {
    /// On these adapters, to this handler.
    pub fn new(ports: &CallPorts, whom: Arc<dyn MessageHandler>) -> Self {
        Self {
            calls: Arc::clone(&ports.calls),
            whom,
        }
    }

    async fn are_of_calls(
        &self,
        batch: &[MessageEnvelope],
    ) -> Result<BTreeMap<TimerKey, bool>, PortError> {
        let keys: Vec<TimerKey> = batch.iter().map(key).collect();
        // Not only calls that are there: the timer of a deleted one is nobody's.
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
                tracing::warn!(%error, "it is not known which timers are of calls: they are left for later");
                return vec![answer_of(&error); batch.len()];
            }
        };
        let is_other = |envelope: &MessageEnvelope| of_calls.get(&key(envelope)) == Some(&false);
        let others: Vec<MessageEnvelope> =
            batch.iter().filter(|it| is_other(it)).cloned().collect();
        let mut answers = if others.is_empty() {
            Vec::new().into_iter()
        } else {
            self.whom.handle(others).await.into_iter()
        };
        let answer = |envelope| {
            if is_other(envelope) {
                answers.next().unwrap_or_else(no_answer)
            } else {
                Answer::Done
            }
        };
        batch.iter().map(answer).collect()
    }
}

/// Takes nothing: a timer that nobody can be told of is kept as a dead letter, where somebody sees it.
pub struct RejectStandaloneTimers;

#[async_trait]
impl MessageHandler for RejectStandaloneTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let reason = "the timer belongs to no service call, and nobody else is told of timers here";
        let answer = Answer::Poison {
            reason: reason.to_owned(),
        };
        vec![answer; batch.len()]
    }
}
