//! The connection to the broker, and the check that its streams are suitable and still have the messages
//! that the broker acknowledged.
//!
//! Nothing is published over a connection before that check: new messages would otherwise take the
//! sequences of lost ones, and the loss would never be detected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
use crate::tracker::{Found, Snapshot, StreamState, Tracker, republished};
use crate::{NatsError, NatsParts, NatsSettings, lock, metric_names, streams};

/// Interval of the check of the streams without another cause.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Interval at which the position is saved while messages are published.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a deleted stream is created again. nats-server 2.9 deletes its files meanwhile, and those
/// of a new stream with them if that is created too soon.
const RECREATE_DELAY: Duration = Duration::from_secs(1);

/// Interval of the log line about a broker that cannot be used.
const REMINDER_INTERVAL: Duration = Duration::from_mins(1);

/// Backoff between checks while the broker cannot be used.
const CHECK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));

/// Backoff between attempts to connect.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// Maximum number of publish windows in flight at once, of all publishes together.
const MAX_WINDOWS: usize = 8;

/// Whether messages can be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Not connected, or the broker does not respond.
    Down(String),
    /// Connected to a broker that would lose messages.
    Refused(String),
    /// The check succeeded over this connection.
    Ready(ConnectionId),
}

/// Number of a connection, which distinguishes it from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    pub(crate) const fn nth(number: u64) -> Self {
        Self(number)
    }
}

/// State shared by all parts of the bus.
pub(crate) struct Link {
    pub(crate) settings: NatsSettings,
    pub(crate) client: Client,
    pub(crate) context: jetstream::Context,
    pub(crate) clock: Arc<dyn ClockPort>,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    positions: Arc<dyn BusPositionPort>,
    state: watch::Sender<LinkState>,
    connections: watch::Receiver<u64>,
    check: Notify,
    tracker: Mutex<Tracker>,
    has_loss: watch::Sender<bool>,
    /// Why the last attempt to connect failed.
    trouble: Trouble,
    /// Whether the streams were ever ready.
    was_ready: AtomicBool,
    /// One permit for each message in flight without an acknowledgement, of all publishes.
    pub(crate) permits: Arc<Semaphore>,
    progress: Mutex<Progress>,
}

type Trouble = Arc<Mutex<Option<String>>>;

impl Link {
    /// Connects. An unavailable broker is retried in the background; one that denies access or would lose
    /// messages is an error at once.
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
                    tries => CONNECT_BACKOFF.after(tries.unwrap_or(u32::MAX), &spread),
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
        let max_in_flight = settings.publish_window.max(1) * MAX_WINDOWS;
        // The client counts abandoned messages, too, until their acknowledgement is overdue.
        let context = ContextBuilder::new()
            .timeout(settings.ack_timeout)
            .max_ack_inflight(max_in_flight * 2)
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
                "the broker has not been checked yet".to_owned(),
            )),
            connections,
            check: Notify::new(),
            tracker: Mutex::default(),
            has_loss: watch::Sender::new(false),
            trouble,
            was_ready: AtomicBool::new(false),
            permits: Arc::new(Semaphore::new(max_in_flight)),
            progress: Mutex::default(),
        });
        match link.check_once().await {
            Err(error @ NatsError::Unsuitable { .. }) => Err(error),
            _ => Ok(link),
        }
    }

    pub(crate) fn tracker(&self) -> MutexGuard<'_, Tracker> {
        lock(&self.tracker)
    }

    /// The current connection, if there is one.
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

    /// Sleeps for a duration on the monotonic clock.
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

    /// Waits until the connection changes or ends.
    pub(crate) async fn until_disconnected(&self) {
        let mut state = self.state.subscribe();
        let before = state.borrow_and_update().clone();
        let _ = state.wait_for(|state| *state != before).await;
    }

    /// Requests a check of the broker, after something unexpected.
    pub(crate) fn check_soon(&self) {
        self.check.notify_one();
    }

    /// Maintains the connection and saves positions until the bus is dropped.
    pub(crate) async fn keep(self: Arc<Self>) {
        tokio::join!(self.keep_ready(), self.save_positions());
    }

    async fn keep_ready(&self) {
        let mut connections = self.connections.clone();
        let (mut failures, mut logged_at) = (0, self.clock.monotonic());
        loop {
            let wait = if matches!(*self.state.borrow(), LinkState::Ready(_)) {
                failures = 0;
                CHECK_INTERVAL
            } else {
                failures += 1;
                CHECK_BACKOFF.after(failures, &std::process::id())
            };
            tokio::select! {
                changed = connections.changed() => if changed.is_err() { return },
                () = self.check.notified() => {}
                () = self.clock.sleep_for(wait) => {}
            }
            connections.mark_unchanged();
            // The error is in the state and was logged; it is logged again at intervals.
            match self.check_once().await {
                Ok(()) => logged_at = self.clock.monotonic(),
                Err(error) => {
                    let since = self.clock.monotonic().saturating_sub(logged_at);
                    if since >= REMINDER_INTERVAL {
                        logged_at = self.clock.monotonic();
                        tracing::warn!(%error, "the broker still cannot be used: timers stay stored");
                    }
                }
            }
        }
    }

    /// Checks the broker over the current connection, and publishes the resulting state.
    async fn check_once(&self) -> Result<(), NatsError> {
        let checked = self.check_broker().await;
        let state = match &checked {
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
        checked.map(drop)
    }

    async fn check_broker(&self) -> Result<ConnectionId, NatsError> {
        let not_connected = || NatsError::Unreachable {
            servers: self.settings.redacted_url(),
            reason: lock(&self.trouble)
                .clone()
                .unwrap_or_else(|| "there is no connection".to_owned()),
        };
        let connection = self.connection().ok_or_else(not_connected)?;
        if !self.client.is_server_compatible(2, 9, 0) {
            let version = self.client.server_info().version;
            let what = format!("the broker is nats-server {version}: 2.9 or newer is needed");
            return Err(NatsError::unsuitable(what));
        }
        let prefix = &self.settings.prefix;
        self.restore(StreamKind::Events.name(prefix)).await?;
        let snapshot = self.tracker().snapshot();
        self.stream(StreamKind::Commands).await?;
        let events = self.stream(StreamKind::Events).await?;
        self.compare(&snapshot, &events).await?;
        if self.connection().as_ref() == Some(&connection) {
            Ok(connection)
        } else {
            Err(not_connected())
        }
    }

    /// Gets a stream, creating it if it is missing.
    async fn stream(&self, kind: StreamKind) -> Result<Stream<Info>, NatsError> {
        let prefix = &self.settings.prefix;
        if let Some(found) = streams::find(&self.context, kind, prefix).await? {
            return Ok(found);
        }
        if self.was_ready.load(Ordering::Relaxed) {
            self.pass(RECREATE_DELAY).await;
        }
        streams::make(&self.context, kind, prefix).await
    }

    /// Restores once the position that an earlier process saved.
    async fn restore(&self, stream: String) -> Result<(), NatsError> {
        let needs_restore = self.tracker().needs_restore();
        if needs_restore {
            let failed = |error| NatsError::stream_unreachable(&stream, &error);
            let kept = self.positions.load(stream.clone()).await.map_err(failed)?;
            let republished = self.positions.load(republished(&stream)).await;
            let republished = republished.map_err(failed)?;
            self.tracker().restore(kept, republished.as_ref());
        }
        Ok(())
    }

    /// Checks whether the broker still has the messages that it acknowledged.
    async fn compare(&self, snapshot: &Snapshot, events: &Stream<Info>) -> Result<(), NatsError> {
        let mut stream = state_of(events.cached_info());
        let found = match snapshot.sequence() {
            Some(sequence) if sequence > 0 && sequence <= stream.last_sequence => {
                match events.get_raw_message(sequence).await {
                    Ok(message) => {
                        let id = message.headers.get(async_nats::header::NATS_MESSAGE_ID);
                        Found::Message(id.map_or_else(String::new, |id| id.as_str().to_owned()))
                    }
                    Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                        Found::Nothing
                    }
                    Err(error) => return Err(NatsError::stream_unreachable(&stream.name, &error)),
                }
            }
            _ => Found::Nothing,
        };
        let lost_since = snapshot.lost_since(&stream, &found);
        if let Some(since) = lost_since.filter(|since| *since < stream.last_message_at) {
            stream.last_message_at = last_message_until(events, since).await?;
        }
        let now = self.clock.now();
        self.tracker().compare(snapshot, &stream, &found, now);
        let must_be_saved_first = self.tracker().must_be_saved_first();
        if must_be_saved_first {
            // Messages published before the first saved position could be lost unnoticed.
            let kept = self.save_position(false).await;
            kept.map_err(|error| NatsError::stream_unreachable(&stream.name, &error))?;
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
        let is_new = self.tracker().recovered(loss, now);
        if is_new {
            self.save_position(false).await?;
        }
        Ok(())
    }

    async fn save_positions(&self) {
        loop {
            self.clock.sleep_for(SAVE_INTERVAL).await;
            if let Err(error) = self.save_position(false).await {
                tracing::debug!(%error, "the broker's position could not be kept yet");
            }
        }
    }

    /// Saves the position, if it changed.
    pub(crate) async fn save_position(&self, is_closing: bool) -> Result<(), PortError> {
        let now = self.clock.now();
        let (position, republished) = {
            let mut tracker = self.tracker();
            let Some(position) = tracker.unsaved(now, is_closing) else {
                return Ok(());
            };
            (position, tracker.republished())
        };
        // First how far back a loss goes from now on: the position then covers less.
        let mut kept = Ok(());
        if let Some(republished) = republished {
            kept = self.positions.save(republished.clone()).await;
            if kept.is_ok() {
                self.tracker().kept_republished(&republished);
            }
        }
        if kept.is_ok() {
            kept = self.positions.save(position).await;
        }
        let mut tracker = self.tracker();
        match &kept {
            Ok(()) => tracker.kept(),
            Err(_) => tracker.save_again(),
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
        // The next check logs what that means.
        Event::Disconnected => metrics::gauge!(metric_names::READY).set(0.0),
        // While the broker is away each attempt ends with one of these.
        Event::ClientError(error) => *lock(trouble) = Some(error.to_string()),
        Event::ServerError(error) => {
            *lock(trouble) = Some(error.to_string());
            tracing::warn!(%error, "the broker says");
        }
        other => tracing::debug!(event = %other, "the broker says"),
    }
}

/// Time of the last message up to an instant; the creation of the stream, if there is none. Other
/// publishers may have been active since a backup was restored, so the very last message does not tell
/// how old the backup is.
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
            Err(error) => return Err(NatsError::stream_unreachable(&info.config.name, &error)),
        };
        let arrived = next.map(|it| (it.sequence, Timestamp::from(SystemTime::from(it.time))));
        match arrived {
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
