//! Taking the commands for attempts: they are written down, and the attempts are made elsewhere.
//!
//! Whoever asks for an attempt that was asked for before has not heard of it. So the last that was
//! told of it is told again, or a call whose messages were lost on the way would run for ever.

use async_trait::async_trait;
use punctual_domain::{CorrelationId, Message, MessageEnvelope};
use punctual_ports::{
    AcceptOutcome, Answer, Execution, ExecutionKey, MessageHandler, PortError, PublishOutcome,
};

use super::CallPorts;
use super::attempt::last_told;
use super::outcome::{answer_of, no_answer};
use super::read::ATTEMPTS;
use crate::metric_names;

/// Writes down which attempts are asked for.
#[derive(Clone)]
pub struct AcceptExecutions {
    ports: CallPorts,
}

/// An attempt that was asked for before, and where in the batch it is asked for again.
struct AskedAgain {
    at: usize,
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
            accepted_at: self.ports.clock.now(),
        })
    }

    /// Tells again what was told of attempts, past the outbox: nothing changes that would have to be
    /// stored with it, and if it fails, the command comes again.
    async fn tell_again(&self, asked: Vec<AskedAgain>, answers: &mut [Answer]) {
        let mut places = Vec::new();
        let mut messages = Vec::new();
        for one in asked {
            let AskedAgain {
                at,
                key,
                correlation_id,
            } = one;
            let entries = self.ports.executions.entries(key.call.clone(), ATTEMPTS);
            let entries = match entries.await {
                Ok(entries) => entries,
                Err(error) => {
                    answers[at] = answer_of(&error);
                    continue;
                }
            };
            let (now, ids) = (self.ports.clock.now(), self.ports.ids.as_ref());
            let attempt = entries.into_iter().find(|entry| entry.key == key);
            let message = attempt.and_then(|it| last_told(it, correlation_id, now, ids));
            if let Some(message) = message {
                places.push(at);
                messages.push(message);
            }
        }
        if messages.is_empty() {
            return;
        }
        let published = self.ports.bus.publish(messages).await;
        let mut told = published.map(Vec::into_iter);
        for at in places {
            answers[at] = match &mut told {
                Ok(told) => told.next().map_or_else(no_answer, answer_of_telling),
                Err(error) => answer_of(error),
            };
        }
    }
}

fn answer_of_telling(told: Result<PublishOutcome, PortError>) -> Answer {
    match told {
        // Refused: nobody will ever understand it, and to ask again would not help.
        Ok(_) => Answer::Done,
        Err(error) => answer_of(&error),
    }
}

fn count_refusal(outcome: AcceptOutcome) {
    match outcome {
        AcceptOutcome::Accepted | AcceptOutcome::AlreadyThere => return,
        AcceptOutcome::AnotherAttempt => {
            tracing::warn!("a second attempt of a call was asked for and is not made");
        }
        other => tracing::debug!(outcome = ?other, "an attempt is not made"),
    }
    metrics::counter!(metric_names::EXECUTIONS_REFUSED).increment(1);
}

#[async_trait]
impl MessageHandler for AcceptExecutions {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut wanted = Vec::with_capacity(batch.len());
        let mut answers = vec![no_answer(); batch.len()];
        let mut wishes = Vec::with_capacity(batch.len());
        for (at, envelope) in batch.into_iter().enumerate() {
            match self.wish(envelope) {
                Ok(execution) => {
                    let (key, correlation_id) = (execution.key.clone(), execution.correlation_id);
                    wishes.push(AskedAgain {
                        at,
                        key,
                        correlation_id,
                    });
                    wanted.push(execution);
                }
                Err(poison) => answers[at] = poison,
            }
        }
        let accepted = self.ports.executions.accept(wanted).await;
        self.ports.to_execute.notify();
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "attempts could not be written down and are left for later");
                for wish in wishes {
                    answers[wish.at] = answer_of(&error);
                }
                return answers;
            }
        };
        let mut asked_again = Vec::new();
        for (wish, outcome) in wishes.into_iter().zip(accepted) {
            match outcome {
                Ok(outcome) => {
                    count_refusal(outcome);
                    answers[wish.at] = Answer::Done;
                    if outcome == AcceptOutcome::AlreadyThere {
                        asked_again.push(wish);
                    }
                }
                Err(error) => answers[wish.at] = answer_of(&error),
            }
        }
        self.tell_again(asked_again, &mut answers).await;
        answers
    }
}
