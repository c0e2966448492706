//! One call of the handler: the messages in it, what the handler says of each, and what the broker
//! is told then.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::message::Info;
use async_nats::jetstream::{AckKind, Message};
use futures_util::FutureExt;
use punctual_domain::{Backoff, DeadLetterOrigin, MessageEnvelope};
use punctual_ports::{Answer, DeadLetter};
use tokio::sync::OwnedSemaphorePermit;

use super::decode::decode;
use super::{Consumer, MOST_FAILURES, Place};
use crate::link::Link;
use crate::metric_names;

/// How long to wait for the handler's store before it is tried again.
const HOLD_BACK: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

/// A reason is for people; a handler's whole backtrace is not.
const LONGEST_REASON: usize = 1_000;

/// Gives messages back to the broker, for somebody else or for later.
pub(super) async fn give_back(link: &Link, messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        tell(link, &message, AckKind::Nak(None)).await;
    }
}

/// A message in hand.
struct InFlight {
    message: Message,
    place: Place,
    /// What it says, or what it is to be put down for.
    content: Result<MessageEnvelope, String>,
}

impl Consumer {
    /// Hands messages to the handler until all of them are answered for.
    pub(super) async fn hand_over(
        self: Arc<Self>,
        messages: Vec<Message>,
        lane: OwnedSemaphorePermit,
    ) {
        let mut rest: Vec<InFlight> = messages
            .into_iter()
            .map(|message| self.take_in(message))
            .collect();
        let mut held: Option<HeldBack> = None;
        let mut tries = 0;
        while !rest.is_empty() {
            if held.is_some() && self.is_stopping() {
                // The broker gives them to somebody else, or to us after the next start.
                self.until_nothing_is_fetched().await;
                give_back(&self.link, rest.into_iter().map(|it| it.message)).await;
                break;
            }
            rest = self.try_once(rest).await;
            if rest.is_empty() {
                break;
            }
            tries += 1;
            let held = held.get_or_insert_with(|| HeldBack::new(&self));
            held.note();
            let wait = HOLD_BACK.after(tries, &(std::process::id(), tries));
            let waiting = async {
                tokio::select! {
                    () = self.until_stopped() => {}
                    () = self.link.clock.sleep_for(wait) => {}
                }
            };
            self.while_telling_progress(&rest, waiting).await;
        }
        drop(lane);
    }

    fn take_in(&self, message: Message) -> InFlight {
        metrics::counter!(metric_names::RECEIVED).increment(1);
        let info = message.info();
        let place = info.as_ref().map_or_else(|_| Place::default(), place_of);
        if info.is_ok_and(|info| info.delivered > 1) {
            metrics::counter!(metric_names::REDELIVERED).increment(1);
        }
        let prefix = &self.link.settings.prefix;
        let content = decode(prefix, self.wish.topic, &message.message);
        InFlight {
            message,
            place,
            content,
        }
    }

    /// Calls the handler with what can be read, and tells the broker what became of each message.
    /// What has to wait for the handler's store, or for ours, comes back.
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
            self.while_telling_progress(&batch, handling).await
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
        let handling = async { self.wish.handler.handle(envelopes).await };
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

    /// Tells the broker what became of a message; answers false if that is not known yet.
    async fn settle(&self, it: &mut InFlight, answer: Option<Answer>) -> bool {
        match answer {
            Some(Answer::Done) => {
                self.forget(it.place);
                self.tell(it, AckKind::Ack).await;
                true
            }
            Some(Answer::Poison { reason }) => self.put_down(it, reason).await,
            Some(Answer::Pause { reason }) => {
                tracing::debug!(reason, "a message is held back");
                false
            }
            Some(Answer::RetryLater { reason }) => self.put_off(it, reason).await,
            // An answer that this version does not know is not a success.
            other => {
                self.put_off(it, format!("the handler answered {other:?}"))
                    .await
            }
        }
    }

    async fn put_off(&self, it: &mut InFlight, reason: String) -> bool {
        let failures = self.failed(it.place);
        if failures >= MOST_FAILURES {
            let reason = format!("it failed {failures} times: {reason}");
            return self.put_down(it, reason).await;
        }
        let first = self.link.settings.retry_delay;
        let put_off = Backoff {
            first,
            limit: first * 120,
        };
        let wait = put_off.after(failures, &it.place.sequence);
        tracing::warn!(reason, failures, "a message failed and is delivered again");
        self.tell(it, AckKind::Nak(Some(wait))).await;
        true
    }

    /// Puts a message down as a dead letter, and only then ends it.
    async fn put_down(&self, it: &mut InFlight, reason: String) -> bool {
        let dead_letter = self.dead_letter(it, &reason);
        let recorded = self.link.dead_letters.record(vec![dead_letter]).await;
        match recorded.map(|mut answers| answers.pop()) {
            Ok(Some(Ok(_))) => {
                metrics::counter!(metric_names::DEAD_LETTERS).increment(1);
                tracing::error!(
                    subject = %it.message.subject,
                    sequence = it.place.sequence,
                    reason,
                    "a message can never be handled and is kept as a dead letter"
                );
                self.forget(it.place);
                self.tell(it, AckKind::Term).await;
                true
            }
            failed => {
                let error = match failed {
                    Ok(Some(Err(error))) | Err(error) => error.to_string(),
                    _ => "there was no answer".to_owned(),
                };
                tracing::warn!(error, "a dead letter could not be recorded yet");
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
                let place = place_of(&info);
                // By its time, too: a stream that was made anew begins to count anew.
                let since = place.published.as_millis();
                let id = format!("{}:{}:{since}", info.stream, place.sequence);
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

    /// Does something while the broker hears from time to time that we still have these messages.
    async fn while_telling_progress<T>(
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
                        self.tell(it, AckKind::Progress).await;
                    }
                }
            }
        }
    }

    async fn tell(&self, it: &InFlight, what: AckKind) {
        tell(&self.link, &it.message, what).await;
    }
}

/// Tells the broker about a message. If it does not hear, it delivers the message again, which
/// changes nothing.
pub(super) async fn tell(link: &Link, message: &Message, what: AckKind) {
    if link.connection().is_none() {
        // It would only lie about, and belong to a delivery that is over.
        return;
    }
    if let Err(error) = message.ack_with(what).await {
        tracing::debug!(error, "the broker could not be told about a message");
    }
}

fn place_of(info: &Info<'_>) -> Place {
    let published = SystemTime::from(info.published);
    Place {
        sequence: info.stream_sequence,
        published: published.duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}

/// A lane that waits for the handler's store: as long as it lives, nothing is fetched.
struct HeldBack<'a> {
    consumer: &'a Consumer,
    is_noted: bool,
}

impl<'a> HeldBack<'a> {
    const fn new(consumer: &'a Consumer) -> Self {
        Self {
            consumer,
            is_noted: false,
        }
    }

    fn note(&mut self) {
        if !self.is_noted {
            self.is_noted = true;
            metrics::counter!(metric_names::PAUSED).increment(1);
            tracing::warn!(topic = %self.consumer.wish.topic, "the store cannot be used: no more messages are fetched until it can");
            self.consumer.held_back.send_modify(|count| *count += 1);
        }
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        if self.is_noted {
            self.consumer.held_back.send_modify(|count| *count -= 1);
        }
    }
}
