//! Consuming: messages are fetched when there is room for them, delivered in batches, and acknowledged
//! only after their handler has answered.
//!
//! | resource | limit |
//! |---|---|
//! | messages in flight to the handler | [`max_calls`] times its batch size; one at a time: 256 calls, 64 of one tenant alone |
//! | messages fetched and not yet delivered | the same again, and 16 MiB; one at a time: [`fair_queue`] |
//! | messages fetched, deferred or failed, and not settled | `max_ack_pending` of the consumer |
//! | failures of a message | [`MAX_FAILURES`], then it is dead-lettered |
//! | fetching while a handler answers with a pause | none; the messages in flight are retried |
//!
//! A handler that takes one message at a time is called for tenants in turn, and a tenant whose calls hang
//! or are slow delays no other: see [`fair_queue`] and [`turns`]. One that takes several gets the messages
//! of all tenants as they arrive.

mod decode;
mod delivery;
mod fair_queue;
mod fetch;
mod pull;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_trait::async_trait;
use punctual_ports::{PortError, PortErrorKind, Subscribe, Subscription};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use self::fair_queue::{CALLS, FairQueue};
use crate::link::Link;
use crate::names::Source;
use crate::{NatsError, lock};

/// Maximum number of concurrent calls of a handler: 32 of two messages, two of a thousand.
fn max_calls(max_batch: usize) -> usize {
    match max_batch {
        1 => CALLS,
        _ => (64 / max_batch).max(2),
    }
}

/// Number of failures after which a message is dead-lettered.
const MAX_FAILURES: u32 = 20;

/// Maximum number of messages whose failures are counted: as many as a consumer may have unsettled. The
/// count of a message beyond it starts again.
const MAX_REMEMBERED: usize = 100_000;

/// Position of a message: its sequence, and when it was published, since a recreated stream starts its
/// sequences again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Position {
    sequence: u64,
    published: Duration,
}

/// A subscription and its tasks.
pub(crate) struct Subscribed {
    consumer: Arc<Consumer>,
    tasks: Vec<JoinHandle<()>>,
}

/// State shared by the tasks of one subscription.
pub(crate) struct Consumer {
    link: Arc<Link>,
    request: Subscribe,
    stop: watch::Sender<bool>,
    /// One permit for each concurrent call of the handler.
    call_permits: Arc<Semaphore>,
    call_limit: u32,
    /// Number of tasks that still fetch.
    fetching: watch::Sender<usize>,
    /// Number of paused calls.
    paused: watch::Sender<usize>,
    /// Number of failures of each message.
    failures: Mutex<HashMap<Position, u32>>,
    /// Messages waiting for their turn, if the handler takes one at a time.
    turns: Mutex<FairQueue<Message>>,
    /// Notified when there may be room in `turns` again.
    has_room: Notify,
    /// Released when the subscription is dropped.
    _registration: Arc<()>,
}

impl Subscribed {
    /// Starts fetching as soon as the broker is ready. A broker that is ready and refuses the consumer is an
    /// error at once.
    pub(crate) async fn start(
        link: &Arc<Link>,
        request: Subscribe,
        registration: Arc<()>,
    ) -> Result<Self, PortError> {
        let call_limit = max_calls(request.max_batch);
        let sources = Source::of(request.topic);
        let consumer = Arc::new(Consumer {
            link: Arc::clone(link),
            stop: watch::Sender::new(false),
            call_permits: Arc::new(Semaphore::new(call_limit)),
            call_limit: u32::try_from(call_limit).unwrap_or(u32::MAX),
            fetching: watch::Sender::new(sources.len()),
            paused: watch::Sender::new(0),
            failures: Mutex::default(),
            turns: Mutex::default(),
            has_room: Notify::new(),
            request,
            _registration: registration,
        });
        if link.ready().is_ok() {
            for source in &sources {
                // Any other error may be transient, and is retried.
                if let Err(NatsError::Unsuitable { what }) = consumer.durable(*source).await {
                    return Err(PortError::new(PortErrorKind::Rejected, "subscribe", what));
                }
            }
        }
        let fetch = |source| tokio::spawn(Arc::clone(&consumer).fetch(source));
        let mut tasks: Vec<JoinHandle<()>> = sources.into_iter().map(fetch).collect();
        if consumer.takes_turns() {
            tasks.push(tokio::spawn(Arc::clone(&consumer).extend_waiting()));
        }
        Ok(Self { consumer, tasks })
    }
}

impl Consumer {
    /// Counts a failure of a message, and returns the number of them.
    fn failed(&self, position: Position) -> u32 {
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_REMEMBERED && !failures.contains_key(&position) {
            failures.clear();
        }
        let count = failures.entry(position).or_default();
        *count += 1;
        *count
    }

    fn forget(&self, position: Position) {
        lock(&self.failures).remove(&position);
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    async fn until_stopped(&self) {
        // An error means that the sender is dropped, which is the same.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits until fetching has stopped: a message nacked before that would be redelivered to us.
    async fn until_nothing_is_fetched(&self) {
        let _ = self
            .fetching
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }

    /// Waits until no call is paused.
    async fn until_resumed(&self) {
        let _ = self.paused.subscribe().wait_for(|count| *count == 0).await;
    }
}

#[async_trait]
impl Subscription for Subscribed {
    async fn stop(&self) {
        self.consumer.stop.send_replace(true);
        // Once all permits are acquired, no handler runs or will.
        let all_permits = self
            .consumer
            .call_permits
            .acquire_many(self.consumer.call_limit);
        // Waiting messages need not wait for the slowest handler: no call starts any more.
        let (permits, ()) = tokio::join!(all_permits, self.consumer.nak_waiting());
        if permits.is_ok() {
            // Closed, so that another stop does not wait for them.
            self.consumer.call_permits.close();
        }
        if self.consumer.link.connection().is_some() {
            // The last acknowledgements are still in flight.
            let _ = self.consumer.link.client.flush().await;
        }
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.consumer.stop.send_replace(true);
        for task in &self.tasks {
            task.abort();
        }
    }
}
