//! Publishing: each message answered for by the server, many on the way at once.

use std::collections::VecDeque;
use std::sync::Arc;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::FutureExt;
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
    let mut publishing = Publishing::begin(link, connection, &batch);
    let window = link.settings.publish_window;
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut on_the_way = VecDeque::with_capacity(window.min(batch.len()));
    for envelope in batch {
        if on_the_way.len() >= window
            && let Some(first) = on_the_way.pop_front()
        {
            outcomes.push(publishing.answer(first).await);
        }
        on_the_way.push_back(publishing.send(envelope).await);
    }
    for sent in on_the_way {
        outcomes.push(publishing.answer(sent).await);
    }
    Ok(outcomes)
}

/// A message that was handed to the connection, or why not.
type Sent = Result<OnTheWay, PortError>;

/// A message whose acknowledgement is to come.
struct OnTheWay {
    acknowledgement: PublishAckFuture,
    kind: StreamKind,
    id: String,
    /// How many of the batch were sent before it.
    place: usize,
}

/// A batch on its way. It ends however its future ends.
struct Publishing {
    link: Arc<Link>,
    connection: ConnectionId,
    ticket: Ticket,
    sent: usize,
    /// So many were sent before an acknowledgement was waited for in vain.
    sent_before_silence: usize,
}

impl Publishing {
    fn begin(link: &Arc<Link>, connection: ConnectionId, batch: &[MessageEnvelope]) -> Self {
        let earliest = batch.iter().map(|envelope| envelope.timestamp).min();
        let ticket = link.tracker().begin(earliest.unwrap_or(Timestamp::MIN));
        Self {
            link: Arc::clone(link),
            connection,
            ticket,
            sent: 0,
            sent_before_silence: 0,
        }
    }

    async fn send(&mut self, envelope: MessageEnvelope) -> Sent {
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
        let subject = subject(&self.link.settings.prefix, &envelope);
        let message = PublishMessage::build()
            .payload(payload.into())
            .message_id(&id);
        let sent = self.link.context.send_publish(subject, message).await;
        let place = self.sent;
        self.sent += 1;
        Ok(OnTheWay {
            acknowledgement: sent.map_err(|error| self.failed(&error))?,
            kind: StreamKind::of(envelope.message.topic()),
            id,
            place,
        })
    }

    /// Waits for the broker's word on a message, in the order of sending. All of a batch would have
    /// to be woken for each other's acknowledgements otherwise, and each would need a timer.
    async fn answer(&mut self, sent: Sent) -> Result<PublishOutcome, PortError> {
        let OnTheWay {
            acknowledgement,
            kind,
            id,
            place,
        } = sent?;
        let acknowledgement = acknowledgement.into_future();
        let acknowledged = if place < self.sent_before_silence {
            // It has had its time while an earlier one was waited for.
            let had_its_time = || Self::unknown("there was no acknowledgement in time".to_owned());
            acknowledgement.now_or_never().ok_or_else(had_its_time)?
        } else {
            acknowledgement.await
        };
        match acknowledged {
            Ok(acknowledgement) => self.accepted(kind, &acknowledgement, &id),
            Err(error) => {
                if error.kind() == PublishErrorKind::TimedOut {
                    self.sent_before_silence = self.sent;
                }
                Err(self.failed(&error))
            }
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

    /// A message that is too large is its own fault; everything else is the broker's.
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
                if kind == PublishErrorKind::StreamNotFound {
                    self.link.look_again();
                }
                Self::unknown(text)
            }
        }
    }

    /// Whether it was stored is not known.
    fn unknown(reason: String) -> PortError {
        metrics::counter!(metric_names::UNKNOWN).increment(1);
        PortError::new(PortErrorKind::Unavailable, "publish a message", reason)
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
