//! Accepting the commands for attempts: they are stored, and executed by `ExecuteCalls`.
//!
//! A redispatched command means that orchestration has received no event of the attempt. So its last
//! event is published again, or a call whose messages were lost would run for ever.
//!
//! Where attempts are apart from their calls, they are forgotten by their own age. A command that may be older
//! than what is remembered is not carried out: its attempt may have been made and forgotten.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::{ErrorKind, ErrorMeta, Outcome};
use punctual_domain::{CorrelationId, Message, MessageEnvelope};
use punctual_ports::{
    AcceptOutcome, Answer, Execution, ExecutionKey, MessageHandler, PortError, PublishOutcome,
};

use super::CallPorts;
use super::attempt::{finished_envelope, last_event};
use super::read::ATTEMPTS;
use crate::answers::{answer_of, no_answer, unexpected};
use crate::metric_names;

/// Stores commands for attempts.
#[derive(Clone)]
pub struct AcceptExecutions {
    ports: CallPorts,
    /// After which time attempts may be forgotten; `None` if they are kept as long as their calls.
    forgets_after: Option<Duration>,
}

const FORGOTTEN: &str = "the attempt was dispatched so long ago that it would be forgotten if it was made: whether the target got the request is not known";

/// A command of a batch, by its index.
struct Command {
    index: usize,
    key: ExecutionKey,
    correlation_id: CorrelationId,
    is_forgotten: bool,
}

impl AcceptExecutions {
    /// On these adapters.
    pub fn new(ports: &CallPorts) -> Self {
        Self {
            ports: ports.clone(),
            forgets_after: None,
        }
    }

    /// Carries out no command whose attempt was first dispatched this long ago, but answers that its outcome
    /// is not known, unless it is: attempts older than that may have been purged.
    #[must_use]
    pub const fn forgetting_after(mut self, time: Duration) -> Self {
        self.forgets_after = Some(time);
        self
    }

    /// Whether an attempt may have been made and forgotten. Only ids that say when they were drawn tell.
    fn may_be_forgotten(&self, key: &ExecutionKey) -> bool {
        let drawn_at = key.execution_id.drawn_at();
        let age = drawn_at.map(|at| self.ports.clock.now().since(at));
        age.zip(self.forgets_after)
            .is_some_and(|(age, limit)| age > limit)
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
            let event = match attempt {
                Some(attempt) => last_event(attempt, command.correlation_id, now, ids),
                None if command.is_forgotten => {
                    let failure = ErrorMeta::new(ErrorKind::Interrupted, FORGOTTEN);
                    let outcome = Outcome::Failed(failure);
                    let (key, correlation_id) = (&command.key, command.correlation_id);
                    Some(finished_envelope(key, correlation_id, outcome, now, ids))
                }
                None => None,
            };
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

fn refuse_forgotten(key: &ExecutionKey) {
    tracing::warn!(key = %key.call, "a command is older than what is remembered of attempts, and is not carried out");
    metrics::counter!(metric_names::EXECUTIONS_REFUSED).increment(1);
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
        let mut known = Vec::new();
        for (index, envelope) in batch.into_iter().enumerate() {
            match self.execution(envelope) {
                Ok(execution) => {
                    let command = Command {
                        index,
                        key: execution.key.clone(),
                        correlation_id: execution.correlation_id,
                        is_forgotten: self.may_be_forgotten(&execution.key),
                    };
                    if command.is_forgotten {
                        refuse_forgotten(&command.key);
                        answers[index] = Answer::Done;
                        known.push(command);
                    } else {
                        commands.push(command);
                        executions.push(execution);
                    }
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
                for command in commands.into_iter().chain(known) {
                    answers[command.index] = answer_of(&error);
                }
                return answers;
            }
        };
        for (command, outcome) in commands.into_iter().zip(accepted) {
            match outcome {
                Ok(outcome) => {
                    count_refusal(outcome);
                    answers[command.index] = Answer::Done;
                    if outcome == AcceptOutcome::AlreadyThere {
                        known.push(command);
                    }
                }
                Err(error) => answers[command.index] = answer_of(&error),
            }
        }
        self.republish(known, &mut answers).await;
        answers
    }
}
