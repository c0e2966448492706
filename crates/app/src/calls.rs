//! Service calls on an engine: the parts that live beside its timers.
//!
//! The modules of a service talk through the engine's bus: orchestration hears the timer and the
//! attempts, execution hears its commands, the timer hears its own and of deletions.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use punctual_domain::Topic;
use punctual_ports::{
    ExecutionLogPort, HttpClientPort, MessageHandler, OutboxPort, ServiceCallPersistencePort,
};
use punctual_workflows::calls::{
    AcceptExecutions, BackgroundWorker, CallPorts, CallSettings, CallSweeper, DispatchOutbox,
    ExecuteCalls, ForgetDeletedCalls, ForgetOldCalls, NobodyToTell, ReactToEvents, ReadCalls,
    SubmitCalls, TellOfOtherTimers,
};

use punctual_workflows::{TimerPorts, WorkerStopped};
use tokio::sync::watch;

#[cfg(feature = "sqlite")]
use punctual_adapters_sqlite::SqliteSettings;

use crate::Error;
#[cfg(feature = "sqlite")]
use crate::assembly::Opened;
use crate::clock::Clock;
use crate::store::Store;

/// Messages that a handler takes at once: one transaction each.
const BATCH: usize = 500;

/// How an engine makes service calls.
#[derive(Clone)]
pub struct CallOptions {
    /// Who makes the requests.
    pub http: Arc<dyn HttpClientPort>,
    /// How they are made and looked after.
    pub settings: CallSettings,
    /// Who is told of timers that belong to no call, where the calls have [a file of their
    /// own](crate::Builder::calls_in). Without anybody, and without `on_due` or a bus, such a timer
    /// becomes a dead letter when it is due.
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
    /// Takes calls and deletes them.
    pub submit: SubmitCalls,
    /// Shows them, and the trace of a request.
    pub read: ReadCalls,
}

impl fmt::Debug for ServiceCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCalls").finish_non_exhaustive()
    }
}

/// What an engine with service calls runs besides its timers.
pub(crate) struct CallsPlan {
    pub(crate) execute: ExecuteCalls,
    pub(crate) dispatch: BackgroundWorker<DispatchOutbox>,
    pub(crate) sweep: BackgroundWorker<CallSweeper>,
    pub(crate) forget: BackgroundWorker<ForgetOldCalls>,
    ports: CallPorts,
    settings: CallSettings,
    /// Who is told of timers that belong to no call.
    others: Option<Arc<dyn MessageHandler>>,
}

impl CallsPlan {
    /// `may_vanish`: there may be timers that belong to no call, and nobody else is told of them.
    pub(crate) fn new(
        ports: &CallPorts,
        options: &CallOptions,
        may_vanish: bool,
    ) -> Result<Self, Error> {
        let settings = options.settings;
        let nobody = || may_vanish.then(|| Arc::new(NobodyToTell) as _);
        Ok(Self {
            execute: ExecuteCalls::new(ports, Arc::clone(&options.http), settings)?,
            dispatch: DispatchOutbox::worker(ports, settings),
            sweep: CallSweeper::worker(ports, settings),
            forget: ForgetOldCalls::worker(ports, settings),
            ports: ports.clone(),
            settings,
            others: options.other_timers.clone().or_else(nobody),
        })
    }

    /// Who hears what, as which consumer.
    pub(crate) fn handlers(&self) -> Vec<(Topic, &'static str, usize, Arc<dyn MessageHandler>)> {
        let ports = &self.ports;
        let react = Arc::new(ReactToEvents::new(ports, self.settings));
        let submit = Arc::new(SubmitCalls::new(ports));
        let accept = Arc::new(AcceptExecutions::new(ports));
        let forget = Arc::new(ForgetDeletedCalls::new(ports));
        let others = self.others.as_ref().map(|whom| {
            let tell = TellOfOtherTimers::new(ports, Arc::clone(whom));
            (Topic::TimerEvents, "others", BATCH, Arc::new(tell) as _)
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
            (Topic::OrchestrationEvents, "timer", BATCH, forget as _),
        ];
        of_calls.into_iter().chain(others).collect()
    }
}

/// The two halves of what runs: the attempts, which drain when they are asked to stop, and whatever
/// goes on until the end.
pub(crate) fn run(
    plan: Option<CallsPlan>,
    mut stop: watch::Receiver<bool>,
) -> (
    BoxFuture<'static, Result<(), WorkerStopped>>,
    BoxFuture<'static, WorkerStopped>,
) {
    let Some(plan) = plan else {
        return (ready(Ok(())).boxed(), pending().boxed());
    };
    let asked = async move {
        // An error means that the engine is gone, which asks for the same.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let execute = async move { plan.execute.run(asked).await.map(drop) };
    let rest = async move {
        let ended = tokio::try_join!(
            plan.dispatch.run(pending()),
            plan.sweep.run(pending()),
            plan.forget.run(pending()),
        );
        match ended {
            Err(stopped) => stopped,
            Ok(_) => pending().await,
        }
    };
    (execute.boxed(), rest.boxed())
}

/// Opens the calls' own file, if they have one.
#[cfg(feature = "sqlite")]
pub(crate) async fn with_file(
    mut opened: Opened,
    settings: Option<&SqliteSettings>,
    clock: &Clock,
) -> Result<Opened, Error> {
    if let (Store::Sqlite(sqlite), Some(settings)) = (&mut opened.store, settings) {
        match crate::store::open(settings, clock).await {
            Ok(calls) => sqlite.calls = Some(calls),
            Err(error) => {
                // The next try has to find the timers' file free.
                opened.store.close().await;
                return Err(error);
            }
        }
    }
    Ok(opened)
}

/// The calls in the database of the timers, or in their own.
pub(crate) fn open(store: &Store, clock: &Clock, timers: &TimerPorts) -> Result<CallPorts, Error> {
    match store {
        #[cfg(feature = "sqlite")]
        Store::Sqlite(sqlite) => {
            let calls = sqlite.calls.as_ref().unwrap_or(&sqlite.store).calls()?;
            Ok(match clock {
                Clock::System { .. } => ports(calls, timers),
                #[cfg(feature = "testing")]
                Clock::Fake(clock) => {
                    use punctual_adapters_memory::Awaited;
                    ports(Awaited::new(Arc::new(calls), clock), timers)
                }
            })
        }
        #[cfg(feature = "testing")]
        Store::Memory(memory) => {
            let _ = clock;
            let calls = punctual_adapters_memory::MemoryCallStore::beside(memory);
            Ok(ports(calls, timers))
        }
    }
}

fn ports<S>(store: S, timers: &TimerPorts) -> CallPorts
where
    S: ServiceCallPersistencePort + OutboxPort + ExecutionLogPort + 'static,
{
    CallPorts::new(
        Arc::clone(&timers.clock),
        Arc::clone(&timers.ids),
        Arc::clone(&timers.bus),
        store,
        Arc::clone(&timers.persistence),
    )
}

pub(crate) fn service_calls(ports: &CallPorts) -> ServiceCalls {
    ServiceCalls {
        submit: SubmitCalls::new(ports),
        read: ReadCalls::new(ports),
    }
}
