//! Service calls on an engine: the parts that live beside its timers.
//!
//! The modules of a service communicate through the engine's bus: orchestration receives the events of the
//! timer and of attempts, execution its commands, the timer its own commands and the deletions of calls.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use punctual_domain::Topic;
use punctual_domain::messages::Listeners;
use punctual_ports::{CallStores, HttpClientPort, MessageHandler};
use punctual_workflows::calls::{
    AcceptExecutions, CallPorts, CallRetention, CallSettings, CallSweeper, DeleteCallTimers,
    DispatchOutbox, ExecuteCalls, ForwardStandaloneTimers, ReactToEvents, ReadCalls,
    RejectStandaloneTimers, SubmitCalls,
};
use punctual_workflows::{BackgroundWorker, TimerPorts};
use tokio::sync::watch;

use crate::running::{CallsRun, LAST_MOMENTS};
use crate::{Builder, Error, Punctual};

/// Maximum number of messages in one call of a handler: one transaction each.
const BATCH: usize = 500;

impl Builder {
    /// Also takes service calls: HTTP requests that are made once, at their due time. They are in the
    /// same database as their timers, so open one for both, such as
    /// `SqliteSettings::service_calls` or `PostgresSettings::service_calls`. No other receiver of due timers is needed, and timers of your
    /// own have to belong to a call where the store insists on that.
    ///
    /// The calls are submitted and read through [`Punctual::calls`].
    pub fn service_calls(mut self, options: CallOptions) -> Self {
        self.calls = Some(options);
        self
    }
}

impl Punctual {
    /// The service calls, if the engine takes them.
    pub fn calls(&self) -> Option<ServiceCalls> {
        self.engine.calls.clone()
    }
}

/// How an engine makes service calls.
#[derive(Clone)]
pub struct CallOptions {
    /// The client that makes the requests.
    pub http: Arc<dyn HttpClientPort>,
    /// Limits, timeouts and retention.
    pub settings: CallSettings,
    /// The receiver of timers that belong to no call, where the store allows such timers. Without one,
    /// and without `on_due` or a bus, such a timer becomes a dead letter when it is due.
    pub other_timers: Option<Arc<dyn MessageHandler>>,
}

impl CallOptions {
    /// With the usual settings.
    pub fn new(http: impl HttpClientPort + 'static) -> Self {
        Self {
            http: Arc::new(http),
            settings: CallSettings::default(),
            other_timers: None,
        }
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The service calls of an engine: submit, delete and read them. Clones are the same.
#[derive(Clone)]
pub struct ServiceCalls {
    /// Submits and deletes them.
    pub submit: SubmitCalls,
    /// Reads them, and the trace of a request.
    pub read: ReadCalls,
}

opaque_debug!(ServiceCalls);

/// What an engine with service calls runs besides its timers.
pub(crate) struct CallsPlan {
    pub(crate) execute: ExecuteCalls,
    pub(crate) dispatch: BackgroundWorker<DispatchOutbox>,
    pub(crate) sweep: BackgroundWorker<CallSweeper>,
    pub(crate) retention: BackgroundWorker<CallRetention>,
    ports: CallPorts,
    settings: CallSettings,
    /// The receiver of timers that belong to no call.
    others: Option<Arc<dyn MessageHandler>>,
}

impl CallsPlan {
    /// `rejects_standalone`: there may be standalone timers, and nothing else receives them.
    fn new(
        ports: &CallPorts,
        options: &CallOptions,
        rejects_standalone: bool,
    ) -> Result<Self, Error> {
        let settings = options.settings;
        let reject = || rejects_standalone.then(|| Arc::new(RejectStandaloneTimers) as _);
        Ok(Self {
            execute: ExecuteCalls::new(ports, Arc::clone(&options.http), settings)?,
            dispatch: DispatchOutbox::worker(ports, settings),
            sweep: CallSweeper::worker(ports, settings),
            retention: CallRetention::worker(ports, settings),
            ports: ports.clone(),
            settings,
            others: options.other_timers.clone().or_else(reject),
        })
    }

    /// The subscriptions: topic, consumer, batch and handler of each.
    pub(crate) fn handlers(&self) -> Vec<(Topic, &'static str, usize, Arc<dyn MessageHandler>)> {
        let ports = &self.ports;
        let react = Arc::new(ReactToEvents::new(ports, self.settings));
        let submit = Arc::new(SubmitCalls::new(ports, self.settings));
        let accept = Arc::new(AcceptExecutions::new(ports));
        let delete_timers = Arc::new(DeleteCallTimers::new(ports));
        let others = self.others.as_ref().map(|handler| {
            let forward = ForwardStandaloneTimers::new(ports, Arc::clone(handler));
            (Topic::TimerEvents, "others", BATCH, Arc::new(forward) as _)
        });
        let of_calls = [
            (
                Topic::TimerEvents,
                "orchestration",
                BATCH,
                Arc::<ReactToEvents>::clone(&react) as _,
            ),
            (Topic::ExecutionEvents, "orchestration", BATCH, react as _),
            (
                Topic::OrchestrationCommands,
                "orchestration",
                BATCH,
                submit as _,
            ),
            (Topic::ExecutionCommands, "execution", BATCH, accept as _),
            (
                Topic::OrchestrationEvents,
                "timer",
                BATCH,
                delete_timers as _,
            ),
        ];
        of_calls.into_iter().chain(others).collect()
    }
}

/// Becomes true, or its engine is dropped, which requests the same.
async fn requested(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Runs until `stop`, and dispatches until everything has `drained`.
pub(crate) fn run(
    plan: Option<CallsPlan>,
    stop: watch::Receiver<bool>,
    drained: watch::Receiver<bool>,
) -> CallsRun {
    let Some(plan) = plan else {
        return CallsRun::none();
    };
    let clock = Arc::clone(&plan.ports.clock);
    let execute = async move { plan.execute.run(requested(stop)).await.map(drop) };
    let dispatch = plan.dispatch.run_and_finish(requested(drained.clone()));
    let dispatch = async move {
        let given_up = async {
            requested(drained).await;
            clock.sleep_for(LAST_MOMENTS).await;
        };
        tokio::select! {
            ended = dispatch => ended,
            () = given_up => Ok(()),
        }
    };
    let rest = async move {
        let ended = tokio::try_join!(plan.sweep.run(pending()), plan.retention.run(pending()),);
        match ended {
            Err(stopped) => stopped,
            Ok(_) => pending().await,
        }
    };
    CallsRun {
        execute: execute.boxed(),
        dispatch: dispatch.boxed(),
        rest: rest.boxed(),
    }
}

/// How often an instance asks at least what others have left to it, such as those that have ended or have
/// no slot free.
const POLLING_INTERVAL_BESIDE_OTHERS: Duration = Duration::from_secs(1);

/// Puts the service calls of an engine together: their handle, and what runs.
pub(crate) fn assemble(
    options: &CallOptions,
    several_instances: bool,
    stores: CallStores,
    timers: &TimerPorts,
    rejects_standalone: bool,
    listeners: Listeners,
) -> Result<(ServiceCalls, CallsPlan), Error> {
    let mut ports = CallPorts::new(
        Arc::clone(&timers.clock),
        Arc::clone(&timers.ids),
        Arc::clone(&timers.bus),
        stores,
        Arc::clone(&timers.persistence),
    );
    ports.listeners = listeners;
    let mut options = options.clone();
    if several_instances {
        let interval = &mut options.settings.polling_interval;
        *interval = (*interval).min(POLLING_INTERVAL_BESIDE_OTHERS);
    }
    let handle = ServiceCalls {
        submit: SubmitCalls::new(&ports, options.settings),
        read: ReadCalls::new(&ports),
    };
    Ok((
        handle,
        CallsPlan::new(&ports, &options, rejects_standalone)?,
    ))
}
