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
use punctual_ports::{CallStores, HttpClientPort, MessageHandler, TimerPersistencePort};
use punctual_workflows::calls::{
    AcceptExecutions, CallPorts, CallRetention, CallSettings, CallSweeper, DeleteCallAttempts,
    DeleteCallTimers, DispatchOutbox, ExecuteCalls, ForwardStandaloneTimers, ReactToEvents,
    ReadCalls, RejectStandaloneTimers, SubmitCalls,
};
use punctual_workflows::{BackgroundTask, BackgroundWorker, TimerPorts, WorkerStopped};
use tokio::sync::watch;

use crate::bus::Owner;
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
    /// Which modules this engine runs, all unless it is set. The others run in engines with databases of their
    /// own, and need the bus between them; those with the same database share it.
    pub modules: CallModules,
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
            modules: CallModules::default(),
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

/// The modules of service calls that an engine runs. With none, it submits and reads the calls of a database
/// whose modules other engines run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallModules {
    /// Takes submissions, reacts to what the others do, and rescues what is stuck.
    pub orchestration: bool,
    /// Fires the timers of calls.
    pub timer: bool,
    /// Makes the requests. Without orchestration beside it, in a database for attempts alone.
    pub execution: bool,
}

impl CallModules {
    /// All of them.
    pub const ALL: Self = Self {
        orchestration: true,
        timer: true,
        execution: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        orchestration: false,
        timer: false,
        execution: false,
    };
}

impl Default for CallModules {
    fn default() -> Self {
        Self::ALL
    }
}

/// Whether an engine fires timers.
pub(crate) fn fires(options: Option<&CallOptions>) -> bool {
    options.is_none_or(|options| options.modules.timer)
}

/// What is wrong with the modules of an engine, if something is.
pub(crate) fn problem(options: Option<&CallOptions>, has_bus: bool) -> Option<String> {
    let modules = options?.modules;
    let is_apart = modules != CallModules::ALL && modules != CallModules::NONE;
    (is_apart && !has_bus).then(|| {
        "modules of service calls that run apart need the bus between them: call `bus` or `nats`, or run all of them"
            .to_owned()
    })
}

/// Whose database each consumer of these modules belongs to: the one of timers, or the one of calls.
pub(crate) fn consumers(options: Option<&CallOptions>) -> Vec<(&'static str, Owner)> {
    let modules = options.map_or(CallModules::NONE, |options| options.modules);
    [
        ("orchestration", modules.orchestration),
        ("execution", modules.execution),
    ]
    .into_iter()
    .filter(|(_, runs)| *runs)
    .map(|(name, _)| (name, Owner::Calls))
    .collect()
}

/// The handler of deletions of calls that are elsewhere, for their timers, if they are to be heard.
pub(crate) fn deletions(
    are_heard: bool,
    timers: &Arc<dyn TimerPersistencePort>,
) -> Option<Arc<dyn MessageHandler>> {
    are_heard.then(|| Arc::new(DeleteCallTimers::of(Arc::clone(timers))) as _)
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
    pub(crate) execute: Option<ExecuteCalls>,
    pub(crate) dispatch: Option<BackgroundWorker<DispatchOutbox>>,
    pub(crate) sweep: Option<BackgroundWorker<CallSweeper>>,
    pub(crate) retention: Option<BackgroundWorker<CallRetention>>,
    ports: CallPorts,
    settings: CallSettings,
    modules: CallModules,
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
        let (settings, modules) = (options.settings, options.modules);
        let writes = modules.orchestration || modules.execution;
        let execute = || ExecuteCalls::new(ports, Arc::clone(&options.http), settings);
        let reject = || rejects_standalone.then(|| Arc::new(RejectStandaloneTimers) as _);
        Ok(Self {
            execute: modules.execution.then(execute).transpose()?,
            dispatch: writes.then(|| DispatchOutbox::worker(ports, settings)),
            sweep: modules
                .orchestration
                .then(|| CallSweeper::worker(ports, settings)),
            retention: writes.then(|| CallRetention::worker(ports, settings)),
            ports: ports.clone(),
            settings,
            modules,
            others: options.other_timers.clone().or_else(reject),
        })
    }

    /// The subscriptions: topic, consumer, batch and handler of each.
    pub(crate) fn handlers(&self) -> Vec<(Topic, &'static str, usize, Arc<dyn MessageHandler>)> {
        let (ports, modules) = (&self.ports, self.modules);
        let mut handlers: Vec<(Topic, &'static str, Arc<dyn MessageHandler>)> = Vec::new();
        if modules.orchestration {
            let react = Arc::new(ReactToEvents::new(ports, self.settings));
            let submit = Arc::new(SubmitCalls::new(ports, self.settings));
            let name = "orchestration";
            handlers.push((
                Topic::TimerEvents,
                name,
                Arc::<ReactToEvents>::clone(&react),
            ));
            handlers.push((Topic::ExecutionEvents, name, react));
            handlers.push((Topic::OrchestrationCommands, name, submit));
        }
        if modules.execution {
            let mut accept = AcceptExecutions::new(ports);
            if !modules.orchestration {
                accept = accept.forgetting_after(self.settings.keep);
                let delete = Arc::new(DeleteCallAttempts::new(ports));
                handlers.push((Topic::OrchestrationEvents, "execution", delete));
            }
            handlers.push((Topic::ExecutionCommands, "execution", Arc::new(accept)));
        }
        if modules.timer {
            let delete = Arc::new(DeleteCallTimers::new(ports));
            handlers.push((Topic::OrchestrationEvents, "timer", delete));
        }
        if let Some(others) = &self.others {
            let forward = ForwardStandaloneTimers::new(ports, Arc::clone(others));
            handlers.push((Topic::TimerEvents, "others", Arc::new(forward)));
        }
        let with_batch = |(topic, consumer, handler)| (topic, consumer, BATCH, handler);
        handlers.into_iter().map(with_batch).collect()
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
    let execute = async move {
        if let Some(execute) = plan.execute {
            return execute.run(requested(stop)).await.map(drop);
        }
        requested(stop).await;
        Ok(())
    };
    let dispatch = async move {
        let Some(dispatch) = plan.dispatch else {
            return Ok(());
        };
        let given_up = async {
            requested(drained.clone()).await;
            clock.sleep_for(LAST_MOMENTS).await;
        };
        tokio::select! {
            ended = dispatch.run_and_finish(requested(drained.clone())) => ended,
            () = given_up => Ok(()),
        }
    };
    let rest = async move {
        let ended = tokio::try_join!(run_for_ever(plan.sweep), run_for_ever(plan.retention));
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

/// Runs a worker, if there is one, until the store is broken.
async fn run_for_ever<T: BackgroundTask>(
    worker: Option<BackgroundWorker<T>>,
) -> Result<(), WorkerStopped> {
    match worker {
        Some(worker) => worker.run(pending()).await,
        None => pending().await,
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
