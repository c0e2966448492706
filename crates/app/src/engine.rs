//! What all clones of a [`Punctual`](crate::Punctual) share: the adapters, and whether the engine
//! runs.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use punctual_domain::Timestamp;
use punctual_ports::{DeadLetterPort, PortError};
use punctual_workflows::{
    BackgroundWorker, RepublishLost, Retention, ScheduleTimers, TimerPorts, TimerWorker,
};
use tokio::sync::{Mutex, watch};

use crate::bus::CloseBus;
use crate::calls::{CallsPlan, ServiceCalls};
use crate::clock::EngineClock;
use crate::handler::Receiver;
use crate::hints::Hints;
use crate::readiness::unanswered_polls;
use crate::stores::Stores;
use crate::{Error, ErrorKind, NotReady};

/// What all clones share.
pub(crate) struct Engine {
    pub(crate) ports: TimerPorts,
    pub(crate) timers: ScheduleTimers,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    pub(crate) stores: Stores,
    pub(crate) clock: Arc<dyn EngineClock>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) fires: bool,
    close_bus: CloseBus,
    #[cfg_attr(
        not(feature = "calls"),
        expect(dead_code, reason = "there are none to read")
    )]
    pub(crate) calls: Option<ServiceCalls>,
    state: watch::Sender<State>,
    /// Whether a check is to come, or has warned, that the engine holds timers and was not started.
    expects_start: AtomicBool,
    /// What that check needs.
    kept_until_start: std::sync::Mutex<Option<Box<dyn Any + Send>>>,
    /// Locked during a start: a start that fails, or is dropped, leaves it to the next.
    pub(crate) plan: Mutex<Option<Plan>>,
}

/// What `start` takes, once.
pub(crate) struct Plan {
    /// `None` where the timers are fired elsewhere.
    pub(crate) worker: Option<TimerWorker>,
    pub(crate) retention: Option<BackgroundWorker<Retention>>,
    pub(crate) republish: RepublishLost,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) takes_commands: bool,
    pub(crate) hears_deletions: bool,
    pub(crate) calls: Option<CallsPlan>,
}

/// What a builder puts together over open stores.
pub(crate) struct Assembled {
    pub(crate) ports: TimerPorts,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    pub(crate) close_bus: CloseBus,
    pub(crate) calls: Option<ServiceCalls>,
    pub(crate) plan: Option<Plan>,
}

#[derive(Debug, Clone)]
enum State {
    /// Built, and not started.
    Waiting,
    Running,
    /// With the cause, if it has stopped by itself.
    Stopped {
        reason: String,
        failure: Option<Error>,
    },
}

impl Engine {
    pub(crate) fn new(assembled: Assembled, stores: Stores, clock: Arc<dyn EngineClock>) -> Self {
        let ports = assembled.ports;
        let plan = assembled.plan.as_ref();
        let fires = plan.is_some_and(|plan| plan.worker.is_some());
        Self {
            fires,
            timers: ScheduleTimers::new(&ports),
            hints: Hints::new(Arc::clone(&ports.clock), ports.wake.clone()),
            ports,
            dead_letters: assembled.dead_letters,
            stores,
            clock,
            close_bus: assembled.close_bus,
            calls: assembled.calls,
            state: watch::Sender::new(State::Waiting),
            expects_start: AtomicBool::new(false),
            kept_until_start: std::sync::Mutex::default(),
            plan: Mutex::new(assembled.plan),
        }
    }

    /// Watches the stores until one of them cannot be relied on any more; the worker polls whenever
    /// another process has committed.
    pub(crate) async fn watch_stores(&self) -> PortError {
        let wake = self.ports.wake.clone();
        let on_change = Arc::new(move || wake.due_at(Timestamp::MIN));
        self.stores.watch(&self.ports.clock, on_change).await
    }

    /// Ends what the engine has opened, after everything else has stopped.
    pub(crate) async fn close(&self) {
        (self.close_bus)().await;
        self.stores.close().await;
    }

    /// Why there is no plan.
    pub(crate) fn nothing_to_start(&self) -> Error {
        let why = if self.stores.is_client() {
            "its store, such as one opened with `sqlite_client`, schedules and never fires"
        } else {
            "this engine was started before: keep the `Running` that `start` gave"
        };
        Error::new(ErrorKind::Config, format!("cannot start: {why}"))
    }

    /// Refuses, with the reason, once the engine has stopped.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match &*self.state.borrow() {
            State::Waiting | State::Running => Ok(()),
            State::Stopped { reason, .. } => Err(Error::stopped(reason)),
        }
    }

    /// Whether timers that are due now reach their receiver.
    pub(crate) fn readiness(&self) -> Result<(), NotReady> {
        match &*self.state.borrow() {
            // A client schedules beside the engine that fires, and is never started.
            State::Waiting if !self.stores.is_client() => return Err(NotReady::NotStarted),
            State::Waiting | State::Running => {}
            State::Stopped { reason, .. } => {
                return Err(NotReady::Stopped(Error::stopped(reason).to_string()));
            }
        }
        self.ports.bus.readiness().map_err(NotReady::Bus)?;
        let monotonic = self.ports.clock.monotonic();
        let unanswered = self.ports.last_poll.unanswered_for(monotonic);
        unanswered_polls(&self.stores.timers().name(), unanswered)
    }

    /// From now on it fires.
    pub(crate) fn runs(&self) {
        self.state.send_if_modified(|state| {
            let waits = matches!(state, State::Waiting);
            if waits {
                *state = State::Running;
            }
            waits
        });
        drop(self.kept_until_start().take());
    }

    fn waits_for_start(&self) -> bool {
        matches!(*self.state.borrow(), State::Waiting) && !self.stores.is_client()
    }

    /// Whether a check has to be started, because the engine waits and none is to come.
    pub(crate) fn begins_to_expect_start(&self) -> bool {
        self.waits_for_start() && !self.expects_start.swap(true, Ordering::AcqRel)
    }

    /// Ends when the engine is started, stopped or dropped.
    pub(crate) fn no_longer_waits(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut state = self.state.subscribe();
        async move {
            let starts = |state: &State| !matches!(state, State::Waiting);
            let _ = state.wait_for(starts).await;
        }
    }

    /// Warns, once, if the engine holds timers and was not started.
    pub(crate) async fn check_start(&self) {
        let backlog = self.ports.queue.backlog(self.ports.clock.now(), 1).await;
        // Not before: a step of a fake clock that waits is given up with this.
        drop(self.kept_until_start().take());
        if !self.waits_for_start() {
            return;
        }
        if backlog.is_ok_and(|backlog| backlog.pending > 0) {
            tracing::warn!(
                "this engine holds timers and was not started: none of them fires before `start` is called"
            );
        } else {
            // The next timer that is scheduled begins another check.
            self.expects_start.store(false, Ordering::Release);
        }
    }

    pub(crate) fn keep_until_start(&self, kept: Box<dyn Any + Send>) {
        *self.kept_until_start() = Some(kept);
    }

    fn kept_until_start(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        let kept = self.kept_until_start.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every call is refused; the first reason counts.
    pub(crate) fn stop(&self, reason: &str, failure: Option<Error>) {
        self.state.send_if_modified(|state| {
            let is_first = !matches!(state, State::Stopped { .. });
            if is_first {
                let reason = reason.to_owned();
                *state = State::Stopped { reason, failure };
            }
            is_first
        });
    }

    /// The same, because of an error.
    pub(crate) fn fail(&self, error: Error) {
        tracing::error!(%error, "the engine has stopped by itself");
        let reason = error.to_string();
        self.stop(&reason, Some(error));
    }

    /// Why the engine has stopped by itself, if it has.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.state.borrow() {
            State::Stopped { failure, .. } => failure.clone(),
            State::Waiting | State::Running => None,
        }
    }

    /// Waits until the engine has stopped, for whatever reason.
    pub(crate) async fn stopped(&self) -> Error {
        let mut state = self.state.subscribe();
        let stopped = state
            .wait_for(|state| matches!(state, State::Stopped { .. }))
            .await;
        match stopped.as_deref() {
            Ok(State::Stopped {
                reason,
                failure: None,
            }) => Error::stopped(reason),
            Ok(State::Stopped {
                failure: Some(failure),
                ..
            }) => failure.clone(),
            // The sender lives as long as `self`.
            _ => Error::stopped("it was dropped"),
        }
    }

    /// The time, rounded up to the millisecond.
    pub(crate) fn now_rounded_up(&self) -> Timestamp {
        self.clock.now_rounded_up()
    }
}
