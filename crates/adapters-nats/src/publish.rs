//! Publishing: many messages in flight, each acknowledged by the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::FutureExt;
use punctual_domain::{Message, MessageEnvelope, Timestamp};
use punctual_ports::{BatchResult, PortError, PortErrorKind, PublishOutcome};
use tokio::sync::OwnedSemaphorePermit;

use crate::link::{ConnectionId, Link};
use crate::names::{SERVICE_CALL_ID, StreamKind, subject};
use crate::tracker::{Acknowledged, Ticket};
use crate::{MAX_MESSAGE_BYTES, metric_names};

/// Publishes messages. Only an acknowledgement by the server is a success.
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
    let mut in_flight = VecDeque::with_capacity(window.min(batch.len()));
    for envelope in batch {
        if in_flight.len() >= window
            && let Some(first) = in_flight.pop_front()
        {
            outcomes.push(publishing.answer(first).await);
        }
        // A publish never waits for a permit while it holds one: several could deadlock.
        let permit = loop {
            if let Ok(permit) = Arc::clone(&link.permits).try_acquire_owned() {
                break Ok(permit);
            }
            match in_flight.pop_front() {
                Some(first) => outcomes.push(publishing.answer(first).await),
                None => break publishing.permit().await,
            }
        };
        in_flight.push_back(match permit {
            Ok(permit) => publishing.send(envelope, permit).await,
            Err(error) => Err(error),
        });
    }
    for sent in in_flight {
        outcomes.push(publishing.answer(sent).await);
    }
    if let Err(error) = publishing.record() {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
            *outcome = Err(error.clone());
        }
    }
    Ok(outcomes)
}

/// A message given to the connection, or why not.
type Sent = Result<PendingAck, PortError>;

/// A message in flight, waiting for its acknowledgement.
struct PendingAck {
    acknowledgement: PublishAckFuture,
    kind: StreamKind,
    id: String,
    /// Number of messages of the batch sent before it.
    index: usize,
    /// Released with the acknowledgement.
    _permit: OwnedSemaphorePermit,
}

/// A batch in flight. Dropping it ends it.
struct Publishing {
    link: Arc<Link>,
    connection: ConnectionId,
    ticket: Ticket,
    /// By the monotonic clock.
    started: Duration,
    sent: usize,
    /// Number of messages sent before an acknowledgement timed out.
    sent_before_silence: usize,
    stream_of_commands: String,
    stream_of_events: String,
    /// The acknowledged event with the highest sequence.
    highest: Option<(u64, String)>,
    /// The lowest sequence newly assigned to an event.
    lowest_new: Option<u64>,
    acknowledged: u64,
    duplicates: u64,
    /// Whether the broker responded to any of these messages.
    is_answered: bool,
}

impl Publishing {
    fn begin(link: &Arc<Link>, connection: ConnectionId, batch: &[MessageEnvelope]) -> Self {
        let earliest = batch.iter().map(happened_at).min();
        let ticket = link.tracker().begin(earliest.unwrap_or(Timestamp::MIN));
        let prefix = &link.settings.prefix;
        let started = link.clock.monotonic();
        link.progress().begin(started);
        Self {
            link: Arc::clone(link),
            connection,
            ticket,
            started,
            sent: 0,
            sent_before_silence: 0,
            stream_of_commands: StreamKind::Commands.name(prefix),
            stream_of_events: StreamKind::Events.name(prefix),
            highest: None,
            lowest_new: None,
            acknowledged: 0,
            duplicates: 0,
            is_answered: false,
        }
    }

    /// Whether the time limit of the batch is over, which bounds it even if each message is just in time.
    fn is_over(&self) -> bool {
        let took = self.link.clock.monotonic().saturating_sub(self.started);
        took > self.link.settings.ack_timeout * 2
    }

    /// Waits for a permit, as long as for an acknowledgement.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, PortError> {
        let acquired = async {
            match Arc::clone(&self.link.permits).acquire_owned().await {
                Ok(permit) => permit,
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        };
        if !self.is_over() {
            tokio::select! {
                biased;
                permit = acquired => return Ok(permit),
                () = self.link.pass(self.link.settings.ack_timeout) => {}
            }
        }
        Err(unavailable(
            "the maximum number of messages in flight waits for the broker's acknowledgement",
        ))
    }

    async fn send(&mut self, envelope: MessageEnvelope, permit: OwnedSemaphorePermit) -> Sent {
        let payload = envelope
            .to_json()
            .map_err(|error| rejected_item(error.to_string()))?;
        if payload.len() > MAX_MESSAGE_BYTES {
            let length = payload.len();
            return Err(rejected_item(format!(
                "the message has {length} bytes: at most {MAX_MESSAGE_BYTES} are sent"
            )));
        }
        if self.is_over() {
            return Err(Self::unknown("there was no time left to send it"));
        }
        let id = envelope.deduplication_id();
        let subject = subject(&self.link.settings.prefix, &envelope);
        let call_id = envelope.message.service_call_id().to_string();
        let message = PublishMessage::build()
            .payload(payload.into())
            .header(SERVICE_CALL_ID, call_id.as_str())
            .message_id(&id);
        let sent = self.link.context.send_publish(subject, message).await;
        let index = self.sent;
        // A message that the client refuses is never sent, and gets no acknowledgement.
        let is_refused =
            |error: &PublishError| error.kind() == PublishErrorKind::MaxPayloadExceeded;
        if !sent.as_ref().is_err_and(is_refused) {
            self.sent += 1;
        }
        Ok(PendingAck {
            acknowledgement: sent.map_err(|error| self.failed(&error))?,
            kind: StreamKind::of(envelope.message.topic()),
            id,
            index,
            _permit: permit,
        })
    }

    /// Waits for the acknowledgement of a message, in the order of sending. Otherwise all of a batch would
    /// be woken for each acknowledgement, and each would need a timer.
    async fn answer(&mut self, sent: Sent) -> Result<PublishOutcome, PortError> {
        let PendingAck {
            acknowledgement,
            kind,
            id,
            index,
            _permit,
        } = sent?;
        let acknowledgement = acknowledgement.into_future();
        let acknowledged = if self.is_over() || index < self.sent_before_silence {
            // Its time passed while earlier ones were awaited.
            let timed_out = || Self::unknown("there was no acknowledgement in time");
            at_once(acknowledgement).ok_or_else(timed_out)?
        } else {
            acknowledgement.await
        };
        let is_silent =
            matches!(&acknowledged, Err(error) if error.kind() == PublishErrorKind::TimedOut);
        if !is_silent {
            self.is_answered = true;
            self.link.progress().answered(self.link.clock.monotonic());
        }
        match acknowledged {
            Ok(acknowledgement) => self.accepted(kind, acknowledgement, id),
            Err(error) => {
                if is_silent {
                    self.sent_before_silence = self.sent;
                    self.link.check_soon();
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
            let reason = format!("stream {stream} took it in place of {expected}");
            return Err(unavailable(reason));
        }
        if kind == StreamKind::Events {
            let highest = self.highest.as_ref();
            if highest.is_none_or(|(highest, _)| sequence > *highest) {
                self.highest = Some((sequence, id));
            }
            if !duplicate {
                let lowest = self.lowest_new.unwrap_or(sequence);
                self.lowest_new = Some(lowest.min(sequence));
            }
        }
        self.acknowledged += 1;
        if duplicate {
            self.duplicates += 1;
            return Ok(PublishOutcome::Duplicate);
        }
        Ok(PublishOutcome::Accepted)
    }

    /// Records all acknowledgements at once.
    fn record(&mut self) -> Result<(), PortError> {
        metrics::counter!(metric_names::ACKNOWLEDGED).increment(self.acknowledged);
        metrics::counter!(metric_names::DUPLICATES).increment(self.duplicates);
        let Some((sequence, id)) = self.highest.take() else {
            return Ok(());
        };
        counts(self.connection, self.link.connection())?;
        let is_reused = self.link.tracker().acknowledged(
            &self.ticket,
            Acknowledged {
                sequence,
                message_id: id,
                lowest_new: self.lowest_new,
            },
            self.link.clock.now(),
        );
        if is_reused {
            tracing::warn!("the broker gives out numbers again that it had given before");
            self.link.check_soon();
        }
        Ok(())
    }

    /// A message that is too large is an error of the item; any other error is of the broker.
    fn failed(&self, error: &PublishError) -> PortError {
        let text = error.to_string();
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.link.client.max_payload();
                rejected_item(format!(
                    "the broker takes at most {most} bytes a message: raise its max_payload"
                ))
            }
            PublishErrorKind::Other if text.contains("message size exceeds") => rejected_item(text),
            kind => {
                if kind == PublishErrorKind::StreamNotFound {
                    self.link.check_soon();
                }
                Self::unknown(&text)
            }
        }
    }

    /// The error of a message that may or may not be stored.
    fn unknown(reason: &str) -> PortError {
        metrics::counter!(metric_names::UNKNOWN).increment(1);
        unavailable(reason)
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.link.tracker().end(&self.ticket);
        if self.sent == 0 {
            self.link.progress().withdraw();
        } else {
            let now = self.link.clock.monotonic();
            self.link.progress().end(now, self.is_answered);
        }
    }
}

/// When what a message tells happened. Firings are found again by when their timers were reached, which is
/// long before they are written if they are published again.
fn happened_at(envelope: &MessageEnvelope) -> Timestamp {
    match &envelope.message {
        Message::DueTimeReached(event) => event.reached_at.min(envelope.timestamp),
        _ => envelope.timestamp,
    }
}

/// The result if it is ready, regardless of the cooperative budget of tokio.
fn at_once<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::task::unconstrained(answer).now_or_never()
}

/// Refuses an acknowledgement that arrives after its connection has ended: the broker may have come back
/// without the message, and the loss would not be detected. The message is published again, and is a
/// duplicate if the broker still has it.
fn counts(sent_over: ConnectionId, now: Option<ConnectionId>) -> Result<(), PortError> {
    if now == Some(sent_over) {
        return Ok(());
    }
    Err(unavailable(
        "the broker was disconnected as it answered: what it has now is found by publishing again",
    ))
}

fn unavailable(reason: impl AsRef<str>) -> PortError {
    PortError::new(PortErrorKind::Unavailable, "publish a message", reason)
}

fn rejected_item(reason: String) -> PortError {
    PortError::new(PortErrorKind::HandlerFailed, "publish a message", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_ready_acknowledgement_is_seen() {
        for _ in 0..1_000 {
            let (sender, answer) = tokio::sync::oneshot::channel();
            sender.send(()).unwrap();
            assert_eq!(at_once(answer), Some(Ok(())));
        }
    }

    #[test]
    fn a_firing_that_is_published_again_happened_when_its_timer_was_reached() {
        let read = |type_name: &str, fields: &str| {
            let call = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
            let json = format!(
                r#"{{"id":"{call}","type":"{type_name}","tenantId":"a","timestampMs":90000,
                "payload":{{"tenantId":"a","serviceCallId":"{call}",{fields}}}}}"#
            );
            happened_at(&MessageEnvelope::from_json(json.as_bytes()).unwrap()).as_millis()
        };
        let at = |time: &str| format!(r#""reachedAt":"{time}","dueAt":"{time}""#);
        assert_eq!(read("DueTimeReached", &at("1970-01-01T00:00:05Z")), 5_000);
        assert_eq!(read("ScheduleTimer", &at("1970-01-01T00:00:05Z")), 90_000);
    }

    #[test]
    fn an_acknowledgement_counts_as_long_as_its_connection_lasts() {
        let (first, second) = (ConnectionId::nth(1), ConnectionId::nth(2));
        assert!(counts(first, Some(first)).is_ok());
        for now in [None, Some(second)] {
            assert!(counts(first, now).unwrap_err().is_retryable());
        }
    }
}
