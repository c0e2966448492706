//! Scheduling timers, for callers and for commands from a bus.

use std::collections::VecDeque;

use async_trait::async_trait;
use futures_util::FutureExt;
use punctual_domain::{
    CorrelationId, Message, MessageEnvelope, ScheduleOrigin, TimerData, TimerKey, Timestamp,
};
use punctual_ports::{
    Answer, BatchResult, DeleteOutcome, MessageHandler, PortError, PortErrorKind, SaveOutcome,
    SaveTimer,
};

use crate::answers::{answer_of, no_answer, unexpected};
use crate::detach_on_drop::DetachOnDrop;
use crate::{TimerPorts, metric_names};

/// Maximum number of timers in a save that is completed after its caller has dropped it.
const MAX_DETACHED_TIMERS: usize = 1_024;

/// A timer to schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerRequest {
    /// Which timer.
    pub key: TimerKey,
    /// When it fires; in the past means now.
    pub due_at: Timestamp,
    /// The request that it belongs to; a new one by default.
    pub correlation_id: Option<CorrelationId>,
    /// Data returned with the firing.
    pub data: Option<TimerData>,
}

impl TimerRequest {
    /// A timer with nothing but a due time.
    pub const fn at(key: TimerKey, due_at: Timestamp) -> Self {
        Self {
            key,
            due_at,
            correlation_id: None,
            data: None,
        }
    }
}

/// Stores timers and wakes the worker for them.
#[derive(Clone)]
pub struct ScheduleTimers {
    ports: TimerPorts,
}

impl ScheduleTimers {
    /// Maximum number of timers in one call.
    pub const MAX_BATCH: usize = 10_000;

    /// Schedules on these adapters.
    pub fn new(ports: &TimerPorts) -> Self {
        Self {
            ports: ports.clone(),
        }
    }

    /// Schedules timers, or moves them if they have not fired yet.
    ///
    /// Each is answered with `Created`, `Rescheduled` or `AlreadyReached`. After one of the first two,
    /// the timer is durable and will fire. If the future is dropped, a save that the store has started
    /// is completed, and the timers fire on time if there are at most 1 024 and the worker runs; of
    /// more, a part may be stored, and fire late by a polling interval.
    pub async fn schedule(&self, batch: Vec<TimerRequest>) -> BatchResult<SaveOutcome> {
        self.save_requests(batch, ScheduleOrigin::Direct).await
    }

    /// Schedules timers, also those that have fired: they will fire again.
    pub async fn replace(&self, batch: Vec<TimerRequest>) -> BatchResult<SaveOutcome> {
        self.save_requests(batch, ScheduleOrigin::Replacement).await
    }

    /// Schedules timers that do not exist; leaves scheduled and firing ones unchanged.
    ///
    /// Each is answered with `Created`, `Unchanged` or `AlreadyReached`.
    pub async fn ensure(&self, batch: Vec<TimerRequest>) -> BatchResult<SaveOutcome> {
        self.save_requests(batch, ScheduleOrigin::Ensure).await
    }

    /// Deletes timers that have not fired and are not firing.
    pub async fn cancel(&self, keys: Vec<TimerKey>) -> BatchResult<DeleteOutcome> {
        check_length(keys.len(), "cancel timers")?;
        let now = self.ports.clock.now();
        self.ports.persistence.delete(keys, now).await
    }

    async fn save_requests(
        &self,
        batch: Vec<TimerRequest>,
        origin: ScheduleOrigin,
    ) -> BatchResult<SaveOutcome> {
        check_length(batch.len(), "schedule timers")?;
        let batch = batch
            .into_iter()
            .map(|timer| SaveTimer {
                key: timer.key,
                correlation_id: self.correlation(timer.correlation_id),
                due_at: timer.due_at,
                data: timer.data,
                origin,
            })
            .collect();
        self.save(batch).await
    }

    /// Stores timers, and only then wakes the worker, also if the caller drops the future.
    ///
    /// A store may write a large batch in parts. Parts that it has not started when the caller drops
    /// the future must not be written: they could undo the caller's next request.
    async fn save(&self, batch: Vec<SaveTimer>) -> BatchResult<SaveOutcome> {
        let (now, length) = (self.ports.clock.now(), batch.len());
        let (persistence, wake) = (self.ports.persistence.clone(), self.ports.wake.clone());
        let saving = async move {
            let dues: Vec<Timestamp> = batch.iter().map(|timer| timer.due_at).collect();
            let saved = persistence.save(batch, now).await;
            if let Some(earliest) = earliest_stored(&dues, &saved) {
                wake.due_at(earliest);
            }
            saved
        };
        if length > MAX_DETACHED_TIMERS {
            return saving.await;
        }
        DetachOnDrop::new(saving.boxed(), self.ports.wake.clone()).await
    }

    fn correlation(&self, given: Option<CorrelationId>) -> CorrelationId {
        given.unwrap_or_else(|| CorrelationId::from_uuid(self.ports.ids.next_id()))
    }

    /// Applies commands, and answers each only after its schedule is durable.
    async fn apply(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        metrics::counter!(metric_names::COMMANDS_RECEIVED).increment(batch.len() as u64);
        let mut timers = Vec::with_capacity(batch.len());
        let commands: Vec<Result<(), Answer>> = batch
            .into_iter()
            .map(|envelope| self.command(envelope).map(|timer| timers.push(timer)))
            .collect();
        let mut saved = match self.save(timers).await {
            Ok(saved) => VecDeque::from(saved),
            Err(error) => {
                tracing::warn!(%error, "commands could not be stored and are left for later");
                let answer = |command: Result<(), Answer>| {
                    let poison = command.err();
                    poison.unwrap_or_else(|| answer_after_failure(&error))
                };
                return commands.into_iter().map(answer).collect();
            }
        };
        commands
            .into_iter()
            .map(|command| match command {
                Ok(()) => saved.pop_front().map_or_else(no_answer, answer),
                Err(poison) => poison,
            })
            .collect()
    }

    fn command(&self, envelope: MessageEnvelope) -> Result<SaveTimer, Answer> {
        let Message::ScheduleTimer(command) = envelope.message else {
            return Err(unexpected(&envelope.message, "a command of the timer"));
        };
        Ok(SaveTimer {
            key: command.key(),
            correlation_id: self.correlation(envelope.metadata.correlation_id),
            due_at: command.due_at,
            data: command.data,
            origin: ScheduleOrigin::Command {
                sent_at: envelope.timestamp,
            },
        })
    }
}

fn check_length(length: usize, operation: &'static str) -> Result<(), PortError> {
    if length <= ScheduleTimers::MAX_BATCH {
        return Ok(());
    }
    let most = ScheduleTimers::MAX_BATCH;
    let reason = format!("{length} in one call: at most {most} are taken");
    Err(PortError::new(PortErrorKind::Rejected, operation, reason))
}

/// The earliest due time of the stored timers. After an error all may be stored: an extra poll does no
/// harm.
fn earliest_stored(dues: &[Timestamp], saved: &BatchResult<SaveOutcome>) -> Option<Timestamp> {
    let Ok(outcomes) = saved else {
        return dues.iter().min().copied();
    };
    let stored = dues.iter().zip(outcomes).filter(|(_, one)| is_stored(one));
    stored.map(|(due_at, _)| *due_at).min()
}

fn is_stored(outcome: &Result<SaveOutcome, PortError>) -> bool {
    matches!(outcome, Ok(SaveOutcome::Created | SaveOutcome::Rescheduled))
}

/// The answer to a command whose timer was saved, or not.
fn answer(saved: Result<SaveOutcome, PortError>) -> Answer {
    match saved {
        Ok(outcome) => {
            tracing::debug!(?outcome, "a command was applied");
            Answer::Done
        }
        Err(error) => answer_of(&error),
    }
}

/// The answer to a command whose batch failed, which is no reason to dead-letter it.
fn answer_after_failure(error: &PortError) -> Answer {
    match answer_of(error) {
        Answer::Poison { reason } => Answer::RetryLater { reason },
        other => other,
    }
}

#[async_trait]
impl MessageHandler for ScheduleTimers {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        self.apply(batch).await
    }
}
