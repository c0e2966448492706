//! Making events of due timers, and what the bus's answer means for each.

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

/// A firing whose event is on the way.
#[derive(Debug, Clone)]
pub(crate) struct Firing {
    pub(super) reached: ReachedTimer,
    pub(crate) envelope: MessageEnvelope,
}

impl Firing {
    pub(crate) fn new(reached: ReachedTimer, id: EnvelopeId) -> Self {
        let envelope = MessageEnvelope {
            id,
            timestamp: reached.reached_at(),
            metadata: MessageMetadata {
                correlation_id: Some(reached.timer().correlation_id),
                // Time caused it, and time has no envelope.
                causation_id: None,
            },
            message: reached.event().into(),
        };
        Self { reached, envelope }
    }

    pub(super) fn firing_id(&self) -> FiringId {
        self.reached.timer().firing_id()
    }

    /// Everything that is logged about a firing says whose it is and to which request it belongs.
    pub(crate) fn span(&self) -> tracing::Span {
        let timer = self.reached.timer();
        tracing::info_span!(
            "fire_timer",
            tenant_id = %timer.key.tenant_id,
            service_call_id = %timer.key.service_call_id,
            correlation_id = %timer.correlation_id,
        )
    }

    /// What is kept of a firing that can never succeed.
    pub(super) fn dead(&self, claim: ClaimRef, reason: &str, now: Timestamp) -> DeadLetterClaim {
        DeadLetterClaim {
            dead_letter: self.dead_letter(reason, now),
            claim,
            reached_at: self.reached.reached_at(),
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

/// A reason is for people; a handler's whole backtrace is not.
const LONGEST_REASON: usize = 1_000;

/// The tenants of a batch, each once.
pub(super) fn tenants(batch: &[Firing]) -> BTreeSet<TenantId> {
    batch
        .iter()
        .map(|firing| firing.envelope.tenant_id().clone())
        .collect()
}

/// What the bus's answer means for one firing.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The bus answers for it: it may be marked.
    Acknowledged,
    /// It can never succeed.
    Poison(String),
    /// Its own fault, this time: try it again later.
    Failed(PortError),
    /// The bus's fault: nothing can be published now.
    BusFailed(PortError),
}

pub(crate) async fn publish(
    bus: Arc<dyn EventBusPort>,
    batch: Vec<Firing>,
) -> (Vec<Firing>, Vec<Verdict>) {
    let envelopes = batch.iter().map(|firing| firing.envelope.clone()).collect();
    let publishing = bus.publish(envelopes);
    let results = match batch.as_slice() {
        [only] => publishing.instrument(only.span()).await,
        _ => publishing.await,
    };
    let verdicts = verdicts(batch.len(), results);
    (batch, verdicts)
}

/// One verdict for each firing. Nothing but an explicit success is a success.
fn verdicts(length: usize, results: BatchResult<PublishOutcome>) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = match results {
        Ok(results) => results.into_iter().map(verdict).collect(),
        Err(error) => std::iter::repeat_n(error, length)
            .map(Verdict::BusFailed)
            .collect(),
    };
    verdicts.resize_with(length, || {
        Verdict::BusFailed(PortError::new(
            punctual_ports::PortErrorKind::Unavailable,
            "publish events",
            "the bus gave no answer for this event",
        ))
    });
    verdicts
}

fn verdict(result: Result<PublishOutcome, PortError>) -> Verdict {
    match result {
        Ok(PublishOutcome::Accepted | PublishOutcome::Duplicate) => Verdict::Acknowledged,
        Ok(PublishOutcome::Refused { reason }) => Verdict::Poison(reason),
        Ok(other) => Verdict::Failed(PortError::new(
            punctual_ports::PortErrorKind::HandlerFailed,
            "publish an event",
            format!("the bus answered {other:?}, which this version does not know"),
        )),
        Err(error) if error.kind().concerns_the_item() => Verdict::Failed(error),
        Err(error) => Verdict::BusFailed(error),
    }
}
