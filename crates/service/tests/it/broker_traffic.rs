//! Another program at the broker: it sends commands, reads events, and holds both against the ledger.
//!
//! It goes on through whatever happens to the broker. A command counts once JetStream has
//! acknowledged it; until then it is sent again under the same id. Events come through a durable
//! consumer and are acknowledged once they are in the book.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use punctual_adapters_nats::async_nats::jetstream::consumer::{PullConsumer, pull};
use punctual_adapters_nats::async_nats::jetstream::message::PublishMessage;
use punctual_adapters_nats::async_nats::jetstream::{self, Context, Message as Delivered};
use punctual_adapters_nats::async_nats::{ConnectOptions, Error, header};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::{
    DueTimeReached, EnvelopeId, MessageEnvelope, MessageMetadata, ScheduleTimer, TenantId,
    TimerKey, Timestamp,
};
use punctual_ports::{ClockPort, IdPort};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::broker::Broker;
use crate::ledger::Ledger;
use crate::running::firing;

/// How long something may take that is sure to happen, with a broker that was just started.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_mins(1);
/// How many commands are on their way at once.
const WINDOW: usize = 64;
/// After this long without an acknowledgement a command is sent again.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two tries, and between two polls.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one request for events waits at the broker, and how long we wait for its answer.
const FETCH_TIMEOUT: Duration = Duration::from_millis(500);
const ONE_ANSWER: Duration = Duration::from_secs(1);
/// Events that were not acknowledged, as when the broker was killed, come again after this.
const REDELIVERY: Duration = Duration::from_secs(2);
const READER: &str = "reader";

/// An event, as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) event: DueTimeReached,
    pub(crate) received_at: Timestamp,
}

/// What was sent and what came back.
pub(crate) struct Book {
    pub(crate) ledger: Ledger,
    pub(crate) asked: usize,
    pub(crate) acknowledged: usize,
    pub(crate) seen: Vec<Seen>,
    /// What was read, by its place in the stream and when it got there, and how often the broker
    /// handed one over again: it writes our acknowledgements down some time later.
    places: BTreeSet<(u64, Timestamp)>,
    redelivered: usize,
}

impl Book {
    pub(crate) fn count(&self, key: &TimerKey) -> usize {
        self.seen.iter().filter(|it| it.event.key() == *key).count()
    }
}

/// The program.
pub(crate) struct Traffic {
    runtime: Runtime,
    program: Arc<Program>,
}

/// What its tasks share.
struct Program {
    clock: SystemClock,
    prefix: String,
    context: Context,
    window: Arc<Semaphore>,
    book: Mutex<Book>,
}

impl Traffic {
    /// Connects, and begins to read. The names are the broker's.
    pub(crate) fn at(broker: &Broker) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let options = ConnectOptions::new().reconnect_delay_callback(|_| PAUSE);
        let context = runtime.block_on(async {
            let client = options.connect(&broker.url).await.unwrap();
            let context = jetstream::ContextBuilder::new().timeout(ACK_TIMEOUT);
            context.build(client)
        });
        let program = Arc::new(Program {
            clock: SystemClock::start().unwrap(),
            prefix: broker.prefix.clone(),
            context,
            window: Arc::new(Semaphore::new(WINDOW)),
            book: Mutex::new(Book {
                ledger: Ledger::new(),
                asked: 0,
                acknowledged: 0,
                seen: Vec::new(),
                places: BTreeSet::new(),
                redelivered: 0,
            }),
        });
        runtime.spawn(Arc::clone(&program).read());
        Self { runtime, program }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.program.book()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.program.clock.now()
    }

    /// Sends one command for each key, as fast as the broker takes them, and does not wait for that.
    /// They are due within so long.
    pub(crate) fn send(&self, keys: Vec<TimerKey>, within: Duration) {
        let program = Arc::clone(&self.program);
        self.runtime.spawn(async move {
            let steps = u32::try_from(keys.len().max(1)).unwrap();
            for (n, key) in (0..).zip(keys) {
                let permit = Arc::clone(&program.window).acquire_owned().await.unwrap();
                // Spread evenly, but not in the order in which they are sent.
                let lead = within * (n * 7 % steps) / steps;
                let program = Arc::clone(&program);
                tokio::spawn(async move {
                    program.send_one(key, lead).await;
                    drop(permit);
                });
            }
        });
    }

    /// Sends commands that are due within so long, and waits until all of them have fired.
    pub(crate) fn fire(&self, keys: &[TimerKey], within: Duration) {
        self.send(keys.to_vec(), within);
        self.until("all of them have fired", |book| {
            keys.iter().all(|key| book.count(key) > 0)
        });
    }

    /// Waits until the book says so.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Book) -> bool) {
        self.wait_for(what, || condition(&self.book()));
    }

    /// Waits until something has become true.
    pub(crate) fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let clock = &self.program.clock;
        let begun = clock.monotonic();
        while !condition() {
            let waited = clock.monotonic().saturating_sub(begun);
            assert!(
                waited < LONG_PATIENCE,
                "{what}: not within {LONG_PATIENCE:?}: {}",
                self.report()
            );
            self.pass(PAUSE);
        }
    }

    /// Waits until every command is acknowledged, every event is there, and the stream is read to
    /// its end.
    pub(crate) fn until_all_is_done(&self) {
        self.until("every command is acknowledged", |book| {
            book.acknowledged == book.asked
        });
        self.until("every acknowledged command has its event", |book| {
            book.ledger.owed() == 0
        });
        // Not while the book is locked: the reader needs it.
        self.wait_for("the stream is read to its end", || {
            let left = self.runtime.block_on(self.program.unread());
            left.is_ok_and(|left| left == 0)
        });
    }

    /// Lets time pass in which the world goes on.
    pub(crate) fn pass(&self, time: Duration) {
        self.runtime.block_on(self.program.clock.sleep_for(time));
    }

    pub(crate) fn report(&self) -> String {
        let book = self.book();
        format!(
            "{} commands acknowledged of {}, {} events, {} of them repeated ({} handed over again), \
             {} owed",
            book.acknowledged,
            book.asked,
            book.seen.len(),
            book.ledger.duplicates,
            book.redelivered,
            book.ledger.owed(),
        )
    }
}

impl Program {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    async fn send_one(&self, key: TimerKey, lead: Duration) {
        let now = self.clock.now();
        let due_at = now.saturating_add(lead);
        {
            let mut book = self.book();
            book.ledger.asked(&key, due_at);
            book.asked += 1;
        }
        let command = MessageEnvelope {
            id: EnvelopeId::from_uuid(UuidIds.next_id()),
            timestamp: now,
            metadata: MessageMetadata::default(),
            message: ScheduleTimer {
                tenant_id: key.tenant_id.clone(),
                service_call_id: key.service_call_id,
                due_at,
                data: None,
            }
            .into(),
        };
        let (tenant, call) = (&key.tenant_id, key.service_call_id);
        let subject = format!("{}.timer.commands.{tenant}.{call}", self.prefix);
        while self.publish(&subject, &command).await.is_err() {
            self.clock.sleep_for(PAUSE).await;
        }
        let mut book = self.book();
        book.ledger.acknowledged(&key, due_at);
        book.acknowledged += 1;
    }

    async fn publish(&self, subject: &str, command: &MessageEnvelope) -> Result<(), Error> {
        let message = PublishMessage::build()
            .payload(command.to_json()?.into())
            .message_id(command.id.to_string());
        let sent = self.context.send_publish(subject.to_owned(), message);
        sent.await?.await?;
        Ok(())
    }

    async fn read(self: Arc<Self>) {
        loop {
            if self.read_some().await.is_err() {
                self.clock.sleep_for(PAUSE).await;
            }
        }
    }

    /// Reads until nothing comes or the reading breaks off.
    async fn read_some(&self) -> Result<(), Error> {
        let consumer = self.consumer().await?;
        loop {
            let fetch = consumer.batch().max_messages(500).expires(FETCH_TIMEOUT);
            let mut batch = fetch.messages().await?;
            let mut has_answered = false;
            loop {
                let message = tokio::select! {
                    message = batch.next() => message,
                    () = self.clock.sleep_for(ONE_ANSWER) => return Ok(()),
                };
                let Some(message) = message else { break };
                let message = message?;
                has_answered = true;
                self.note(&message)?;
                message.ack().await?;
            }
            if !has_answered {
                return Ok(());
            }
        }
    }

    /// Our place in the stream, which is made anew if the stream was.
    async fn consumer(&self) -> Result<PullConsumer, Error> {
        let stream = format!("{}-EVENTS", self.prefix);
        let stream = self.context.get_stream(stream).await?;
        let place = pull::Config {
            durable_name: Some(READER.to_owned()),
            filter_subject: format!("{}.timer.events.>", self.prefix),
            ack_wait: REDELIVERY,
            ..pull::Config::default()
        };
        Ok(stream.get_or_create_consumer(READER, place).await?)
    }

    /// How many events were not read yet.
    async fn unread(&self) -> Result<u64, Error> {
        let info = self.consumer().await?.info().await?.clone();
        Ok(info.num_pending + info.num_ack_pending as u64)
    }

    fn note(&self, message: &Delivered) -> Result<(), Error> {
        let event = firing(std::str::from_utf8(&message.payload)?);
        let id = message.headers.as_ref();
        let id = id.and_then(|headers| headers.get(header::NATS_MESSAGE_ID));
        let info = message.info()?;
        let published = Timestamp::from(SystemTime::from(info.published));
        let place = (info.stream_sequence, published);
        let mut book = self.book();
        book.ledger.fired(&event);
        if id.map(header::HeaderValue::as_str) != Some(&event.firing_id.to_string()) {
            let what = format!("its message has the id {id:?} in place of its firing id");
            book.ledger.violate(&event.key(), &what);
        }
        let is_again = !book.places.insert(place);
        book.redelivered += usize::from(is_again);
        book.seen.push(Seen {
            event,
            received_at: self.clock.now(),
        });
        Ok(())
    }
}

/// `count` keys of a few tenants, with names that begin alike.
pub(crate) fn keys(name: &str, count: usize) -> Vec<TimerKey> {
    let key = |n: usize| {
        let tenant = TenantId::new(&format!("t{}", n % 5)).unwrap();
        TimerKey::named(tenant, &format!("{name}-{n}"))
    };
    (0..count).map(key).collect()
}
