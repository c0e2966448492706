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

/// How much longer we wait before we believe that it has forgotten the request.
const SILENCE: Duration = Duration::from_secs(8);

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
        })
    }

    /// Whether a request is under way.
    pub(super) const fn is_waiting(&self) -> bool {
        self.open > 0
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

    /// Some messages, one at least and as many as are there already; `None` when the request has
    /// ended. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<Vec<Message>>, String> {
        while self.open > 0 {
            let Some(arrived) = self.arrived().await? else {
                return Ok(None);
            };
            if let Some(first) = self.sort(arrived)? {
                let mut chunk = vec![first];
                while chunk.len() < most {
                    let Some(Some(arrived)) = self.messages.next().now_or_never() else {
                        break;
                    };
                    chunk.extend(self.sort(arrived)?);
                }
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// What comes next; `None` if the broker is silent for too long.
    async fn arrived(&mut self) -> Result<Option<async_nats::Message>, String> {
        let clock = &self.link.clock;
        let patience = clock.monotonic().saturating_add(REQUEST_LIMIT + SILENCE);
        loop {
            tokio::select! {
                biased;
                arrived = self.messages.next() => {
                    let closed = || "the connection was closed".to_owned();
                    return arrived.ok_or_else(closed).map(Some);
                }
                () = clock.sleep_for(REQUEST_LIMIT + SILENCE) => {
                    if clock.monotonic() >= patience {
                        tracing::debug!("the broker is silent: it is asked again");
                        self.open = 0;
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Tells messages from what the broker says about the request.
    fn sort(&mut self, arrived: async_nats::Message) -> Result<Option<Message>, String> {
        match arrived.status {
            None | Some(StatusCode::OK) => {
                self.open = self.open.saturating_sub(1);
                Ok(Some(Message {
                    message: arrived,
                    context: self.link.context.clone(),
                }))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            // There was nothing more.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.open = 0;
                Ok(None)
            }
            Some(status) => {
                self.open = 0;
                let words = arrived.description.unwrap_or_default();
                Err(format!("the broker ended the request: {status} {words}"))
            }
        }
    }

    /// Hears the request to its end, and returns what came meanwhile.
    pub(super) async fn close(mut self) -> Vec<Message> {
        let mut rest = Vec::new();
        while self.open > 0 && self.link.connection().is_some() {
            match self.next(usize::MAX).await {
                Ok(Some(mut messages)) => rest.append(&mut messages),
                Ok(None) | Err(_) => break,
            }
        }
        rest
    }
}
