//! Asking the broker for messages, and giving back what is not handled.
//!
//! The client library can do this too, but who drops its batches leaves a request behind. Messages
//! that the broker gives to such a request are heard of only when it loses patience, and
//! nats-server 2.9 even mislays what is given back while one is waiting. So a request here is short,
//! and is always heard to its end.

use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};

use crate::link::Link;

/// How long the broker waits for messages before it says that there are none; also how long it may
/// take to stop.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// How much longer we wait before we believe that it has forgotten the request, or us: a broker whose
/// stream was made anew no longer knows our consumer, and says nothing to who asks for its messages.
const SILENCE: Duration = Duration::from_secs(3);

/// How long messages are gathered that the broker has for us. As it says that there are more, they
/// are on their way, and this is only reached if another process gets them.
const GATHERING: Duration = Duration::from_millis(20);

/// At most so many bytes come at once. It has to be more than the largest message that a broker may
/// carry, which would never come otherwise.
const MOST_BYTES: usize = 16 << 20;

/// Asks for messages of one durable consumer, one request at a time.
pub(super) struct Puller<'a> {
    link: &'a Link,
    subject: String,
    inbox: String,
    messages: Subscriber,
    /// How many messages are still to come for the request under way.
    open: usize,
    /// Messages that have come and were not given out yet.
    gathered: Vec<Message>,
    /// Why the broker ended the request, if that was no good reason.
    ended: Option<String>,
}

impl<'a> Puller<'a> {
    pub(super) async fn new(link: &'a Link, durable: &PullConsumer) -> Result<Self, String> {
        let info = durable.cached_info();
        let inbox = link.client.new_inbox();
        let messages = link.client.subscribe(inbox.clone()).await;
        Ok(Self {
            link,
            subject: format!(
                "$JS.API.CONSUMER.MSG.NEXT.{}.{}",
                info.stream_name, info.name
            ),
            inbox,
            messages: messages.map_err(|error| error.to_string())?,
            open: 0,
            gathered: Vec::new(),
            ended: None,
        })
    }

    /// Whether a request is under way, or something of it has yet to be given out.
    pub(super) const fn is_waiting(&self) -> bool {
        self.open > 0 || !self.gathered.is_empty() || self.ended.is_some()
    }

    /// Asks for so many messages at most.
    pub(super) async fn request(&mut self, most: usize) -> Result<(), String> {
        let bytes = MOST_BYTES.max(self.link.client.max_payload() * 2);
        let expires = REQUEST_LIMIT.as_nanos();
        let request = format!("{{\"batch\":{most},\"expires\":{expires},\"max_bytes\":{bytes}}}");
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let client = &self.link.client;
        let asked = client.publish_with_reply(subject, inbox, request.into());
        asked.await.map_err(|error| error.to_string())?;
        self.open = most;
        Ok(())
    }

    /// Some messages, one at least; `None` when the request has ended. As long as the broker says that
    /// it has more for us they are gathered, for [`GATHERING`] at most: a handler that gets what one
    /// packet of the network held commits ten times as often. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<Vec<Message>>, String> {
        while self.open > 0 && self.gathered.is_empty() {
            let arrived = self.arrived().await?;
            self.take_in(arrived);
        }
        let patience = self.link.clock.sleep_for(GATHERING);
        tokio::pin!(patience);
        loop {
            self.take_in_what_is_here(most);
            if self.open == 0 || self.gathered.len() >= most || !self.has_more_to_come() {
                break;
            }
            tokio::select! {
                biased;
                Some(arrived) = self.messages.next() => self.take_in(arrived),
                () = &mut patience => break,
            }
        }
        if !self.gathered.is_empty() {
            return Ok(Some(std::mem::take(&mut self.gathered)));
        }
        self.ended.take().map_or(Ok(None), Err)
    }

    /// Adds what has come since, without waiting.
    pub(super) fn top_up(&mut self, messages: &mut Vec<Message>, most: usize) {
        self.take_in_what_is_here(most.saturating_sub(messages.len()));
        messages.append(&mut self.gathered);
    }

    fn take_in_what_is_here(&mut self, most: usize) {
        while self.open > 0 && self.gathered.len() < most {
            match self.messages.next().now_or_never() {
                Some(Some(arrived)) => self.take_in(arrived),
                // What a closed connection means is found out by the next to wait.
                Some(None) | None => return,
            }
        }
    }

    /// Whether the broker said with the last message that there are more. They may go to another
    /// process, so that this is no promise.
    fn has_more_to_come(&self) -> bool {
        let last = self.gathered.last().map(Message::info);
        last.is_some_and(|info| info.is_ok_and(|info| info.pending > 0))
    }

    /// What comes next.
    async fn arrived(&mut self) -> Result<async_nats::Message, String> {
        let clock = &self.link.clock;
        let patience = clock.monotonic().saturating_add(REQUEST_LIMIT + SILENCE);
        loop {
            tokio::select! {
                biased;
                arrived = self.messages.next() => {
                    let closed = || "the connection was closed".to_owned();
                    return arrived.ok_or_else(closed);
                }
                () = clock.sleep_for(REQUEST_LIMIT + SILENCE) => {
                    if clock.monotonic() >= patience {
                        self.open = 0;
                        return Err("the broker does not answer".to_owned());
                    }
                }
            }
        }
    }

    /// Tells messages from what the broker says about the request.
    fn take_in(&mut self, arrived: async_nats::Message) {
        match arrived.status {
            None | Some(StatusCode::OK) => {
                self.open = self.open.saturating_sub(1);
                self.gathered.push(Message {
                    message: arrived,
                    context: self.link.context.clone(),
                });
            }
            Some(StatusCode::IDLE_HEARTBEAT) => {}
            // There was nothing more.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.open = 0,
            Some(status) => {
                self.open = 0;
                let words = arrived.description.unwrap_or_default();
                // That as many bytes came as were asked for is no failure.
                if status != StatusCode::REQUEST_TERMINATED || !words.contains("MaxBytes") {
                    self.ended = Some(format!("the broker ended the request: {status} {words}"));
                }
            }
        }
    }

    /// Hears the request to its end, and returns what came meanwhile.
    pub(super) async fn close(mut self) -> Vec<Message> {
        let mut rest = Vec::new();
        while self.is_waiting() && self.link.connection().is_some() {
            match self.next(usize::MAX).await {
                Ok(Some(mut messages)) => rest.append(&mut messages),
                Ok(None) | Err(_) => break,
            }
        }
        rest.append(&mut self.gathered);
        rest
    }
}
