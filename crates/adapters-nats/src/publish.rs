//! Publishing: each message answered for by the server, many on the way at once.

use std::sync::Arc;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::{StreamExt, stream};
use punctual_domain::{MessageEnvelope, Timestamp};
use punctual_ports::{BatchResult, PortError, PortErrorKind, PublishOutcome};

use crate::link::{ConnectionId, Link};
use crate::names::{StreamKind, subject};
use crate::tracker::Ticket;
use crate::{MAX_MESSAGE_BYTES, metric_names};

/// Publishes messages and answers for each. Nothing but the server's own word is a success.
pub(crate) async fn publish(
    link: &Arc<Link>,
    batch: Vec<MessageEnvelope>,
) -> BatchResult<PublishOutcome> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let connection = link.ready()?;
    let publishing = Publishing::begin(link, connection, &batch);
    let window = link.settings.publish_window;
    let outcomes = stream::iter(batch)
        .map(|envelope| publishing.one(envelope))
        .buffered(window)
        .collect()
        .await;
    Ok(outcomes)
}

/// A batch on its way. It ends however its future ends.
struct Publishing {
    link: Arc<Link>,
    connection: ConnectionId,
    ticket: Ticket,
}

impl Publishing {
    fn begin(link: &Arc<Link>, connection: ConnectionId, batch: &[MessageEnvelope]) -> Self {
        let earliest = batch.iter().map(|envelope| envelope.timestamp).min();
        let ticket = link.tracker().begin(earliest.unwrap_or(Timestamp::MIN));
        Self {
            link: Arc::clone(link),
            connection,
            ticket,
        }
    }

    async fn one(&self, envelope: MessageEnvelope) -> Result<PublishOutcome, PortError> {
        let payload = envelope
            .to_json()
            .map_err(|error| of_the_item(error.to_string()))?;
        if payload.len() > MAX_MESSAGE_BYTES {
            let length = payload.len();
            return Err(of_the_item(format!(
                "the message has {length} bytes: at most {MAX_MESSAGE_BYTES} are sent"
            )));
        }
        let id = envelope.deduplication_id();
        let kind = StreamKind::of(envelope.message.topic());
        let subject = subject(&self.link.settings.prefix, &envelope);
        let message = PublishMessage::build()
            .payload(payload.into())
            .message_id(&id);
        let sent = self.link.context.send_publish(subject, message).await;
        let acknowledged = match sent {
            Ok(acknowledgement) => acknowledgement.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(acknowledgement) => self.accepted(kind, &acknowledgement, &id),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn accepted(
        &self,
        kind: StreamKind,
        acknowledgement: &PublishAck,
        id: &str,
    ) -> Result<PublishOutcome, PortError> {
        let expected = kind.name(&self.link.settings.prefix);
        if acknowledgement.stream != expected {
            return Err(PortError::new(
                PortErrorKind::Unavailable,
                "publish a message",
                format!(
                    "stream {} took it in place of {expected}",
                    acknowledgement.stream
                ),
            ));
        }
        metrics::counter!(metric_names::ACKNOWLEDGED).increment(1);
        // An answer over another connection says nothing of the one that was looked at.
        let is_same = self.link.connection().as_ref() == Some(&self.connection);
        if kind == StreamKind::Events && is_same {
            let is_odd = self.link.tracker().acknowledged(
                &self.ticket,
                acknowledgement.sequence,
                acknowledgement.duplicate,
                id,
                self.link.clock.now(),
            );
            if is_odd {
                tracing::warn!("the broker gives out numbers again that it had given before");
                self.link.look_again();
            }
        }
        if acknowledgement.duplicate {
            metrics::counter!(metric_names::DUPLICATES).increment(1);
            return Ok(PublishOutcome::Duplicate);
        }
        Ok(PublishOutcome::Accepted)
    }

    /// A message that is too large is its own fault; everything else is the broker's, and whether it
    /// was stored is not known.
    fn failed(&self, error: &PublishError) -> PortError {
        let text = error.to_string();
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.link.client.max_payload();
                of_the_item(format!(
                    "the broker takes at most {most} bytes a message: raise its max_payload"
                ))
            }
            PublishErrorKind::Other if text.contains("message size exceeds") => of_the_item(text),
            kind => {
                metrics::counter!(metric_names::UNKNOWN).increment(1);
                if kind == PublishErrorKind::StreamNotFound {
                    self.link.look_again();
                }
                PortError::new(PortErrorKind::Unavailable, "publish a message", text)
            }
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.link.tracker().end(&self.ticket);
    }
}

fn of_the_item(reason: String) -> PortError {
    PortError::new(PortErrorKind::HandlerFailed, "publish a message", reason)
}
