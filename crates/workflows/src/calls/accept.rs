//! Accepting the commands for attempts: they are stored, and executed by `ExecuteCalls`.
//!
//! A redispatched command means that orchestration has received no event of the attempt. So its last
//! event is published again, or a call whose messages were lost would run for ever.

use async_trait::async_trait;
use punctual_domain::{CorrelationId, Message, MessageEnvelope};
use punctual_ports::{
    AcceptOutcome, Answer, Execution, ExecutionKey, MessageHandler, PortError, PublishOutcome,
};

use super::CallPorts;
use super::attempt::last_event;
use super::read::ATTEMPTS;
use crate::answers::{answer_of, no_answer, unexpected};
use crate::metric_names;

/// Stores commands for attempts.
#[derive(Clone)]
pub struct AcceptExecutions {
    ports: CallPorts,
}

/// A command of a batch, by its index.
struct Command {
    index: usize,
    key: ExecutionKey,
    correlation_id: CorrelationId,
}

impl AcceptExecutions {
    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            ports: ports.clone(),
        }
    }

    fn execution(&self, envelope: MessageEnvelope) -> Result<Execution, Answer> {
        let Message::StartExecution(command) = envelope.message else {
            return Err(unexpected(&envelope.message, "a command of execution"));
        };
        let own_id = || CorrelationId::from_uuid(envelope.id.as_uuid());
        Ok(Execution {
            key: ExecutionKey {
                call: command.key(),
                execution_id: envelope.id,
            },
            correlation_id: envelope.metadata.correlation_id.unwrap_or_else(own_id),
            timeout: command.timeout(),
            request: command.request_spec,
            accepted_at: self.ports.clock.now(),
        })
    }

    /// Publishes the last event of each attempt again, without the outbox: no change has to be
    /// committed with it, and after a failure the command is redelivered.
    async fn republish(&self, commands: Vec<Command>, answers: &mut [Answer]) {
        let (mut indexes, mut messages) = (Vec::new(), Vec::new());
        for command in commands {
            let call = command.key.call.clone();
            let entries = match self.ports.executions.entries(call, ATTEMPTS).await {
                Ok(entries) => entries,
                Err(error) => {
                    answers[command.index] = answer_of(&error);
                    continue;
                }
            };
            let (now, ids) = (self.ports.clock.now(), self.ports.ids.as_ref());
            let attempt = entries.into_iter().find(|it| it.key == command.key);
            let event = attempt.and_then(|it| last_event(it, command.correlation_id, now, ids));
            if let Some(event) = event {
                indexes.push(command.index);
                messages.push(event);
            }
        }
        if messages.is_empty() {
            return;
        }
        let published = self.ports.bus.publish(messages).await;
        let mut published = published.map(Vec::into_iter);
        for index in indexes {
            answers[index] = match &mut published {
                Ok(published) => published.next().map_or_else(no_answer, answer_of_publish),
                Err(error) => answer_of(error),
            };
        }
    }
}

fn answer_of_publish(published: Result<PublishOutcome, PortError>) -> Answer {
    match published {
        // A refused event can never be handled, and a redelivery would not help.
        Ok(_) => Answer::Done,
        Err(error) => answer_of(&error),
    }
}

fn count_refusal(outcome: AcceptOutcome) {
    match outcome {
        AcceptOutcome::Accepted | AcceptOutcome::AlreadyThere => return,
        AcceptOutcome::AnotherAttempt => {
            tracing::warn!("a second attempt of a call was dispatched and is refused");
        }
        other => tracing::debug!(outcome = ?other, "an attempt is refused"),
    }
    metrics::counter!(metric_names::EXECUTIONS_REFUSED).increment(1);
}

#[async_trait]
impl MessageHandler for AcceptExecutions {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut executions = Vec::with_capacity(batch.len());
        let mut answers = vec![no_answer(); batch.len()];
        let mut commands = Vec::with_capacity(batch.len());
        for (index, envelope) in batch.into_iter().enumerate() {
            match self.execution(envelope) {
                Ok(execution) => {
                    commands.push(Command {
                        index,
                        key: execution.key.clone(),
                        correlation_id: execution.correlation_id,
                    });
                    executions.push(execution);
                }
                Err(poison) => answers[index] = poison,
            }
        }
        let accepted = self.ports.executions.accept(executions).await;
        self.ports.to_execute.notify();
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "attempts could not be stored and are left for later");
                for command in commands {
                    answers[command.index] = answer_of(&error);
                }
                return answers;
            }
        };
        let mut redispatched = Vec::new();
        for (command, outcome) in commands.into_iter().zip(accepted) {
            match outcome {
                Ok(outcome) => {
                    count_refusal(outcome);
                    answers[command.index] = Answer::Done;
                    if outcome == AcceptOutcome::AlreadyThere {
                        redispatched.push(command);
                    }
                }
                Err(error) => answers[command.index] = answer_of(&error),
            }
        }
        self.republish(redispatched, &mut answers).await;
        answers
    }
}
