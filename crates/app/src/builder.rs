//! Putting an engine together, with every mistake reported before anything is opened.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use punctual_domain::DueTimeReached;
use punctual_domain::messages::Listeners;
use punctual_ports::{Backend, EventBusPort, MessageHandler};
use punctual_workflows::{
    InFlightEpoch, LastPoll, RepublishLost, Retention, RetentionSettings, TimerPorts, TimerWorker,
    WakeSignal, WorkerSettings,
};

use crate::bus::{BusSource, Connected, OwnBus, Owner};
use crate::calls::{self, CallOptions};
use crate::clock::{EngineClock, OnSystemClock};
use crate::engine::{Assembled, Engine, Plan};
use crate::handler::{HandlerError, Receiver};
use crate::stores::{OwnStore, Storage, Stores};
use crate::{Error, ErrorKind, Punctual};

/// Makes a [`Punctual`]: name a store for the timers and a receiver for due ones, and
/// [`build`](Self::build).
///
/// ```
/// # use punctual::testing::FakeClock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), punctual::Error> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("timers.db");
/// use punctual::{DueTimeReached, Punctual};
///
/// let punctual = Punctual::builder()
///     .sqlite(path)
///     .on_due(|due: DueTimeReached| async move {
///         println!("{} is due", due.service_call_id);
///         Ok(())
///     })
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is opened before `build`"]
pub struct Builder {
    pub(crate) storage: Vec<Box<dyn Storage>>,
    /// `None`: the calls, if there are any, are beside their timers.
    pub(crate) calls_storage: Option<Box<dyn Storage>>,
    receivers: Vec<Receiver>,
    pub(crate) bus: Option<Box<dyn BusSource>>,
    takes_commands: bool,
    hears_deletions: bool,
    pub(crate) calls: Option<CallOptions>,
    /// `None`: whatever suits clock, bus and store.
    worker: Option<WorkerSettings>,
    /// `None`: that of the worker's settings.
    polling_interval: Option<Duration>,
    retention: RetentionSettings,
    /// `None`: the machine's.
    pub(crate) clock: Option<Arc<dyn EngineClock>>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            storage: Vec::new(),
            calls_storage: None,
            receivers: Vec::new(),
            bus: None,
            takes_commands: false,
            hears_deletions: false,
            calls: None,
            worker: None,
            polling_interval: None,
            retention: RetentionSettings::default(),
            clock: None,
        }
    }

    /// Keeps the timers in a store of your own, which is open and is closed with the engine.
    ///
    /// An adapter is a trait with a written contract, [`Backend`](crate::ports::Backend), over a few
    /// ports; the feature `conformance` has the test cases that such a store passes.
    pub fn store(mut self, store: impl Backend) -> Self {
        self.storage.push(Box::new(OwnStore(Arc::new(store))));
        self
    }

    /// The handler of due timers. It is called at least once for each, so it has to be correct when it is
    /// called twice (with the same [`firing_id`](DueTimeReached::firing_id)). An error means again
    /// later, [`HandlerError::poison`] never again, a panic is an error like any other.
    ///
    /// Up to 64 calls of one tenant run at once, and a thousand in all, as tasks of the runtime. A
    /// handler that never returns keeps its tenant's place, so give it a limit of its own; one that
    /// blocks keeps a thread of the runtime from everybody, so let it
    /// [`spawn_blocking`](tokio::task::spawn_blocking).
    pub fn on_due<H, F>(self, handler: H) -> Self
    where
        H: Fn(DueTimeReached) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.on_due_with(move |due, _| handler(due))
    }

    /// The same with the engine at hand, for a handler that schedules: to schedule its own key
    /// arms the timer anew, and that is how something happens every day.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), punctual::Error> {
    /// use std::time::Duration;
    /// use punctual::testing::FakeClock;
    /// use punctual::{Punctual, TenantId, Timer, TimerKey};
    ///
    /// let clock = FakeClock::new("2026-12-01T08:00:00Z".parse()?);
    /// let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    /// let punctual = Punctual::builder()
    ///     .in_memory(clock.clone())
    ///     .on_due_with(move |due, punctual| {
    ///         let said = said.clone();
    ///         async move {
    ///             said.send(due.due_at)?;
    ///             let tomorrow = due.due_at.saturating_add(Duration::from_hours(24));
    ///             let _ = punctual.schedule(Timer::at(due.key(), tomorrow)).await?;
    ///             Ok(())
    ///         }
    ///     })
    ///     .build()
    ///     .await?;
    /// let running = punctual.start().await?;
    /// let daily = TimerKey::named(TenantId::default(), "daily report");
    /// punctual.ensure(Timer::after(daily, Duration::from_hours(1))).await?; // at every start
    /// clock.advance(Duration::from_hours(24 * 7)).await;
    /// assert_eq!(heard.len(), 7);
    /// assert_eq!(heard.recv().await.unwrap().to_string(), "2026-12-01T09:00:00.000Z");
    /// running.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_due_with<H, F>(mut self, handler: H) -> Self
    where
        H: Fn(DueTimeReached, Punctual) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let handle = move |due, punctual| handler(due, punctual).boxed();
        self.receivers.push(Receiver::Function(Arc::new(handle)));
        self
    }

    /// In place of a function: a handler that takes the events with their envelopes, up to
    /// `max_batch` of them at once, and answers for each.
    pub fn subscriber(mut self, handler: impl MessageHandler + 'static, max_batch: usize) -> Self {
        let handler = Arc::new(handler);
        self.receivers
            .push(Receiver::Subscriber(handler, max_batch));
        self
    }

    /// Sends the events through a bus of your own instead of one inside this process. A handler, if
    /// there is one, is subscribed to it.
    ///
    /// An adapter is a small trait with a written contract: [`EventBusPort`](crate::ports::EventBusPort).
    pub fn bus(mut self, bus: impl EventBusPort + 'static) -> Self {
        self.bus = Some(Box::new(OwnBus(Arc::new(bus))));
        self
    }

    /// Also takes `ScheduleTimer` commands from the bus, or the broker, that was given.
    pub const fn take_commands(mut self) -> Self {
        self.takes_commands = true;
        self
    }

    /// Also deletes the timers of service calls that are deleted elsewhere, as the bus, or the broker, says.
    #[cfg(feature = "calls")]
    pub const fn hear_deletions(mut self) -> Self {
        self.hears_deletions = true;
        self
    }

    /// How often to poll the store although nothing is known to be due: the safety net. Unless it is
    /// set, 5 s; on a fake clock, which polls at the beginning of every `advance`, an hour.
    pub const fn polling_interval(mut self, interval: Duration) -> Self {
        self.polling_interval = Some(interval);
        self
    }

    /// How long fired timers are kept, 30 days unless it is set.
    pub const fn keep_fired_for(mut self, keep: Duration) -> Self {
        self.retention.keep = keep;
        self
    }

    /// All settings of the worker at once.
    pub const fn worker(mut self, settings: WorkerSettings) -> Self {
        self.worker = Some(settings);
        self.polling_interval = None;
        self
    }

    /// All settings of the removal of fired timers at once.
    pub const fn retention(mut self, settings: RetentionSettings) -> Self {
        self.retention = settings;
        self
    }

    /// Opens the store. Timers can be scheduled from now on; none fires before
    /// [`start`](Punctual::start).
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config), before anything is opened, with all that is missing or makes no
    /// sense; otherwise whatever is wrong with the store, of which nothing was changed then.
    pub async fn build(mut self) -> Result<Punctual, Error> {
        let problems = self.problems();
        if !problems.is_empty() {
            let message = format!("cannot build: {}", problems.join("; "));
            return Err(Error::new(ErrorKind::Config, message));
        }
        let clock = match &self.clock {
            Some(clock) => Arc::clone(clock),
            None => Arc::new(OnSystemClock::start()?),
        };
        let Some(mut storage) = self.storage.pop() else {
            return Err(Error::new(ErrorKind::Config, NO_STORAGE));
        };
        if self.bus.is_none() {
            storage.takes_commands_of_calls_alone();
        }
        let stores = Stores::open(storage, self.calls_storage.take(), &*clock).await?;
        match self.assemble(&stores, &*clock).await {
            Ok(assembled) => Ok(Punctual::built(Engine::new(assembled, stores, clock))),
            Err(error) => {
                // The next try has to find them free.
                stores.close().await;
                Err(error)
            }
        }
    }

    async fn assemble(
        mut self,
        stores: &Stores,
        clock: &dyn EngineClock,
    ) -> Result<Assembled, Error> {
        let worker = self.worker_settings();
        let fires = calls::fires(self.calls.as_ref());
        let rejects_standalone = self.rejects_standalone(stores);
        let (listeners, takes_commands) = (self.listeners(), self.takes_commands());
        let store = clock.timer_stores(stores.timers());
        let connected = match self.bus.take() {
            Some(bus) => {
                let mut consumers = calls::consumers(self.calls.as_ref());
                consumers.extend(takes_commands.then_some(("timer", Owner::Timers)));
                bus.connect(stores, consumers, clock).await?
            }
            None => Connected::to(Arc::new(clock.bus(worker.publishes_in_flight))),
        };
        let ports = TimerPorts {
            ids: clock.ids(),
            persistence: Arc::clone(&store.persistence),
            queue: Arc::clone(&store.queue),
            bus: connected.bus,
            clock: clock.port(),
            wake: WakeSignal::new(),
            in_flight_epoch: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        };
        let (calls, calls_plan) = match &self.calls {
            Some(options) => {
                let of_calls = clock.call_stores(stores.calls());
                let of_calls = of_calls.ok_or_else(|| no_calls_in(stores.calls()))?;
                let several = stores.calls().capabilities().several_instances;
                let (calls, plan) = calls::assemble(
                    options,
                    several,
                    of_calls,
                    &ports,
                    rejects_standalone,
                    listeners,
                )?;
                (Some(calls), Some(plan))
            }
            None => (None, None),
        };
        let plan = if stores.is_client() {
            None
        } else {
            Some(Plan {
                worker: fires
                    .then(|| TimerWorker::new(&ports, worker))
                    .transpose()?,
                retention: fires
                    .then(|| Retention::worker(&ports, self.retention))
                    .transpose()?,
                republish: RepublishLost::new(&ports, &store),
                receiver: self.receivers.pop(),
                takes_commands,
                hears_deletions: self.hears_deletions,
                calls: calls_plan,
            })
        };
        Ok(Assembled {
            ports,
            dead_letters: store.dead_letters,
            close_bus: connected.close,
            calls,
            plan,
        })
    }

    /// Whether timers that belong to no call may be stored, and nobody receives them.
    fn rejects_standalone(&self, stores: &Stores) -> bool {
        let may_be_stored = stores.timers().capabilities().standalone_timers;
        may_be_stored && self.bus.is_none() && self.receivers.is_empty()
    }

    /// Who receives what is written about calls. The bus inside the engine is nobody else's, and receivers of
    /// timers hear nothing of calls. What is written for other engines to publish, they decide about.
    fn listeners(&self) -> Listeners {
        if self.bus.is_some() || !calls::fires(self.calls.as_ref()) {
            Listeners::Anyone
        } else {
            Listeners::Modules
        }
    }

    /// Whether timers come as commands, from wherever.
    fn takes_commands(&self) -> bool {
        let calls = self.calls.as_ref();
        calls::fires(calls) && (self.takes_commands || calls.is_some())
    }

    /// All that is wrong with the configuration, each with what would be right.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut wrong = |is_wrong: bool, what: &str| {
            if is_wrong {
                problems.push(what.to_owned());
            }
        };
        wrong(self.storage.is_empty(), NO_STORAGE);
        wrong(
            self.storage.len() > 1,
            "there is more than one place for the timers: name one",
        );
        let is_client = self.storage.iter().any(|storage| storage.is_client());
        let no_receiver = self.receivers.is_empty() && self.bus.is_none() && self.calls.is_none();
        wrong(no_receiver && !is_client, NO_RECEIVER);
        wrong(
            is_client && !no_receiver,
            "a client of a store fires nothing, so it needs neither `on_due` nor a bus: drop them, or open it with `sqlite` or `postgres`",
        );
        wrong(
            self.receivers.len() > 1,
            "more than one handler was given: call `on_due` once, with one that may read the event's tenant and data",
        );
        wrong(
            self.takes_commands && self.bus.is_none(),
            "`take_commands` needs the bus that they come from: call `bus` or `nats`",
        );
        wrong(
            self.hears_deletions && self.bus.is_none(),
            "`hear_deletions` needs the bus that they come from: call `bus` or `nats`",
        );
        problems.extend(calls::problem(self.calls.as_ref(), self.bus.is_some()));
        problems.extend(self.storage.iter().filter_map(|storage| storage.problem()));
        if let Some(bus) = &self.bus {
            let is_fake = self.clock.as_ref().is_some_and(|clock| clock.is_fake());
            problems.extend(bus.problems(is_fake));
        }
        let worker = self.worker_settings().check().err();
        problems.extend(worker.map(|error| error.to_string()));
        problems.extend(self.retention.check().err().map(|error| error.to_string()));
        problems
    }

    pub(crate) fn worker_settings(&self) -> WorkerSettings {
        let settings = self.worker.unwrap_or_else(|| self.usual_worker_settings());
        WorkerSettings {
            polling_interval: self.polling_interval.unwrap_or(settings.polling_interval),
            ..settings
        }
    }

    fn usual_worker_settings(&self) -> WorkerSettings {
        let mut usual = match &self.bus {
            Some(bus) if bus.is_broker() => WorkerSettings::for_a_broker(),
            None if self.calls.is_some() && self.receivers.is_empty() => {
                WorkerSettings::for_calls()
            }
            // A handler may be slow, and must not delay other timers.
            _ => WorkerSettings::default(),
        };
        if self.storage.iter().any(|it| it.several_instances()) {
            usual = usual.for_several_instances();
        }
        match &self.clock {
            // Days have to pass in milliseconds.
            Some(clock) if clock.is_fake() => WorkerSettings {
                polling_interval: Duration::from_hours(1),
                ..usual
            },
            _ => usual,
        }
    }
}

const NO_STORAGE: &str = "there is no place for the timers: call `sqlite` (feature `sqlite`), `postgres` (feature `postgres`), `store`, or `in_memory` in tests (feature `testing`)";
const NO_RECEIVER: &str =
    "nothing receives the timers that are due: call `on_due`, `bus`, or `nats` (feature `nats`)";

fn no_calls_in(store: &dyn Backend) -> Error {
    let message = format!(
        "cannot build: {} keeps no service calls: give a store that does, such as a file opened with `SqliteSettings::service_calls` or a database with `PostgresSettings::service_calls`, or drop `service_calls`",
        store.name()
    );
    Error::new(ErrorKind::Config, message)
}

opaque_debug!(Builder);

#[cfg(all(test, feature = "calls"))]
mod tests {
    use punctual_adapters_http::{AllowedNets, HyperHttpClient, Roots};

    use super::*;
    use crate::CallOptions;

    #[test]
    fn events_of_calls_are_published_in_batches_unless_there_is_another_receiver() {
        let http = HyperHttpClient::new(AllowedNets::default(), Roots::none()).unwrap();
        let calls = Builder::new().service_calls(CallOptions::new(http));
        assert_eq!(calls.worker_settings(), WorkerSettings::for_calls());
        let heard = calls.on_due(|_| async { Ok(()) });
        assert_eq!(heard.worker_settings(), WorkerSettings::default());
        assert_eq!(Builder::new().worker_settings(), WorkerSettings::default());
    }
}
