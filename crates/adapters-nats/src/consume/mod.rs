//! Consuming: messages are fetched when there is room for them, handed over in batches, and each is
//! acknowledged only after the handler has said that it is done.
//!
//! | what | bounded by |
//! |---|---|
//! | messages with the handler | [`room`] times its batch size; one at a time: 256 calls, 64 of one tenant alone |
//! | messages fetched and not yet handed over | the same again, and 16 MiB; one at a time: [`fair_queue`] |
//! | messages fetched, put off or failed, and not done | `max_ack_pending` of the consumer |
//! | tries of a message that fails by itself | [`MOST_FAILURES`], then it is a dead letter |
//! | fetching while the handler's store is away | nothing is fetched; what is in hand is tried again |
//!
//! A handler that takes one message at a time is called for tenants in turn, and one whose calls hang
//! or are slow holds up no other: see [`fair_queue`] and [`turns`]. One that takes several gets them as
//! they come, whosever they are.

mod decode;
mod fair_queue;
mod fetch;
mod lane;
mod pull;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_trait::async_trait;
use punctual_ports::{PortError, PortErrorKind, Subscribe, Subscription};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use self::fair_queue::{CALLS, FairQueue};
use crate::NatsError;
use crate::link::Link;
use crate::names::Filter;

/// How many calls of a handler run at once: 32 of two messages, two of a thousand.
fn room(max_batch: usize) -> usize {
    match max_batch {
        1 => CALLS,
        _ => (64 / max_batch).max(2),
    }
}

/// A message that has failed so often by itself will not succeed.
const MOST_FAILURES: u32 = 20;

/// How many failing messages are remembered: as many as a consumer may have unfinished. What is
/// forgotten gets its tries anew.
const MOST_REMEMBERED: usize = 100_000;

/// Where a message is: its sequence, and when it was published. A stream that was made anew begins to
/// count anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Place {
    sequence: u64,
    published: Duration,
}

/// A subscription, and everything that runs for it.
pub(crate) struct Subscribed {
    consumer: Arc<Consumer>,
    tasks: Vec<JoinHandle<()>>,
}

/// What the tasks of one subscription share.
pub(crate) struct Consumer {
    link: Arc<Link>,
    wish: Subscribe,
    stop: watch::Sender<bool>,
    /// One for each call of the handler that may run.
    lanes: Arc<Semaphore>,
    lane_count: u32,
    /// How many tasks still fetch.
    fetching: watch::Sender<usize>,
    /// How many lanes wait for the handler's store.
    held_back: watch::Sender<usize>,
    /// How often messages have failed by themselves.
    failures: Mutex<HashMap<Place, u32>>,
    /// What waits for its turn, if the handler takes one message at a time.
    turns: Mutex<FairQueue<Message>>,
    /// Rung when there may be room in `turns` again.
    has_room: Notify,
    /// Given back when the subscription is gone.
    _place: Arc<()>,
}

impl Subscribed {
    /// Begins to fetch, as soon as the broker is ready. A broker that is there and refuses the
    /// consumer is an error now.
    pub(crate) async fn begin(
        link: &Arc<Link>,
        wish: Subscribe,
        place: Arc<()>,
    ) -> Result<Self, PortError> {
        let lane_count = room(wish.max_batch);
        let consumer = Arc::new(Consumer {
            link: Arc::clone(link),
            stop: watch::Sender::new(false),
            lanes: Arc::new(Semaphore::new(lane_count)),
            lane_count: u32::try_from(lane_count).unwrap_or(u32::MAX),
            fetching: watch::Sender::new(Filter::ALL.len()),
            held_back: watch::Sender::new(0),
            failures: Mutex::default(),
            turns: Mutex::default(),
            has_room: Notify::new(),
            wish,
            _place: place,
        });
        if link.ready().is_ok() {
            for filter in Filter::ALL {
                // Whatever else is wrong may pass, and is tried again.
                if let Err(NatsError::Unsuitable { what }) = consumer.durable(filter).await {
                    return Err(PortError::new(PortErrorKind::Rejected, "subscribe", what));
                }
            }
        }
        let mut tasks =
            Vec::from(Filter::ALL.map(|filter| tokio::spawn(Arc::clone(&consumer).fetch(filter))));
        if consumer.takes_turns() {
            tasks.push(tokio::spawn(Arc::clone(&consumer).keep_what_waits()));
        }
        Ok(Self { consumer, tasks })
    }
}

impl Consumer {
    fn failures(&self) -> std::sync::MutexGuard<'_, HashMap<Place, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a message failed by itself, and answers how often that was.
    fn failed(&self, place: Place) -> u32 {
        let mut failures = self.failures();
        if failures.len() >= MOST_REMEMBERED && !failures.contains_key(&place) {
            failures.clear();
        }
        let count = failures.entry(place).or_default();
        *count += 1;
        *count
    }

    fn forget(&self, place: Place) {
        self.failures().remove(&place);
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    async fn until_stopped(&self) {
        // An error means that everybody is gone, which is the same.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits until nothing is fetched any more: what is given back before that would come to us
    /// again.
    async fn until_nothing_is_fetched(&self) {
        let _ = self
            .fetching
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }

    /// Waits until no lane is held back.
    async fn until_let_through(&self) {
        let _ = self
            .held_back
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }
}

#[async_trait]
impl Subscription for Subscribed {
    async fn stop(&self) {
        self.consumer.stop.send_replace(true);
        // Whoever has all lanes knows that no handler runs and that none will.
        let all_lanes = self.consumer.lanes.acquire_many(self.consumer.lane_count);
        // What waits has no need to wait for the slowest handler: no call begins any more.
        let (lanes, ()) = tokio::join!(all_lanes, self.consumer.give_back_what_waits());
        if lanes.is_ok() {
            // Closed rather than kept: whoever stops it again need not wait for them.
            self.consumer.lanes.close();
        }
        if self.consumer.link.connection().is_some() {
            // What was acknowledged last is still on its way.
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
