//! Taking the commands for attempts: they are written down, and nothing else happens here.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::{CorrelationId, Message, MessageEnvelope};
use punctual_ports::{
    AcceptOutcome, Answer, Execution, ExecutionKey, ExecutionLogPort, MessageHandler,
};

use super::outcome::{answer_of, no_answer};
use super::{Bell, CallPorts};
use crate::metric_names;

/// Writes down which attempts are asked for.
#[derive(Clone)]
pub struct AcceptExecutions {
    executions: Arc<dyn ExecutionLogPort>,
    clock: Arc<dyn punctual_ports::ClockPort>,
    to_execute: Bell,
}

impl AcceptExecutions {
    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            executions: Arc::clone(&ports.executions),
            clock: Arc::clone(&ports.clock),
            to_execute: ports.to_execute.clone(),
        }
    }

    fn wish(&self, envelope: MessageEnvelope) -> Result<Execution, Answer> {
        let Message::StartExecution(command) = envelope.message else {
            return Err(Answer::Poison {
                reason: format!(
                    "{} is not a command of execution",
                    envelope.message.type_name()
                ),
            });
        };
        let nobody = || CorrelationId::from_uuid(envelope.id.as_uuid());
        Ok(Execution {
            key: ExecutionKey {
                call: command.key(),
                execution_id: envelope.id,
            },
            correlation_id: envelope.metadata.correlation_id.unwrap_or_else(nobody),
            timeout: command.timeout(),
            request: command.request_spec,
            accepted_at: self.clock.now(),
        })
    }
}

fn answer(outcome: AcceptOutcome) -> Answer {
    match outcome {
        AcceptOutcome::Accepted | AcceptOutcome::AlreadyThere => {}
        AcceptOutcome::AnotherAttempt => {
            metrics::counter!(metric_names::EXECUTIONS_REFUSED).increment(1);
            tracing::warn!("a second attempt of a call was asked for and is not made");
        }
        other => {
            metrics::counter!(metric_names::EXECUTIONS_REFUSED).increment(1);
            tracing::debug!(outcome = ?other, "an attempt is not made");
        }
    }
    Answer::Done
}

#[async_trait]
impl MessageHandler for AcceptExecutions {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut wanted = Vec::with_capacity(batch.len());
        let wishes: Vec<Result<(), Answer>> = batch
            .into_iter()
            .map(|envelope| self.wish(envelope).map(|one| wanted.push(one)))
            .collect();
        let accepted = self.executions.accept(wanted).await;
        self.to_execute.ring();
        let mut accepted = match accepted {
            Ok(accepted) => accepted.into_iter(),
            Err(error) => {
                tracing::warn!(%error, "attempts could not be written down and are left for later");
                let failed = answer_of(&error);
                return wishes
                    .into_iter()
                    .map(|wish| wish.err().unwrap_or_else(|| failed.clone()))
                    .collect();
            }
        };
        wishes
            .into_iter()
            .map(|wish| match wish {
                Ok(()) => match accepted.next() {
                    Some(Ok(outcome)) => answer(outcome),
                    Some(Err(error)) => answer_of(&error),
                    None => no_answer(),
                },
                Err(poison) => poison,
            })
            .collect()
    }
}
