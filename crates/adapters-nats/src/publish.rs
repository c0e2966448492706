//! Publishing: each message answered for by the server, many on the way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::FutureExt;
use punctual_domain::{MessageEnvelope, Timestamp};
use punctual_ports::{BatchResult, PortError, PortErrorKind, PublishOutcome};

use crate::link::{ConnectionId, Link};
use crate::names::{StreamKind, subject};
use crate::tracker::{Acknowledged, Ticket};
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
    if let Err(error) = publishing.note() {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
            *outcome = Err(error.clone());
        }
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
    /// By the monotonic clock.
    begun: Duration,
    sent: usize,
    /// So many were sent before an acknowledgement was waited for in vain.
    sent_before_silence: usize,
    stream_of_commands: String,
    stream_of_events: String,
    /// Of the events that were acknowledged, the one with the highest number.
    highest: Option<(u64, String)>,
    /// The lowest number that was given out for an event now.
    lowest_new: Option<u64>,
    acknowledged: u64,
    duplicates: u64,
}

impl Publishing {
    fn begin(link: &Arc<Link>, connection: ConnectionId, batch: &[MessageEnvelope]) -> Self {
        let earliest = batch.iter().map(|envelope| envelope.timestamp).min();
        let ticket = link.tracker().begin(earliest.unwrap_or(Timestamp::MIN));
        let prefix = &link.settings.prefix;
        Self {
            link: Arc::clone(link),
            connection,
            ticket,
            begun: link.clock.monotonic(),
            sent: 0,
            sent_before_silence: 0,
            stream_of_commands: StreamKind::Commands.name(prefix),
            stream_of_events: StreamKind::Events.name(prefix),
            highest: None,
            lowest_new: None,
            acknowledged: 0,
            duplicates: 0,
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
        let took = self.link.clock.monotonic().saturating_sub(self.begun);
        // Each just in time is not enough: a batch must not take for ever.
        let is_over = took > self.link.settings.ack_timeout * 2;
        let acknowledged = if is_over || place < self.sent_before_silence {
            // It has had its time while earlier ones were waited for.
            let had_its_time = || Self::unknown("there was no acknowledgement in time".to_owned());
            acknowledgement.now_or_never().ok_or_else(had_its_time)?
        } else {
            acknowledgement.await
        };
        match acknowledged {
            Ok(acknowledgement) => self.accepted(kind, acknowledgement, id),
            Err(error) => {
                if error.kind() == PublishErrorKind::TimedOut {
                    self.sent_before_silence = self.sent;
                }
                Err(self.failed(&error))
            }
        }
    }

    fn accepted(
        &mut self,
        kind: StreamKind,
        acknowledgement: PublishAck,
        id: String,
    ) -> Result<PublishOutcome, PortError> {
        let PublishAck {
            stream,
            sequence,
            duplicate,
            ..
        } = acknowledgement;
        let expected = match kind {
            StreamKind::Commands => &self.stream_of_commands,
            StreamKind::Events => &self.stream_of_events,
        };
        if stream != *expected {
            return Err(PortError::new(
                PortErrorKind::Unavailable,
                "publish a message",
                format!("stream {stream} took it in place of {expected}"),
            ));
        }
        if kind == StreamKind::Events {
            if self
                .highest
                .as_ref()
                .is_none_or(|(highest, _)| sequence > *highest)
            {
                self.highest = Some((sequence, id));
            }
            if !duplicate {
                let lowest = self
                    .lowest_new
                    .map_or(sequence, |lowest| lowest.min(sequence));
                self.lowest_new = Some(lowest);
            }
        }
        self.acknowledged += 1;
        if duplicate {
            self.duplicates += 1;
            return Ok(PublishOutcome::Duplicate);
        }
        Ok(PublishOutcome::Accepted)
    }

    /// Notes what was acknowledged, all of it at once.
    fn note(&mut self) -> Result<(), PortError> {
        metrics::counter!(metric_names::ACKNOWLEDGED).increment(self.acknowledged);
        metrics::counter!(metric_names::DUPLICATES).increment(self.duplicates);
        let Some((sequence, id)) = self.highest.take() else {
            return Ok(());
        };
        counts(self.connection, self.link.connection())?;
        let is_odd = self.link.tracker().acknowledged(
            &self.ticket,
            Acknowledged {
                sequence,
                message_id: id,
                lowest_new: self.lowest_new,
            },
            self.link.clock.now(),
        );
        if is_odd {
            tracing::warn!("the broker gives out numbers again that it had given before");
            self.link.look_again();
        }
        Ok(())
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

/// Whether an answer counts. One that is heard after its connection has ended cannot be noted: the
/// broker may have come back without the message, and nobody would know that it ever had it. So it
/// is published again, and a broker that still has it says so.
fn counts(asked: ConnectionId, now: Option<ConnectionId>) -> Result<(), PortError> {
    if now == Some(asked) {
        return Ok(());
    }
    Err(PortError::new(
        PortErrorKind::Unavailable,
        "publish a message",
        "the broker was disconnected as it answered: what it has now is asked by publishing again",
    ))
}

fn of_the_item(reason: String) -> PortError {
    PortError::new(PortErrorKind::HandlerFailed, "publish a message", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_as_long_as_its_connection_does() {
        let (first, second) = (ConnectionId::nth(1), ConnectionId::nth(2));
        assert!(counts(first, Some(first)).is_ok());
        for now in [None, Some(second)] {
            assert!(counts(first, now).unwrap_err().is_retryable());
        }
    }
}
