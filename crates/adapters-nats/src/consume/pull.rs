//! Pull requests to the broker.
//!
//! The client library has them, too, but a dropped batch leaves its request behind. Messages that the
//! broker sends to such a request are redelivered only after the ack wait, and nats-server 2.9 even loses
//! track of messages nacked meanwhile. So a request here is short, and is always awaited to its end.

use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};

use crate::link::Link;

/// Time the broker waits for messages before it ends a request without any; also the time a stop may
/// take.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Additional time after which the request counts as forgotten: a broker whose stream was recreated no
/// longer has the consumer, and does not respond to its requests.
const SILENCE: Duration = Duration::from_secs(3);

/// Maximum time to gather messages. The broker said that there are more, so this is only reached if
/// another process gets them.
const GATHERING: Duration = Duration::from_millis(20);

/// Maximum number of bytes of one request. It has to exceed the largest message of the broker, which
/// would never be delivered otherwise.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Requests messages of one durable consumer, one request at a time.
pub(super) struct Puller<'a> {
    link: &'a Link,
    subject: String,
    inbox: String,
    messages: Subscriber,
    /// Number of messages still to come for the request in flight.
    open: usize,
    /// Messages that arrived and were not returned yet.
    gathered: Vec<Message>,
    /// Why the broker ended the request, if that is an error.
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

    /// Whether a request is in flight, or something of it was not returned yet.
    pub(super) const fn is_waiting(&self) -> bool {
        self.open > 0 || !self.gathered.is_empty() || self.ended.is_some()
    }

    /// Requests at most `most` messages.
    pub(super) async fn request(&mut self, most: usize) -> Result<(), String> {
        let bytes = MAX_REQUEST_BYTES.max(self.link.client.max_payload() * 2);
        let expires = REQUEST_LIMIT.as_nanos();
        let request = format!("{{\"batch\":{most},\"expires\":{expires},\"max_bytes\":{bytes}}}");
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let client = &self.link.client;
        let sent = client.publish_with_reply(subject, inbox, request.into());
        sent.await.map_err(|error| error.to_string())?;
        self.open = most;
        Ok(())
    }

    /// At least one message; `None` when the request has ended. While the broker has more they are gathered,
    /// for [`GATHERING`] at most: a handler called for each network packet commits ten times as often.
    /// Cancel safe.
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

    /// Adds the messages that arrived since, without waiting.
    pub(super) fn top_up(&mut self, messages: &mut Vec<Message>, most: usize) {
        self.take_in_what_is_here(most.saturating_sub(messages.len()));
        messages.append(&mut self.gathered);
    }

    fn take_in_what_is_here(&mut self, most: usize) {
        while self.open > 0 && self.gathered.len() < most {
            match self.messages.next().now_or_never() {
                Some(Some(arrived)) => self.take_in(arrived),
                // The next wait reports a closed connection.
                Some(None) | None => return,
            }
        }
    }

    /// Whether the last message says that there are more, which may go to another process.
    fn has_more_to_come(&self) -> bool {
        let last = self.gathered.last().map(Message::info);
        last.is_some_and(|info| info.is_ok_and(|info| info.pending > 0))
    }

    /// Waits for the next arrival.
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

    /// Handles an arrival: a message, or the status of the request.
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
                // Reaching the requested number of bytes is no error.
                if status != StatusCode::REQUEST_TERMINATED || !words.contains("MaxBytes") {
                    self.ended = Some(format!("the broker ended the request: {status} {words}"));
                }
            }
        }
    }

    /// Awaits the end of the request, and returns the messages that arrived meanwhile.
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
