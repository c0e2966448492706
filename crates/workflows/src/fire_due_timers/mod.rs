//! Firing what is due: the worker.
//!
//! A worker claims due timers, publishes their events, and settles each in the store, always in this
//! order: after a crash in between, an event is published again under the same firing id, and never
//! lost.
//!
//! It is a loop over *operations in flight*: claims, publishes, settlements and renewals, each a
//! future that calls one port. A step starts what may start, applies what has completed, and returns
//! when nothing is left to do now. `run` only sleeps and steps. So a slow publish delays no claim,
//! and a slow commit no publish.
//!
//! | what | bounded by |
//! |---|---|
//! | claimed and not settled (published-but-unmarked included) | `max_in_flight`; full: nothing is claimed |
//! | of that, what a backlog may claim | three quarters; the rest in small portions, for what becomes due meanwhile |
//! | publishes in flight | `publishes_in_flight` |
//! | of those, one tenant's | `publishes_per_tenant`; a sixteenth of that when half of the slots for the others are acquired, and one when three quarters are, so that hundreds of tenants may hang before one finds no slot |
//! | one tenant's claims without a slot | all that was claimed, until none was published for 50 ms or one has waited for 500 ms; then a quarter of what it has in flight, and no more of its timers are claimed |
//! | claims, settlements and renewals in flight | one each |
//! | saves whose caller has dropped them | 1 024 in flight, and as many that wait |
//! | attempts of one failing timer | backoff up to an hour, outside the queue: it delays no other |
//! | retries while bus or store fail | backoff up to five seconds, then a small probe; the next waits five seconds for it |
//!
//! # Errors, by class
//! - The **bus** is unavailable, or has no subscriber: claims are released, no attempt is counted,
//!   and the worker pauses before it probes with a few.
//! - **This timer's** event could not be handled: it alone is retried later.
//! - It can **never** be handled: dead letter and Reached in one write.
//! - The **store** fails for now: unsettled outcomes are kept and settled again; nothing is
//!   published twice because a mark failed.
//! - The **store** is broken: the worker stops with the cause.

mod concurrency_limiter;
mod failures;
pub(crate) mod in_flight;
mod operations;
mod outcomes;
mod pause;
pub(crate) mod publishing;
mod ready_queue;
mod saturation;
mod settings;
mod settlements;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use punctual_ports::PortError;
use thiserror::Error;

use crate::TimerPorts;
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::{NextWake, SteppedWorker};
use crate::retries::PORT_BACKOFF;
use concurrency_limiter::ConcurrencyLimiter;
use in_flight::InFlight;
use operations::Event;
use pause::Pause;
use ready_queue::ReadyQueue;
use saturation::Saturation;
use settlements::Settlements;

pub(crate) use settings::check;
pub use settings::{SettingsError, WorkerSettings};

/// A critical error that stopped a worker.
#[derive(Debug, Clone, Error)]
#[error("the timer worker has stopped: {cause}")]
pub struct WorkerStopped {
    /// The error.
    pub cause: PortError,
}

/// The result of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Number of claimed timers that could not be settled in time. Nothing is lost: they fire after the
    /// next start, those whose event was being published a second time.
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
    /// The publishes in flight, by tenant.
    publishes: ConcurrencyLimiter,
    /// The tenants without a free slot.
    saturation: Saturation,
    /// Number of publishes in flight that probe the bus, and until when the next probe waits for them,
    /// by the monotonic clock.
    probes: usize,
    next_probe: Duration,
    outstanding: Outstanding,
    /// Number of saves in flight whose callers have dropped them.
    detached: usize,
    is_draining: bool,
    /// When to poll although nothing is known to be due, by the monotonic clock.
    next_poll: Duration,
    /// When to renew all leases, by the monotonic clock: another worker's wall clock may not have been
    /// set as this one's was.
    next_renewal: Option<Duration>,
    backlog: Backlog,
    /// Duration of the last poll.
    last_poll_took: Duration,
    bus_pause: Pause,
    /// Polls fail.
    store_pause: Pause,
    /// Settlements fail. Timers go on firing until `max_in_flight`: a full disk stops no event.
    settle_pause: Pause,
    alarm: SharedAlarm,
}

/// What is known about a backlog.
#[derive(Debug, Default)]
struct Backlog {
    /// Whether the last poll left due timers unclaimed.
    is_there: bool,
    /// Whether to poll for them as soon as they may be claimed.
    is_wanted: bool,
    /// When timers may next be claimed from the reserve, by the monotonic clock.
    next_from_reserve: Duration,
}

/// The operations of which at most one is in flight.
#[derive(Debug, Default)]
struct Outstanding {
    claim: bool,
    settlement: bool,
    renewal: bool,
}

impl TimerWorker {
    /// A worker on these adapters. It polls at once, for what became due while no worker ran.
    ///
    /// # Errors
    /// If a setting is outside its limits.
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
            publishes: ConcurrencyLimiter::new(
                settings.publishes_in_flight.min(settings.max_in_flight),
                settings.publishes_per_tenant,
            ),
            saturation: Saturation::default(),
            probes: 0,
            next_probe: Duration::ZERO,
            outstanding: Outstanding::default(),
            detached: 0,
            is_draining: false,
            next_renewal: None,
            backlog: Backlog::default(),
            last_poll_took: Duration::ZERO,
            bus_pause: Pause::new("bus", PORT_BACKOFF),
            store_pause: Pause::new("store", PORT_BACKOFF),
            settle_pause: Pause::new("settle", PORT_BACKOFF),
            alarm: SharedAlarm::default(),
        })
    }

    /// Does all that can be done now, and returns when the next step is.
    ///
    /// It waits for the operations in flight, and meanwhile claims and publishes what becomes due.
    /// Dropping the future is safe: the next step continues.
    async fn step(&mut self, waiting: Waiting) -> Result<Alarm, WorkerStopped> {
        loop {
            let alarm = self.launch();
            if self.operations.is_empty() {
                return Ok(alarm);
            }
            self.wait(alarm, waiting).await?;
        }
    }

    /// Fires what is due until `shutdown` is ready, then drains what is in flight.
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

    /// Stops claiming, releases what waits for a slot, and completes what is in flight, within the
    /// `drain_limit`.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn drain(&mut self) -> Result<Drained, WorkerStopped> {
        self.is_draining = true;
        self.release_ready();
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

    /// Waits for an operation, the alarm, or a notification of an earlier due time, and applies
    /// whatever has completed by then.
    async fn wait(&mut self, alarm: Alarm, waiting: Waiting) -> Result<(), WorkerStopped> {
        let clock = Arc::clone(&self.ports.clock);
        let wake = self.ports.wake.clone();
        let alarm_due = async {
            match waiting {
                Waiting::Sleeping => alarm.wait(clock.as_ref()).await,
                Waiting::Driven => alarm.poll_only(clock.as_ref()).await,
            }
        };
        let completed = tokio::select! {
            biased;
            Some(event) = self.operations.next() => Some(event),
            () = wake.notified() => None,
            () = alarm_due => None,
        };
        if let Some(event) = completed {
            self.on_event(event)?;
        }
        while let Some(Some(event)) = self.operations.next().now_or_never() {
            self.on_event(event)?;
        }
        Ok(())
    }
}

impl Drop for TimerWorker {
    fn drop(&mut self) {
        self.ports.wake.drop_detached();
    }
}

/// How a worker waits for its alarm.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// It sleeps on the clock.
    Sleeping,
    /// The driver of the clock polls it.
    Driven,
}

#[async_trait]
impl SteppedWorker for TimerWorker {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step(Waiting::Driven).await.map(drop)
    }

    fn next_wake_fn(&self) -> NextWake {
        let (alarm, ports) = (self.alarm.clone(), self.ports.clone());
        Arc::new(move || {
            let (alarm, clock) = (alarm.get(), ports.clock.as_ref());
            let Some(alarm) = alarm else {
                return Some(clock.now());
            };
            let earlier = ports.wake.earliest().filter(|_| alarm.wakes_on_earlier_due);
            alarm.as_wall_time(clock).into_iter().chain(earlier).min()
        })
    }
}
