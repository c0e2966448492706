//! The connection to the broker: whether it is there, whether its streams are what we need, and
//! whether it still has what it acknowledged.
//!
//! Nothing is published over a connection before all of that was looked at: a broker that lost its
//! tail would otherwise be given new messages in the place of the lost ones, and never be found out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::connection::State;
use async_nats::jetstream::stream::{Info, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, context::ContextBuilder};
use async_nats::{Client, Event};
use punctual_domain::{Backoff, Timestamp};
use punctual_ports::{
    BusPositionPort, ClockPort, DataLoss, DeadLetterPort, PortError, PortErrorKind,
};
use tokio::sync::{Notify, Semaphore, watch};

use crate::connect::{dial, options};
use crate::names::StreamKind;
use crate::progress::Progress;
use crate::tracker::{Found, Looked, StreamState, Tracker, republished};
use crate::{NatsError, NatsParts, NatsSettings, metric_names, streams};

/// How often the streams are looked at although nothing seems to have happened.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How often the position is kept while messages are published.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// How long after a stream was removed it is made anew. nats-server 2.9 removes its files meanwhile, and
/// takes those of a new stream along if that comes too soon.
const AFTER_REMOVAL: Duration = Duration::from_secs(1);

/// How often somebody is reminded of a broker that cannot be used.
const REMIND_EVERY: Duration = Duration::from_mins(1);

/// How long to wait between tries while the broker cannot be used.
const LOOKS: Backoff = Backoff {
    first: Duration::from_millis(250),
    limit: Duration::from_secs(10),
};

/// How long to wait between tries to connect.
const CONNECTS: Backoff = Backoff {
    first: Duration::from_millis(50),
    limit: Duration::from_secs(5),
};

/// How many windows of messages may be on the way at once, of all publishes together.
const WINDOWS: usize = 8;

/// Whether messages can be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// There is no connection, or what is behind it does not answer.
    Down(String),
    /// There is one, and what is behind it would lose messages.
    Refused(String),
    /// Everything was looked at over this connection.
    Ready(ConnectionId),
}

/// Tells one connection from every other: how many there were before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    pub(crate) const fn nth(number: u64) -> Self {
        Self(number)
    }
}

/// What all parts of the bus share.
pub(crate) struct Link {
    pub(crate) settings: NatsSettings,
    pub(crate) client: Client,
    pub(crate) context: jetstream::Context,
    pub(crate) clock: Arc<dyn ClockPort>,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    positions: Arc<dyn BusPositionPort>,
    state: watch::Sender<LinkState>,
    connections: watch::Receiver<u64>,
    look: Notify,
    tracker: Mutex<Tracker>,
    has_loss: watch::Sender<bool>,
    /// Why the last try to connect has failed.
    trouble: Trouble,
    /// Whether the streams were ever there.
    was_ready: AtomicBool,
    /// One for each message that may be on the way without an acknowledgement, of all publishes.
    pub(crate) permits: Arc<Semaphore>,
    progress: Mutex<Progress>,
}

type Trouble = Arc<Mutex<Option<String>>>;

impl Link {
    /// Connects, or begins to. A broker that does not answer is waited for; one that does not let us
    /// in or that would lose messages is an error now, while somebody looks.
    pub(crate) async fn open(
        settings: NatsSettings,
        parts: NatsParts,
    ) -> Result<Arc<Self>, NatsError> {
        let (changed, connections) = watch::channel(0);
        let changed = Arc::new(changed);
        let trouble = Arc::new(Mutex::new(None));
        let watched = || -> Result<_, NatsError> {
            let (changed, trouble) = (Arc::clone(&changed), Arc::clone(&trouble));
            let spread = std::process::id();
            let options = options(&settings)?
                .reconnect_delay_callback(move |tries| match u32::try_from(tries) {
                    Ok(0 | 1) => Duration::ZERO,
                    tries => CONNECTS.after(tries.unwrap_or(u32::MAX), &spread),
                })
                .event_callback(move |event| {
                    note(&event, &trouble);
                    changed.send_modify(|number| *number += 1);
                    async {}
                });
            Ok(options)
        };
        let client = match dial(&settings, watched()?).await {
            Ok(client) => client,
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "going on without the broker until it answers");
                dial(&settings, watched()?.retry_on_initial_connect()).await?
            }
            Err(error) => return Err(error),
        };
        let most_on_the_way = settings.publish_window.max(1) * WINDOWS;
        // The client counts what was given up on until its answer is overdue, too, and never waits.
        let context = ContextBuilder::new()
            .timeout(settings.ack_timeout)
            .max_ack_inflight(most_on_the_way * 2)
            .backpressure_on_inflight(false)
            .build(client.clone());
        let link = Arc::new(Self {
            settings,
            client,
            context,
            clock: parts.clock,
            dead_letters: parts.dead_letters,
            positions: parts.positions,
            state: watch::Sender::new(LinkState::Down(
                "the broker was not looked at yet".to_owned(),
            )),
            connections,
            look: Notify::new(),
            tracker: Mutex::default(),
            has_loss: watch::Sender::new(false),
            trouble,
            was_ready: AtomicBool::new(false),
            permits: Arc::new(Semaphore::new(most_on_the_way)),
            progress: Mutex::default(),
        });
        match link.look_once().await {
            Err(error @ NatsError::Unsuitable { .. }) => Err(error),
            _ => Ok(link),
        }
    }

    pub(crate) fn tracker(&self) -> MutexGuard<'_, Tracker> {
        lock(&self.tracker)
    }

    /// The connection that is in use now, if there is one.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        if self.client.connection_state() != State::Connected {
            return None;
        }
        let connects = &self.client.statistics().connects;
        Some(ConnectionId::nth(connects.load(Ordering::Relaxed)))
    }

    /// The connection over which messages may be published now.
    pub(crate) fn ready(&self) -> Result<ConnectionId, PortError> {
        let reason = match &*self.state.borrow() {
            LinkState::Ready(id) if self.connection().as_ref() == Some(id) => return Ok(*id),
            LinkState::Ready(_) => "the broker was disconnected".to_owned(),
            LinkState::Down(reason) | LinkState::Refused(reason) => reason.clone(),
        };
        Err(PortError::new(
            PortErrorKind::Unavailable,
            "publish messages",
            reason,
        ))
    }

    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.ready().map_err(|error| error.reason().to_owned())?;
        let silence = self.progress().silence(self.clock.monotonic());
        if silence > self.settings.ack_timeout * 2 {
            return Err(format!(
                "the broker is connected, but has acknowledged no message for {} s",
                silence.as_secs()
            ));
        }
        Ok(())
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Waits so long, by the monotonic clock.
    pub(crate) async fn pass(&self, time: Duration) {
        let until = self.clock.monotonic().saturating_add(time);
        while self.clock.monotonic() < until {
            self.clock.sleep_for(time).await;
        }
    }

    /// Waits until messages may be published, or received.
    pub(crate) async fn until_ready(&self) {
        let mut state = self.state.subscribe();
        let is_ready = |state: &LinkState| matches!(state, LinkState::Ready(_));
        // The sender lives as long as `self`.
        let _ = state.wait_for(is_ready).await;
    }

    /// Waits until the connection is another one, or gone.
    pub(crate) async fn until_disconnected(&self) {
        let mut state = self.state.subscribe();
        let before = state.borrow_and_update().clone();
        let _ = state.wait_for(|state| *state != before).await;
    }

    /// Lets the broker be looked at soon: something was odd.
    pub(crate) fn look_again(&self) {
        self.look.notify_one();
    }

    /// Looks after the connection until the bus is gone.
    pub(crate) async fn keep(self: Arc<Self>) {
        tokio::join!(self.keep_ready(), self.keep_positions());
    }

    async fn keep_ready(&self) {
        let mut connections = self.connections.clone();
        let (mut failures, mut said_at) = (0, self.clock.monotonic());
        loop {
            let wait = if matches!(*self.state.borrow(), LinkState::Ready(_)) {
                failures = 0;
                LOOK_EVERY
            } else {
                failures += 1;
                LOOKS.after(failures, &std::process::id())
            };
            tokio::select! {
                changed = connections.changed() => if changed.is_err() { return },
                () = self.look.notified() => {}
                () = self.clock.sleep_for(wait) => {}
            }
            connections.mark_unchanged();
            // What went wrong is in the state, and was said; from time to time it is said again.
            match self.look_once().await {
                Ok(()) => said_at = self.clock.monotonic(),
                Err(error) => {
                    let since = self.clock.monotonic().saturating_sub(said_at);
                    if since >= REMIND_EVERY {
                        said_at = self.clock.monotonic();
                        tracing::warn!(%error, "the broker still cannot be used: timers stay stored");
                    }
                }
            }
        }
    }

    /// Looks at everything over the present connection, and says what was found.
    async fn look_once(&self) -> Result<(), NatsError> {
        let looked = self.look_at_broker().await;
        let state = match &looked {
            Ok(connection) => LinkState::Ready(*connection),
            Err(error @ NatsError::Unsuitable { .. }) => LinkState::Refused(error.to_string()),
            Err(error) => LinkState::Down(error.to_string()),
        };
        let is_ready = matches!(state, LinkState::Ready(_));
        self.was_ready.fetch_or(is_ready, Ordering::Relaxed);
        metrics::gauge!(metric_names::READY).set(if is_ready { 1.0 } else { 0.0 });
        self.state.send_if_modified(|before| {
            let is_news = *before != state;
            if is_news {
                match &state {
                    LinkState::Ready(_) => tracing::info!("the broker is ready"),
                    LinkState::Down(reason) => {
                        tracing::warn!(reason, "the broker cannot be used now: timers stay stored");
                    }
                    LinkState::Refused(reason) => {
                        tracing::error!(reason, "the broker is not used: timers stay stored");
                    }
                }
                *before = state.clone();
            }
            is_news
        });
        self.has_loss.send_replace(self.tracker().loss().is_some());
        looked.map(drop)
    }

    async fn look_at_broker(&self) -> Result<ConnectionId, NatsError> {
        let not_connected = || NatsError::Unreachable {
            servers: self.settings.shown(),
            reason: lock(&self.trouble)
                .clone()
                .unwrap_or_else(|| "there is no connection".to_owned()),
        };
        let connection = self.connection().ok_or_else(not_connected)?;
        if !self.client.is_server_compatible(2, 9, 0) {
            let version = self.client.server_info().version;
            return Err(NatsError::Unsuitable {
                what: format!("the broker is nats-server {version}: 2.9 or newer is needed"),
            });
        }
        let prefix = &self.settings.prefix;
        self.recall(StreamKind::Events.name(prefix)).await?;
        let looked = self.tracker().look();
        self.stream(StreamKind::Commands).await?;
        let events = self.stream(StreamKind::Events).await?;
        self.compare(&looked, &events).await?;
        if self.connection().as_ref() == Some(&connection) {
            Ok(connection)
        } else {
            Err(not_connected())
        }
    }

    /// Gets a stream, made if it is missing.
    async fn stream(&self, kind: StreamKind) -> Result<Stream<Info>, NatsError> {
        let prefix = &self.settings.prefix;
        if let Some(found) = streams::find(&self.context, kind, prefix).await? {
            return Ok(found);
        }
        if self.was_ready.load(Ordering::Relaxed) {
            self.pass(AFTER_REMOVAL).await;
        }
        streams::make(&self.context, kind, prefix).await
    }

    /// Tells the tracker once what an earlier process has kept.
    async fn recall(&self, stream: String) -> Result<(), NatsError> {
        let wants_to_recall = self.tracker().wants_to_recall();
        if wants_to_recall {
            let kept = self.positions.load(stream.clone()).await;
            let kept = kept.map_err(|error| unanswered(&stream, &error))?;
            let republished = self.positions.load(republished(&stream)).await;
            let republished = republished.map_err(|error| unanswered(&stream, &error))?;
            self.tracker().recall(kept, republished.as_ref());
        }
        Ok(())
    }

    /// Finds out whether the broker still has what it acknowledged.
    async fn compare(&self, looked: &Looked, events: &Stream<Info>) -> Result<(), NatsError> {
        let mut stream = state_of(events.cached_info());
        let found = match looked.sequence() {
            Some(sequence) if sequence > 0 && sequence <= stream.last_sequence => {
                match events.get_raw_message(sequence).await {
                    Ok(message) => {
                        let id = message.headers.get(async_nats::header::NATS_MESSAGE_ID);
                        Found::Message(id.map_or_else(String::new, |id| id.as_str().to_owned()))
                    }
                    Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                        Found::Nothing
                    }
                    Err(error) => return Err(unanswered(&stream.name, &error)),
                }
            }
            _ => Found::Nothing,
        };
        let lost_since = looked.lost_since(&stream, &found);
        if let Some(since) = lost_since.filter(|since| *since < stream.last_message_at) {
            stream.last_message_at = last_message_until(events, since).await?;
        }
        let now = self.clock.now();
        self.tracker().compare(looked, &stream, &found, now);
        let has_to_be_kept = self.tracker().has_to_be_kept();
        if has_to_be_kept {
            // What is published before the first note could be lost without a trace.
            let kept = self.keep_position(false).await;
            kept.map_err(|error| unanswered(&stream.name, &error))?;
        }
        Ok(())
    }

    /// Waits for a loss.
    pub(crate) async fn lost(&self) -> DataLoss {
        let mut has_loss = self.has_loss.subscribe();
        loop {
            if let Some(loss) = self.tracker().loss() {
                return loss;
            }
            if has_loss.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) async fn recovered(&self, loss: &DataLoss) -> Result<(), PortError> {
        let now = self.clock.now();
        let was_it = self.tracker().recovered(loss, now);
        if was_it {
            self.keep_position(false).await?;
        }
        Ok(())
    }

    async fn keep_positions(&self) {
        loop {
            self.clock.sleep_for(KEEP_EVERY).await;
            if let Err(error) = self.keep_position(false).await {
                tracing::debug!(%error, "the broker's position could not be kept yet");
            }
        }
    }

    /// Keeps the position, if there is something new.
    pub(crate) async fn keep_position(&self, is_the_end: bool) -> Result<(), PortError> {
        let now = self.clock.now();
        let (position, republished) = {
            let mut tracker = self.tracker();
            let Some(position) = tracker.news(now, is_the_end) else {
                return Ok(());
            };
            (position, tracker.republished())
        };
        // First how far back a loss goes from now on: the position says that less is to be done.
        let mut kept = Ok(());
        if let Some(republished) = republished {
            kept = self.positions.keep(republished.clone()).await;
            if kept.is_ok() {
                self.tracker().kept_republished(&republished);
            }
        }
        if kept.is_ok() {
            kept = self.positions.keep(position).await;
        }
        let mut tracker = self.tracker();
        match &kept {
            Ok(()) => tracker.kept(),
            Err(_) => tracker.keep_again(),
        }
        drop(tracker);
        kept
    }
}

fn note(event: &Event, trouble: &Trouble) {
    match event {
        Event::Connected => {
            *lock(trouble) = None;
            metrics::counter!(metric_names::CONNECTIONS).increment(1);
            tracing::info!("connected to the broker");
        }
        // What that means is said by whoever looks next.
        Event::Disconnected => metrics::gauge!(metric_names::READY).set(0.0),
        // While it is away each try ends with one of these.
        Event::ClientError(error) => *lock(trouble) = Some(error.to_string()),
        Event::ServerError(error) => {
            *lock(trouble) = Some(error.to_string());
            tracing::warn!(%error, "the broker says");
        }
        other => tracing::debug!(event = %other, "the broker says"),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unanswered(stream: &str, error: &impl std::fmt::Display) -> NatsError {
    NatsError::Unreachable {
        servers: format!("the stream {stream}"),
        reason: error.to_string(),
    }
}

/// When the last message came that came by then; when the stream was made, if there is none. Others
/// may have published since the broker is back, so its last message of all does not tell how old a
/// copy is.
async fn last_message_until(
    events: &Stream<Info>,
    until: Timestamp,
) -> Result<Timestamp, NatsError> {
    let info = events.cached_info();
    let mut last = Timestamp::from(SystemTime::from(info.created));
    let (mut from, mut to) = (info.state.first_sequence.max(1), info.state.last_sequence);
    while from <= to {
        let middle = from + (to - from) / 2;
        let next = match events.get_first_raw_message_by_subject(">", middle).await {
            Ok(message) => Some(message),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => None,
            Err(error) => return Err(unanswered(&info.config.name, &error)),
        };
        let came = next.map(|it| (it.sequence, Timestamp::from(SystemTime::from(it.time))));
        match came {
            Some((sequence, at)) if at <= until => {
                last = last.max(at);
                from = sequence + 1;
            }
            _ => to = middle - 1,
        }
    }
    Ok(last)
}

fn state_of(info: &Info) -> StreamState {
    let made_at = SystemTime::from(info.created);
    let last = SystemTime::from(info.state.last_timestamp).max(made_at);
    let since_1970 = made_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    StreamState {
        name: info.config.name.clone(),
        made_at: format!("{}.{:09}", since_1970.as_secs(), since_1970.subsec_nanos()),
        last_sequence: info.state.last_sequence,
        last_message_at: Timestamp::from(last),
    }
}
