//! Publishing the events of due timers, and the outcome of each firing.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::{
    DeadLetterOrigin, EnvelopeId, FiringId, MessageEnvelope, MessageMetadata, ReachedTimer,
    TenantId, Timestamp,
};
use punctual_ports::{
    BatchResult, ClaimRef, DeadLetter, DeadLetterClaim, EventBusPort, PortError, PublishOutcome,
};
use tracing::Instrument;

/// A firing with its event.
#[derive(Debug, Clone)]
pub(crate) struct Firing {
    pub(super) reached: ReachedTimer,
    pub(crate) envelope: MessageEnvelope,
}

impl Firing {
    /// The event of a reached timer, written now: when the timer was reached is in the payload.
    pub(crate) fn new(reached: ReachedTimer, id: EnvelopeId, now: Timestamp) -> Self {
        let envelope = MessageEnvelope {
            id,
            timestamp: now,
            metadata: MessageMetadata {
                correlation_id: Some(reached.timer().correlation_id),
                // Its cause is the time, which has no envelope.
                causation_id: None,
            },
            message: reached.event().into(),
        };
        Self { reached, envelope }
    }

    pub(crate) const fn reached_at(&self) -> Timestamp {
        self.reached.reached_at()
    }

    pub(super) fn firing_id(&self) -> FiringId {
        self.reached.timer().firing_id()
    }

    /// The span of every log line about this firing: its tenant, timer and request.
    pub(crate) fn span(&self) -> tracing::Span {
        let timer = self.reached.timer();
        tracing::info_span!(
            "fire_timer",
            tenant_id = %timer.key.tenant_id,
            service_call_id = %timer.key.service_call_id,
            correlation_id = %timer.correlation_id,
        )
    }

    /// The settlement of a firing that can never succeed.
    pub(super) fn dead_letter_claim(
        &self,
        claim: ClaimRef,
        reason: &str,
        now: Timestamp,
    ) -> DeadLetterClaim {
        DeadLetterClaim {
            dead_letter: self.dead_letter(reason, now),
            claim,
            reached_at: self.reached_at(),
        }
    }

    /// The event as a dead letter, under its firing id.
    pub(crate) fn dead_letter(&self, reason: &str, now: Timestamp) -> DeadLetter {
        DeadLetter {
            id: self.firing_id().to_string(),
            origin: DeadLetterOrigin::Firing,
            tenant_id: Some(self.envelope.tenant_id().clone()),
            // Writing an envelope cannot fail; an empty payload would still name the firing.
            payload: self.envelope.to_json().unwrap_or_default(),
            reason: reason.chars().take(LONGEST_REASON).collect(),
            failed_at: now,
        }
    }
}

/// Maximum length of a reason: a handler's complete backtrace is not for people.
const LONGEST_REASON: usize = 1_000;

/// The tenants of a batch, each once.
pub(super) fn tenants(batch: &[Firing]) -> BTreeSet<TenantId> {
    batch
        .iter()
        .map(|firing| firing.envelope.tenant_id().clone())
        .collect()
}

/// What an answer of the bus means for its message.
#[derive(Debug)]
pub(crate) enum PublishResult {
    /// The bus has acknowledged it: it may be marked.
    Acknowledged,
    /// It can never succeed.
    Poison(String),
    /// It failed by itself: it is retried later.
    Failed(PortError),
    /// The bus failed: nothing can be published now.
    BusFailed(PortError),
}

pub(crate) async fn publish(
    bus: Arc<dyn EventBusPort>,
    batch: Vec<Firing>,
) -> (Vec<Firing>, Vec<PublishResult>) {
    let envelopes = batch.iter().map(|firing| firing.envelope.clone()).collect();
    let publishing = bus.publish(envelopes);
    let results = match batch.as_slice() {
        [only] => publishing.instrument(only.span()).await,
        _ => publishing.await,
    };
    let outcomes = outcomes(batch.len(), results);
    (batch, outcomes)
}

/// One result for each firing.
fn outcomes(length: usize, results: BatchResult<PublishOutcome>) -> Vec<PublishResult> {
    let mut outcomes: Vec<PublishResult> = match results {
        Ok(results) => results.into_iter().map(outcome).collect(),
        Err(error) => std::iter::repeat_n(error, length)
            .map(PublishResult::BusFailed)
            .collect(),
    };
    outcomes.resize_with(length, || {
        PublishResult::BusFailed(PortError::new(
            punctual_ports::PortErrorKind::Unavailable,
            "publish events",
            "the bus gave no answer for this event",
        ))
    });
    outcomes
}

/// Only an explicit acknowledgement is a success.
pub(crate) fn outcome(result: Result<PublishOutcome, PortError>) -> PublishResult {
    match result {
        Ok(PublishOutcome::Accepted | PublishOutcome::Duplicate) => PublishResult::Acknowledged,
        Ok(PublishOutcome::Refused { reason }) => PublishResult::Poison(reason),
        Ok(other) => PublishResult::Failed(PortError::new(
            punctual_ports::PortErrorKind::HandlerFailed,
            "publish an event",
            format!("the bus answered {other:?}, which this version does not know"),
        )),
        Err(error) if error.kind().concerns_the_item() => PublishResult::Failed(error),
        Err(error) => PublishResult::BusFailed(error),
    }
}
