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
use tokio::sync::OwnedSemaphorePermit;

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
        // Nobody waits for a permit while holding one: publishes that each hold some and wait for
        // more would wait for each other.
        let permit = loop {
            if let Ok(permit) = Arc::clone(&link.permits).try_acquire_owned() {
                break Ok(permit);
            }
            match on_the_way.pop_front() {
                Some(first) => outcomes.push(publishing.answer(first).await),
                None => break publishing.permit().await,
            }
        };
        on_the_way.push_back(match permit {
            Ok(permit) => publishing.send(envelope, permit).await,
            Err(error) => Err(error),
        });
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
    /// Given back with the answer.
    _permit: OwnedSemaphorePermit,
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
    /// Whether the broker has said anything of these messages.
    is_answered: bool,
}

impl Publishing {
    fn begin(link: &Arc<Link>, connection: ConnectionId, batch: &[MessageEnvelope]) -> Self {
        let earliest = batch.iter().map(|envelope| envelope.timestamp).min();
        let ticket = link.tracker().begin(earliest.unwrap_or(Timestamp::MIN));
        let prefix = &link.settings.prefix;
        let begun = link.clock.monotonic();
        link.progress().begin(begun);
        Self {
            link: Arc::clone(link),
            connection,
            ticket,
            begun,
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

    /// Whether the batch has had its time. Each just in time is not enough: it must not take for ever.
    fn is_over(&self) -> bool {
        let took = self.link.clock.monotonic().saturating_sub(self.begun);
        took > self.link.settings.ack_timeout * 2
    }

    /// Waits for room on the way to the broker, as long as for an acknowledgement.
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
        Err(PortError::new(
            PortErrorKind::Unavailable,
            "publish a message",
            "as many messages as may be on the way wait for the broker's acknowledgement",
        ))
    }

    async fn send(&mut self, envelope: MessageEnvelope, permit: OwnedSemaphorePermit) -> Sent {
        let payload = envelope
            .to_json()
            .map_err(|error| of_the_item(error.to_string()))?;
        if payload.len() > MAX_MESSAGE_BYTES {
            let length = payload.len();
            return Err(of_the_item(format!(
                "the message has {length} bytes: at most {MAX_MESSAGE_BYTES} are sent"
            )));
        }
        if self.is_over() {
            return Err(Self::unknown(
                "there was no time left to send it".to_owned(),
            ));
        }
        let id = envelope.deduplication_id();
        let subject = subject(&self.link.settings.prefix, &envelope);
        let message = PublishMessage::build()
            .payload(payload.into())
            .message_id(&id);
        let sent = self.link.context.send_publish(subject, message).await;
        let place = self.sent;
        // What the client refuses was never sent, and the broker owes no answer to it.
        let is_refused =
            |error: &PublishError| error.kind() == PublishErrorKind::MaxPayloadExceeded;
        if !sent.as_ref().is_err_and(is_refused) {
            self.sent += 1;
        }
        Ok(OnTheWay {
            acknowledgement: sent.map_err(|error| self.failed(&error))?,
            kind: StreamKind::of(envelope.message.topic()),
            id,
            place,
            _permit: permit,
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
            _permit,
        } = sent?;
        let acknowledgement = acknowledgement.into_future();
        let acknowledged = if self.is_over() || place < self.sent_before_silence {
            // It has had its time while earlier ones were waited for.
            let had_its_time = || Self::unknown("there was no acknowledgement in time".to_owned());
            at_once(acknowledgement).ok_or_else(had_its_time)?
        } else {
            acknowledgement.await
        };
        let is_silent =
            matches!(&acknowledged, Err(error) if error.kind() == PublishErrorKind::TimedOut);
        if !is_silent {
            self.is_answered = true;
            self.link.progress().heard(self.link.clock.monotonic());
        }
        match acknowledged {
            Ok(acknowledgement) => self.accepted(kind, acknowledgement, id),
            Err(error) => {
                if is_silent {
                    self.sent_before_silence = self.sent;
                    self.link.look_again();
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
        if self.sent == 0 {
            self.link.progress().withdraw();
        } else {
            let now = self.link.clock.monotonic();
            self.link.progress().end(now, self.is_answered);
        }
    }
}

/// What has come already. Not by tokio's budget: after many in a row it would say that nothing has.
fn at_once<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::task::unconstrained(answer).now_or_never()
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

    #[tokio::test]
    async fn however_many_answers_have_come_each_is_heard() {
        for _ in 0..1_000 {
            let (sender, answer) = tokio::sync::oneshot::channel();
            sender.send(()).unwrap();
            assert_eq!(at_once(answer), Some(Ok(())));
        }
    }

    #[test]
    fn an_answer_counts_as_long_as_its_connection_does() {
        let (first, second) = (ConnectionId::nth(1), ConnectionId::nth(2));
        assert!(counts(first, Some(first)).is_ok());
        for now in [None, Some(second)] {
            assert!(counts(first, now).unwrap_err().is_retryable());
        }
    }
}
