//! Wrapping outgoing messages into envelopes.

use punctual_domain::service_call::call::Outgoing;
use punctual_domain::{CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, Timestamp};
use punctual_ports::IdPort;

/// Wraps messages about one request, at one time.
pub(super) fn wrap(
    outgoing: Vec<Outgoing>,
    correlation_id: CorrelationId,
    now: Timestamp,
    ids: &dyn IdPort,
) -> Vec<MessageEnvelope> {
    let wrap_one = |out: Outgoing| MessageEnvelope {
        id: out
            .id
            .unwrap_or_else(|| EnvelopeId::from_uuid(ids.next_id())),
        timestamp: now,
        metadata: MessageMetadata {
            correlation_id: Some(correlation_id),
            causation_id: Some(out.caused_by),
        },
        message: out.message,
    };
    outgoing.into_iter().map(wrap_one).collect()
}
