//! What all clones of a [`Punctual`](crate::Punctual) share: the adapters, and whether the engine
//! runs.

use std::sync::Arc;

#[cfg(feature = "nats")]
use punctual_adapters_nats::NatsEventBus;
use punctual_domain::Timestamp;
use punctual_ports::DeadLetterPort;
use punctual_workflows::{RepublishLost, Retention, ScheduleTimers, TimerPorts, TimerWorker};
use tokio::sync::{Mutex, watch};

use crate::clock::Clock;
use crate::handler::Told;
use crate::store::Store;
use crate::{Error, ErrorKind};

/// What all clones share.
pub(crate) struct Engine {
    pub(crate) ports: TimerPorts,
    pub(crate) timers: ScheduleTimers,
    pub(crate) dead_letters: Arc<dyn DeadLetterPort>,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    #[cfg(feature = "nats")]
    broker: Option<NatsEventBus>,
    #[cfg(feature = "calls")]
    calls: Option<crate::ServiceCalls>,
    state: watch::Sender<State>,
    /// Locked while somebody starts: a start that fails, or is dropped, leaves it to the next.
    pub(crate) plan: Mutex<Option<Plan>>,
}

/// What `start` takes, once.
pub(crate) struct Plan {
    pub(crate) worker: TimerWorker,
    pub(crate) retention: Retention,
    pub(crate) republish: RepublishLost,
    pub(crate) told: Option<Told>,
    pub(crate) takes_commands: bool,
    #[cfg(feature = "calls")]
    pub(crate) calls: Option<crate::calls::CallsPlan>,
}

#[derive(Debug, Clone)]
enum State {
    Open,
    /// With the cause, if it was not asked to.
    Stopped {
        reason: String,
        failure: Option<Error>,
    },
}

impl Engine {
    pub(crate) fn new(
        ports: TimerPorts,
        dead_letters: Arc<dyn DeadLetterPort>,
        store: Store,
        clock: Clock,
        plan: Option<Plan>,
    ) -> Self {
        Self {
            timers: ScheduleTimers::new(&ports),
            ports,
            dead_letters,
            store,
            clock,
            #[cfg(feature = "nats")]
            broker: None,
            #[cfg(feature = "calls")]
            calls: None,
            state: watch::Sender::new(State::Open),
            plan: Mutex::new(plan),
        }
    }

    /// The broker that is closed with the engine.
    #[cfg(feature = "nats")]
    pub(crate) fn with_broker(mut self, broker: Option<NatsEventBus>) -> Self {
        self.broker = broker;
        self
    }

    /// The service calls of the engine.
    #[cfg(feature = "calls")]
    pub(crate) fn with_calls(mut self, calls: Option<crate::ServiceCalls>) -> Self {
        self.calls = calls;
        self
    }

    /// The service calls, if it has any.
    #[cfg(feature = "calls")]
    pub(crate) const fn calls(&self) -> Option<&crate::ServiceCalls> {
        self.calls.as_ref()
    }

    /// Ends what the engine has opened, after everything else has stopped.
    pub(crate) async fn close(&self) {
        #[cfg(feature = "nats")]
        if let Some(broker) = &self.broker {
            broker.close().await;
        }
        self.store.close().await;
    }

    /// Why there is no plan.
    pub(crate) fn nothing_to_start(&self) -> Error {
        let why = if self.store.is_client() {
            "this engine was opened with `sqlite_client`, which schedules and never fires"
        } else {
            "this engine was started before: keep the `Running` that `start` gave"
        };
        Error::new(ErrorKind::Setup, format!("cannot start: {why}"))
    }

    /// Refuses, with the reason, once the engine has stopped.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match &*self.state.borrow() {
            State::Open => Ok(()),
            State::Stopped { reason, .. } => Err(Error::stopped(reason)),
        }
    }

    /// From now on every call is refused; the first reason counts.
    pub(crate) fn stop(&self, reason: &str, failure: Option<Error>) {
        self.state.send_if_modified(|state| {
            let is_first = matches!(state, State::Open);
            if is_first {
                let reason = reason.to_owned();
                *state = State::Stopped { reason, failure };
            }
            is_first
        });
    }

    /// The same, because of an error.
    pub(crate) fn fail(&self, error: Error) {
        tracing::error!(%error, "the engine has stopped by itself; nothing that was acknowledged is lost");
        let reason = error.to_string();
        self.stop(&reason, Some(error));
    }

    /// Why the engine has stopped by itself, if it has.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.state.borrow() {
            State::Stopped { failure, .. } => failure.clone(),
            State::Open => None,
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
            _ => Error::stopped("it is gone"),
        }
    }

    /// The time, rounded up to the millisecond.
    pub(crate) fn now_rounded_up(&self) -> Timestamp {
        self.clock.now_rounded_up()
    }
}
