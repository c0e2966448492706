//! One call of the handler: its messages, the answer for each, and the acknowledgement to the broker.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::message::Info;
use async_nats::jetstream::{AckKind, Message};
use futures_util::FutureExt;
use punctual_domain::{Backoff, DeadLetterOrigin, MessageEnvelope};
use punctual_ports::{Answer, DeadLetter, only_answer};
use tokio::sync::OwnedSemaphorePermit;

use super::decode::decode;
use super::{Consumer, MAX_FAILURES, Position};
use crate::link::Link;
use crate::metric_names;

/// Backoff between calls of a handler that answers with a pause.
const PAUSE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Maximum number of characters kept of a reason, which is a message and not a backtrace.
const LONGEST_REASON: usize = 1_000;

/// Returns messages to the broker for redelivery.
pub(super) async fn nak_all(link: &Link, messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        acknowledge(link, &message, AckKind::Nak(None)).await;
    }
}

/// A message in flight.
struct InFlight {
    message: Message,
    position: Position,
    /// The decoded message, or the reason to dead-letter it.
    content: Result<MessageEnvelope, String>,
}

impl Consumer {
    /// Delivers messages to the handler until all of them are settled.
    pub(super) async fn deliver(
        self: Arc<Self>,
        messages: Vec<Message>,
        permit: OwnedSemaphorePermit,
    ) {
        let mut rest: Vec<InFlight> = messages
            .into_iter()
            .map(|message| self.take_in(message))
            .collect();
        let mut pause: Option<Paused> = None;
        let mut attempts = 0;
        while !rest.is_empty() {
            if pause.is_some() && self.is_stopping() {
                // The broker redelivers them to another process, or to us after a restart.
                self.until_nothing_is_fetched().await;
                nak_all(&self.link, rest.into_iter().map(|it| it.message)).await;
                break;
            }
            rest = self.try_once(rest).await;
            if rest.is_empty() {
                break;
            }
            attempts += 1;
            pause.get_or_insert_with(|| Paused::new(&self));
            let wait = PAUSE_BACKOFF.after(attempts, &(std::process::id(), attempts));
            let waiting = async {
                tokio::select! {
                    () = self.until_stopped() => {}
                    () = self.link.clock.sleep_for(wait) => {}
                }
            };
            self.while_extending_ack_wait(&rest, waiting).await;
        }
        drop(permit);
    }

    fn take_in(&self, message: Message) -> InFlight {
        metrics::counter!(metric_names::RECEIVED).increment(1);
        let info = message.info();
        let position = info
            .as_ref()
            .map_or_else(|_| Position::default(), position_of);
        if info.is_ok_and(|info| info.delivered > 1) {
            metrics::counter!(metric_names::REDELIVERED).increment(1);
        }
        let prefix = &self.link.settings.prefix;
        let content = decode(prefix, self.request.topic, &message.message);
        InFlight {
            message,
            position,
            content,
        }
    }

    /// Calls the handler with the decoded messages, and settles each with the broker. Returns the messages
    /// that have to wait for a store.
    async fn try_once(&self, batch: Vec<InFlight>) -> Vec<InFlight> {
        let envelopes: Vec<MessageEnvelope> = batch
            .iter()
            .filter_map(|it| it.content.clone().ok())
            .collect();
        let length = envelopes.len();
        let mut answers = if length == 0 {
            Vec::new()
        } else {
            let handling = self.call_handler(envelopes);
            self.while_extending_ack_wait(&batch, handling).await
        };
        answers.resize_with(length, || Answer::RetryLater {
            reason: "the handler gave no answer for this message".to_owned(),
        });
        let mut answers = answers.into_iter();
        let mut rest = Vec::new();
        for mut it in batch {
            let answer = match &it.content {
                Ok(_) => answers.next(),
                Err(reason) => Some(Answer::Poison {
                    reason: reason.clone(),
                }),
            };
            if !self.settle(&mut it, answer).await {
                rest.push(it);
            }
        }
        rest
    }

    async fn call_handler(&self, envelopes: Vec<MessageEnvelope>) -> Vec<Answer> {
        // Within the future: a handler may panic before it returns its own.
        let handling = async { self.request.handler.handle(envelopes).await };
        let handled = AssertUnwindSafe(handling).catch_unwind().await;
        handled.unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!(
                reason,
                "a message handler panicked; its messages are retried"
            );
            Vec::new()
        })
    }

    /// Settles a message with the broker; returns false if it has to be tried again.
    async fn settle(&self, it: &mut InFlight, answer: Option<Answer>) -> bool {
        match answer {
            Some(Answer::Done) => {
                self.forget(it.position);
                self.acknowledge(it, AckKind::Ack).await;
                true
            }
            Some(Answer::Poison { reason }) => self.record_dead_letter(it, reason).await,
            Some(Answer::Pause { reason }) => {
                tracing::debug!(reason, "a message is paused");
                false
            }
            Some(Answer::RetryLater { reason }) => self.retry_later(it, reason).await,
            // An unknown answer is not a success.
            other => {
                self.retry_later(it, format!("the handler answered {other:?}"))
                    .await
            }
        }
    }

    async fn retry_later(&self, it: &mut InFlight, reason: String) -> bool {
        let failures = self.failed(it.position);
        if failures >= MAX_FAILURES {
            let reason = format!("it failed {failures} times: {reason}");
            return self.record_dead_letter(it, reason).await;
        }
        let first = self.link.settings.retry_delay;
        let wait = Backoff::new(first, first * 120).after(failures, &it.position.sequence);
        tracing::warn!(reason, failures, "a message failed and is delivered again");
        self.acknowledge(it, AckKind::Nak(Some(wait))).await;
        true
    }

    /// Dead-letters a message, and only then terminates it at the broker.
    async fn record_dead_letter(&self, it: &mut InFlight, reason: String) -> bool {
        let dead_letter = self.dead_letter(it, &reason);
        let recorded = self.link.dead_letters.record(vec![dead_letter]).await;
        match only_answer(recorded, "record a dead letter") {
            Ok(_) => {
                metrics::counter!(metric_names::DEAD_LETTERS).increment(1);
                tracing::error!(
                    subject = %it.message.subject,
                    sequence = it.position.sequence,
                    reason,
                    "a message can never be handled and is kept as a dead letter"
                );
                self.forget(it.position);
                self.acknowledge(it, AckKind::Term).await;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "a dead letter could not be recorded yet");
                // It is not handed to the handler again.
                it.content = Err(reason);
                false
            }
        }
    }

    fn dead_letter(&self, it: &InFlight, reason: &str) -> DeadLetter {
        let subject = it.message.subject.to_string();
        let (id, origin) = match it.message.info() {
            Ok(info) => {
                let position = position_of(&info);
                // With its time: a recreated stream starts its sequences again.
                let since = position.published.as_millis();
                let id = format!("{}:{}:{since}", info.stream, position.sequence);
                let origin = DeadLetterOrigin::Delivery {
                    subject,
                    stream: info.stream.to_owned(),
                    consumer: info.consumer.to_owned(),
                };
                (id, origin)
            }
            Err(_) => (
                format!("{subject}:unnumbered"),
                DeadLetterOrigin::Other(subject),
            ),
        };
        let tenant_id = it.content.as_ref().ok().map(|it| it.tenant_id().clone());
        DeadLetter {
            id,
            origin,
            tenant_id,
            payload: it.message.payload.to_vec(),
            reason: reason.chars().take(LONGEST_REASON).collect(),
            failed_at: self.link.clock.now(),
        }
    }

    /// Runs a future while extending the ack wait of these messages.
    async fn while_extending_ack_wait<T>(
        &self,
        batch: &[InFlight],
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.link.clock.sleep_for(self.link.settings.ack_wait / 3) => {
                    for it in batch {
                        self.acknowledge(it, AckKind::Progress).await;
                    }
                }
            }
        }
    }

    async fn acknowledge(&self, it: &InFlight, what: AckKind) {
        acknowledge(&self.link, &it.message, what).await;
    }
}

/// Sends an acknowledgement to the broker. If it is lost, the broker redelivers the message, which is
/// harmless.
pub(super) async fn acknowledge(link: &Link, message: &Message, what: AckKind) {
    if link.connection().is_none() {
        // It would be buffered, and concern a delivery that has ended.
        return;
    }
    if let Err(error) = message.ack_with(what).await {
        tracing::debug!(error, "an acknowledgement could not be sent to the broker");
    }
}

fn position_of(info: &Info<'_>) -> Position {
    let published = SystemTime::from(info.published);
    Position {
        sequence: info.stream_sequence,
        published: published.duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}

/// A paused call: as long as it exists, nothing is fetched.
struct Paused<'a>(&'a Consumer);

impl<'a> Paused<'a> {
    fn new(consumer: &'a Consumer) -> Self {
        metrics::counter!(metric_names::PAUSED).increment(1);
        tracing::warn!(topic = %consumer.request.topic, "the store cannot be used: no more messages are fetched until it can");
        consumer.paused.send_modify(|count| *count += 1);
        Self(consumer)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.paused.send_modify(|count| *count -= 1);
    }
}
