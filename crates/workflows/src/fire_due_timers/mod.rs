//! Firing what is due: the worker.
//!
//! A worker claims due timers, publishes their events, and tells the store what became of each, in
//! this order, always: what crashes in between is published again under the same firing id, and
//! never lost.
//!
//! It is a loop over *operations in flight*: claims, publishes, settlements and renewals, each a
//! future that calls one port. A step launches what may be launched, takes in what has completed,
//! and returns when nothing is left to do now. `run` only sleeps and steps. So a
//! slow publish holds up no claim, and a slow commit no publish.
//!
//! | what | bounded by |
//! |---|---|
//! | claimed and not settled (published-but-unmarked included) | `max_in_flight`; full: nothing is claimed |
//! | of that, what a backlog takes at once | three quarters; the rest in small portions, for what becomes due meanwhile |
//! | publishes in flight | `publishes_in_flight` |
//! | of those, what one tenant has | `publishes_per_tenant`; a sixteenth of that when half of what is left to the others is taken, and one when three quarters are, so that hundreds of tenants may hang before one finds no place |
//! | what one tenant has claimed and cannot begin | all that was claimed, until none of it was begun for 50 ms or one has waited for 500 ms; then a quarter of what it has under way, and no more of its timers are claimed |
//! | claims, settlements and renewals in flight | one each |
//! | saves whose caller has gone away | 1 024 under way, and as many that wait |
//! | attempts of one failing timer | backoff up to an hour, outside the queue: it is in nobody's way |
//! | tries while bus or store fail | backoff up to five seconds, then a small probe; the next waits five seconds for it |
//!
//! # Errors, by class
//! - The **bus** cannot be used, or nobody subscribes: claims go back as they were, no attempt is
//!   counted, and the worker holds back before it tries a few again.
//! - **This timer's** event could not be handled: it is tried again later, by itself.
//! - It can **never** be handled: dead letter and Reached in one write.
//! - The **store** fails for now: what it has yet to hear is kept and told again; nothing is
//!   published twice because a mark failed.
//! - The **store** is broken: the worker stops with the cause.

mod failures;
mod in_flight;
mod operations;
mod pause;
mod places;
pub(crate) mod publishing;
mod ready_queue;
mod saturation;
mod settings;
mod settlements;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use punctual_domain::Timestamp;
use punctual_ports::PortError;
use thiserror::Error;

use crate::TimerPorts;
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::SteppedWorker;
use in_flight::InFlight;
use operations::Event;
use pause::Pause;
use places::Places;
use ready_queue::ReadyQueue;
use saturation::Saturation;
use settlements::Settlements;

pub(crate) use settings::check;
pub use settings::{SettingsError, WorkerSettings};

/// The worker met an error after which going on would be to pretend.
#[derive(Debug, Clone, Error)]
#[error("the timer worker has stopped: {cause}")]
pub struct WorkerStopped {
    /// What happened.
    pub cause: PortError,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// How many claimed timers could not be finished in time. Nothing is lost: they fire after the
    /// next start, those whose event was on the way a second time.
    pub unfinished: usize,
}

/// Fires what is due.
pub struct TimerWorker {
    ports: TimerPorts,
    settings: WorkerSettings,
    operations: FuturesUnordered<BoxFuture<'static, Event>>,
    in_flight: InFlight,
    ready: ReadyQueue,
    unsettled: Settlements,
    /// Who has how many of the publishes in flight.
    places: Places,
    /// Who may not begin anything more, for now.
    saturation: Saturation,
    /// How many of the publishes in flight are to find out whether the bus is back, and until when
    /// the next such waits for them, by the monotonic clock.
    probes: usize,
    next_probe: Duration,
    under_way: UnderWay,
    /// How many saves go on here whose callers have left.
    adopted: usize,
    is_draining: bool,
    /// When to look at the store although nothing is known to be due, by the monotonic clock.
    next_poll: Duration,
    /// When to renew the claims in hand, by the monotonic clock: whatever the wall clock is set to,
    /// another worker's may not have been.
    next_renewal: Option<Duration>,
    backlog: Backlog,
    /// How long the last look at the store took.
    last_poll_took: Duration,
    bus_pause: Pause,
    /// Looks at the store fail.
    store_pause: Pause,
    /// The store does not take what it is told. Timers go on firing meanwhile, until too much is in
    /// hand: a full disk stops no event.
    settle_pause: Pause,
    alarm: SharedAlarm,
}

/// What is known of a backlog.
#[derive(Debug, Default)]
struct Backlog {
    /// Whether the last look left something behind that is due.
    is_there: bool,
    /// Whether to look for it again as soon as there is room.
    is_wanted: bool,
    /// When the places that it leaves free may next be drawn on, by the monotonic clock.
    next_of_reserve: Duration,
}

/// Of these operations there is at most one in flight.
#[derive(Debug, Default)]
struct UnderWay {
    claim: bool,
    settlement: bool,
    renewal: bool,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl TimerWorker {
    /// A worker on these adapters. Its first look at the store is at once, for what became due
    /// while nobody looked.
    ///
    /// # Errors
    /// If a setting makes no sense.
    pub fn new(ports: &TimerPorts, settings: WorkerSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            next_poll: ports.clock.monotonic(),
            ports: ports.clone(),
            settings,
            operations: FuturesUnordered::new(),
            in_flight: InFlight::default(),
            ready: ReadyQueue::default(),
            unsettled: Settlements::default(),
            places: Places::new(
                settings.publishes_in_flight.min(settings.max_in_flight),
                settings.publishes_per_tenant,
            ),
            saturation: Saturation::default(),
            probes: 0,
            next_probe: Duration::ZERO,
            under_way: UnderWay::default(),
            adopted: 0,
            is_draining: false,
            next_renewal: None,
            backlog: Backlog::default(),
            last_poll_took: Duration::ZERO,
            bus_pause: Pause::new("bus", FIRST_PAUSE, LONGEST_PAUSE),
            store_pause: Pause::new("store", FIRST_PAUSE, LONGEST_PAUSE),
            settle_pause: Pause::new("settle", FIRST_PAUSE, LONGEST_PAUSE),
            alarm: SharedAlarm::default(),
        })
    }

    /// Does all that can be done now, and returns when to come back.
    ///
    /// While something is in flight it waits for that, and goes on claiming and publishing what
    /// becomes due meanwhile. Dropping the future in the middle is safe: the next step goes on.
    async fn step(&mut self, waiting: Waiting) -> Result<Alarm, WorkerStopped> {
        loop {
            let alarm = self.launch();
            if self.operations.is_empty() {
                return Ok(alarm);
            }
            self.wait(alarm, waiting).await?;
        }
    }

    /// Fires what is due until `shutdown` is ready, and then finishes what is in flight.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Drained, WorkerStopped> {
        tokio::pin!(shutdown);
        loop {
            let step = async {
                let alarm = self.step(Waiting::Sleeping).await?;
                self.wait(alarm, Waiting::Sleeping).await
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return self.drain().await,
                stepped = step => stepped?,
            }
        }
    }

    /// Claims nothing more, gives back what has not begun, and finishes what is in flight, for at
    /// most the `drain_limit`.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn drain(&mut self) -> Result<Drained, WorkerStopped> {
        self.is_draining = true;
        self.give_back_what_is_ready();
        let clock = Arc::clone(&self.ports.clock);
        let limit = clock.sleep_for(self.settings.drain_limit);
        tokio::pin!(limit);
        loop {
            let alarm = self.launch();
            if self.operations.is_empty() && self.unsettled.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                waited = self.wait(alarm, Waiting::Sleeping) => waited?,
                () = &mut limit => break,
            }
        }
        let unfinished = self.in_flight.len();
        if unfinished > 0 {
            tracing::warn!(unfinished, "shutdown did not wait any longer");
        }
        Ok(Drained { unfinished })
    }

    /// Waits for an operation, the alarm, or news of an earlier due time, and takes in whatever has
    /// completed by then.
    async fn wait(&mut self, alarm: Alarm, waiting: Waiting) -> Result<(), WorkerStopped> {
        let clock = Arc::clone(&self.ports.clock);
        let wake = self.ports.wake.clone();
        let rings = async {
            match waiting {
                Waiting::Sleeping => alarm.wait(clock.as_ref()).await,
                Waiting::Driven => alarm.poll_only(clock.as_ref()).await,
            }
        };
        let completed = tokio::select! {
            biased;
            Some(event) = self.operations.next() => Some(event),
            () = wake.notified() => None,
            () = rings => None,
        };
        if let Some(event) = completed {
            self.take_in(event)?;
        }
        while let Some(Some(event)) = self.operations.next().now_or_never() {
            self.take_in(event)?;
        }
        Ok(())
    }
}

impl Drop for TimerWorker {
    fn drop(&mut self) {
        self.ports.wake.abandon();
    }
}

/// How a worker waits for its alarm.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// It sleeps on the clock.
    Sleeping,
    /// Whoever moves the clock polls it.
    Driven,
}

#[async_trait]
impl SteppedWorker for TimerWorker {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step(Waiting::Driven).await.map(drop)
    }

    fn wants_to_wake(&self) -> Arc<dyn Fn() -> Option<Timestamp> + Send + Sync> {
        let (alarm, ports) = (self.alarm.clone(), self.ports.clone());
        Arc::new(move || {
            let (alarm, clock) = (alarm.get(), ports.clock.as_ref());
            let Some(alarm) = alarm else {
                return Some(clock.now());
            };
            let news = ports.wake.earliest().filter(|_| alarm.heeds_news);
            alarm.on_the_wall(clock).into_iter().chain(news).min()
        })
    }
}
