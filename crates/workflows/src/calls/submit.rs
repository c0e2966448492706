//! Submitting and deleting calls, for callers and for commands.

use async_trait::async_trait;
use punctual_domain::service_call::{CallDetails, CallStatus, Redaction, ServiceCall, Submission};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, ServiceCallId, TimerKey,
};
use punctual_ports::{
    Answer, BatchResult, CallDeletion, ChangeOutcome, Fingerprint, MessageHandler, NewCall,
    PortError, PortErrorKind, SubmitOutcome, only_answer,
};
use sha2::{Digest, Sha256};

use super::envelopes::wrap;
use super::{CallPorts, CallSettings};
use crate::answers::{answer_of, no_answer, unexpected};
use crate::metric_names;

/// Maximum number of tries to delete a call that others change at the same time.
const TRIES: usize = 8;

/// Submits and deletes calls.
#[derive(Clone)]
pub struct SubmitCalls {
    ports: CallPorts,
    settings: CallSettings,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeleteCallOutcome {
    /// The call is deleted, and its request will not be made.
    Deleted,
    /// It is no longer scheduled, and was left alone.
    TooLate(CallStatus),
    /// There is no such call.
    NotFound,
}

impl SubmitCalls {
    /// On these adapters.
    pub fn new(ports: &CallPorts, settings: CallSettings) -> Self {
        Self {
            ports: ports.clone(),
            settings,
        }
    }

    /// Submits a call. After `Accepted` or `Repeated` it is durable: its request will be made once, and it
    /// will have one outcome.
    ///
    /// # Errors
    /// If the store cannot commit it now; it may be stored or not, and the same submission with its id or
    /// key can be sent again.
    pub async fn submit(
        &self,
        submission: Submission,
        correlation_id: Option<CorrelationId>,
    ) -> Result<SubmitOutcome, PortError> {
        let command_id = EnvelopeId::from_uuid(self.ports.ids.next_id());
        let new = self.new_call(submission, correlation_id, command_id);
        only_answer(self.store(vec![new]).await, "submit a call")
    }

    /// Deletes a call whose due time was not reached yet.
    ///
    /// # Errors
    /// If the store cannot be used now.
    pub async fn delete(
        &self,
        key: TimerKey,
        correlation_id: Option<CorrelationId>,
    ) -> Result<DeleteCallOutcome, PortError> {
        let command_id = EnvelopeId::from_uuid(self.ports.ids.next_id());
        self.delete_because(key, correlation_id, command_id).await
    }

    async fn delete_because(
        &self,
        key: TimerKey,
        correlation_id: Option<CorrelationId>,
        command_id: EnvelopeId,
    ) -> Result<DeleteCallOutcome, PortError> {
        for _ in 0..TRIES {
            let found = self.ports.calls.find(vec![key.clone()]).await?;
            let Some(stored) = found.into_iter().flatten().next() else {
                return Ok(DeleteCallOutcome::NotFound);
            };
            let ServiceCall::Scheduled(call) = stored.call else {
                return Ok(DeleteCallOutcome::TooLate(stored.call.status()));
            };
            let now = self.ports.clock.now();
            let event = call.deletion(now, command_id);
            let correlation_id = correlation_id.unwrap_or(call.details.correlation_id);
            let deletion = CallDeletion {
                key: key.clone(),
                expected_version: stored.version,
                deleted_at: now,
                outbox: wrap(vec![event], correlation_id, now, self.ports.ids.as_ref()),
            };
            let deleted = self.ports.calls.delete(vec![deletion]).await;
            self.ports.to_publish.notify();
            match deleted?.into_iter().next() {
                Some(Ok(ChangeOutcome::Changed)) => {
                    metrics::counter!(metric_names::CALLS_DELETED).increment(1);
                    return Ok(DeleteCallOutcome::Deleted);
                }
                Some(Err(error)) => return Err(error),
                _ => {}
            }
        }
        let reason = "it changes all the time";
        Err(PortError::new(PortErrorKind::Busy, "delete a call", reason))
    }

    fn new_call(
        &self,
        submission: Submission,
        correlation_id: Option<CorrelationId>,
        command_id: EnvelopeId,
    ) -> NewCall {
        let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
        let fingerprint = Fingerprint(Sha256::digest(submission.canonical()).into());
        let id_was_given = submission.has_chosen_id();
        let new_id = || ServiceCallId::from_uuid(ids.next_id());
        let details = CallDetails {
            key: TimerKey::new(
                submission.tenant_id,
                submission.service_call_id.unwrap_or_else(new_id),
            ),
            correlation_id: correlation_id
                .unwrap_or_else(|| CorrelationId::from_uuid(ids.next_id())),
            command_id,
            name: submission
                .name
                .redacted(&Redaction::of(&submission.request)),
            tags: submission.tags,
            submitted_at: now,
            due_at: submission.due_at,
            request: submission.request,
        };
        let correlation_id = details.correlation_id;
        let execution_id = EnvelopeId::from_uuid(ids.next_id());
        let step = details.accept(execution_id, self.settings.timeout);
        NewCall {
            call: step.call,
            id_was_given,
            idempotency_key: submission.idempotency_key,
            fingerprint,
            outbox: wrap(step.outgoing, correlation_id, now, ids),
            listeners: self.ports.listeners,
        }
    }

    async fn store(&self, batch: Vec<NewCall>) -> BatchResult<SubmitOutcome> {
        let stored = self.ports.calls.submit(batch).await;
        // Also after an error, which may hide a success.
        self.ports.to_publish.notify();
        let stored = stored?;
        let accepted = stored
            .iter()
            .filter(|one| matches!(one, Ok(SubmitOutcome::Accepted(_))))
            .count();
        metrics::counter!(metric_names::CALLS_SUBMITTED).increment(accepted as u64);
        Ok(stored)
    }

    /// Stores consecutive submissions in one batch.
    async fn submit_all(&self, batch: Vec<NewCall>) -> Vec<Answer> {
        let length = batch.len();
        let mut answers: Vec<Answer> = match self.store(batch).await {
            Ok(stored) => stored
                .into_iter()
                .map(|one| match one {
                    Ok(SubmitOutcome::Conflict { field, by }) => Answer::Poison {
                        reason: format!(
                            "another call was submitted under the same {field:?}: {by}"
                        ),
                    },
                    Ok(_) => Answer::Done,
                    Err(error) => answer_of(&error),
                })
                .collect(),
            Err(error) => vec![answer_of(&error); length],
        };
        answers.resize_with(length, no_answer);
        answers
    }
}

#[async_trait]
impl MessageHandler for SubmitCalls {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut waiting = Vec::new();
        for envelope in batch {
            let (id, correlation_id) = (envelope.id, envelope.metadata.correlation_id);
            match envelope.message {
                Message::SubmitServiceCall(command) => {
                    waiting.push(self.new_call(command.into(), correlation_id, id));
                }
                other => {
                    // In order: a call submitted before can be deleted.
                    answers.append(&mut self.submit_all(std::mem::take(&mut waiting)).await);
                    answers.push(match other {
                        Message::DeleteServiceCall(command) => {
                            match self.delete_because(command.key(), correlation_id, id).await {
                                Ok(outcome) => {
                                    tracing::debug!(?outcome, "a deletion was carried out");
                                    Answer::Done
                                }
                                Err(error) => answer_of(&error),
                            }
                        }
                        other => unexpected(&other, "a command of orchestration"),
                    });
                }
            }
        }
        answers.append(&mut self.submit_all(waiting).await);
        answers
    }
}
