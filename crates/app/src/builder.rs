//! Putting an engine together, with every mistake told before anything is opened.

use std::fmt;
use std::future::Future;
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
#[cfg(feature = "testing")]
use punctual_adapters_memory::FakeClock;
#[cfg(feature = "nats")]
use punctual_adapters_nats::NatsSettings;
#[cfg(feature = "sqlite")]
use punctual_adapters_sqlite::{Role, SqliteSettings};
use punctual_domain::DueTimeReached;
use punctual_ports::{EventBusPort, MessageHandler};
use punctual_workflows::{
    InFlightEpoch, LastPoll, RepublishLost, Retention, RetentionSettings, TimerPorts, TimerWorker,
    WakeSignal, WorkerSettings,
};

use crate::assembly::{Bus, Storage, connect, ids, open};
use crate::clock::Clock;
use crate::engine::{Engine, Plan};
use crate::handler::{HandlerError, Told};
use crate::{Error, ErrorKind, Punctual};

/// Makes a [`Punctual`]: name a place for the timers and somebody to tell, and [`build`](Self::build).
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
    storage: Vec<Storage>,
    handlers: Vec<Told>,
    bus: Option<Bus>,
    takes_commands: bool,
    #[cfg(feature = "calls")]
    calls: Option<crate::CallOptions>,
    #[cfg(all(feature = "calls", feature = "sqlite"))]
    calls_storage: Option<SqliteSettings>,
    /// `None`: whatever suits the clock.
    worker: Option<WorkerSettings>,
    retention: RetentionSettings,
    #[cfg(feature = "testing")]
    clock: Option<FakeClock>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            storage: Vec::new(),
            handlers: Vec::new(),
            bus: None,
            takes_commands: false,
            #[cfg(feature = "calls")]
            calls: None,
            #[cfg(all(feature = "calls", feature = "sqlite"))]
            calls_storage: None,
            worker: None,
            retention: RetentionSettings::default(),
            #[cfg(feature = "testing")]
            clock: None,
        }
    }

    /// Keeps the timers in an SQLite file, which this engine fires. File and folder are created if
    /// they are missing. A file has one engine; others may use it as [clients](Self::sqlite_client).
    #[cfg(feature = "sqlite")]
    pub fn sqlite(self, path: impl Into<PathBuf>) -> Self {
        self.sqlite_with(SqliteSettings::timers(path))
    }

    /// Schedules, reads and cancels in a file that another process fires. What it schedules is
    /// noticed there within a second.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_client(self, path: impl Into<PathBuf>) -> Self {
        self.sqlite_with(SqliteSettings::client(path))
    }

    /// The same with all settings: how durable, how large, how long to wait for a lock.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_with(mut self, settings: SqliteSettings) -> Self {
        self.storage.push(Storage::Sqlite(settings));
        self
    }

    /// Keeps the timers in memory, on a clock that is moved by hand: for tests.
    #[cfg(feature = "testing")]
    pub fn in_memory(mut self, clock: FakeClock) -> Self {
        self.storage.push(Storage::Memory);
        self.fake_clock(clock)
    }

    /// Goes by a clock that is moved by hand, also on SQLite: for tests of code that uses
    /// [`schedule_in`](Punctual::schedule_in). Commit before you advance the clock: while you hold the
    /// write lock, each write of the engine waits for it, in real time.
    #[cfg(feature = "testing")]
    pub fn fake_clock(mut self, clock: FakeClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who is told when a timer is due: at least once, so the handler has to be correct when it is
    /// told twice (by [`firing_id`](DueTimeReached::firing_id) it knows). An error means again
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
        self.handlers.push(Told::Function(Arc::new(handle)));
        self
    }

    /// In place of a function: a handler that takes the events with their envelopes, up to
    /// `max_batch` of them at once, and answers for each.
    pub fn subscriber(mut self, handler: impl MessageHandler + 'static, max_batch: usize) -> Self {
        let handler = Arc::new(handler);
        self.handlers.push(Told::Subscriber(handler, max_batch));
        self
    }

    /// Sends the events through a bus of your own instead of one inside this process. A handler, if
    /// there is one, is subscribed to it.
    ///
    /// An adapter is a small trait with a written contract: [`EventBusPort`](crate::ports::EventBusPort).
    pub fn bus(mut self, bus: impl EventBusPort + 'static) -> Self {
        self.bus = Some(Bus::Own(Arc::new(bus)));
        self
    }

    /// Sends the events through NATS JetStream, at an address such as `nats://host:4222`. A handler,
    /// if there is one, gets them from there: also those that another engine has sent.
    ///
    /// A broker that does not answer is waited for, here and later: timers are accepted and stored
    /// meanwhile, and fire when it is back.
    #[cfg(feature = "nats")]
    pub fn nats(mut self, url: impl AsRef<str>) -> Self {
        self.bus = Some(Bus::Nats(Box::new(NatsSettings::new(url.as_ref()))));
        self
    }

    /// The same with all settings: credentials, certificates, names of streams.
    #[cfg(feature = "nats")]
    pub fn nats_with(mut self, settings: NatsSettings) -> Self {
        self.bus = Some(Bus::Nats(Box::new(Ok(settings))));
        self
    }

    /// Also takes `ScheduleTimer` commands from the bus, or the broker, that was given.
    pub const fn take_commands(mut self) -> Self {
        self.takes_commands = true;
        self
    }

    /// Also takes service calls: HTTP requests that are made once, at their due time. They are in the
    /// same database as their timers, so open one for both:
    /// [`SqliteSettings::service_calls`](crate::SqliteSettings::service_calls). Nobody else has to be
    /// told when a timer is due, and timers of your own have to belong to a call.
    ///
    /// The calls are submitted and read through [`Punctual::calls`].
    #[cfg(feature = "calls")]
    pub fn service_calls(mut self, options: crate::CallOptions) -> Self {
        self.calls = Some(options);
        self
    }

    /// Keeps the service calls in a file of their own, and the timers in theirs, which then may be
    /// anybody's: deletions of calls are told to them by message.
    #[cfg(all(feature = "calls", feature = "sqlite"))]
    pub fn calls_in(mut self, settings: SqliteSettings) -> Self {
        self.calls_storage = Some(settings);
        self
    }

    /// How often to look at the store although nothing is known to be due: the safety net. Unless it
    /// is set, 5 s; on a fake clock, which looks at the beginning of every `advance`, an hour.
    pub fn polling_interval(mut self, interval: Duration) -> Self {
        let mut settings = self.worker_settings();
        settings.polling_interval = interval;
        self.worker = Some(settings);
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
    /// sense; otherwise whatever is wrong with the file, of which nothing was changed then.
    pub async fn build(self) -> Result<Punctual, Error> {
        let problems = self.problems();
        if !problems.is_empty() {
            let message = format!("cannot build: {}", problems.join("; "));
            return Err(Error::new(ErrorKind::Config, message));
        }
        let (clock, worker) = (self.clock()?, self.worker_settings());
        let wake = WakeSignal::new();
        let Some(mut storage) = self.storage.into_iter().next() else {
            return Err(Error::new(ErrorKind::Config, NO_STORAGE));
        };
        if self.bus.is_none() {
            storage.takes_commands_of_calls_alone();
        }
        let opened = open(storage, &clock, &wake).await?;
        #[cfg(all(feature = "calls", feature = "sqlite"))]
        let opened = crate::calls::with_file(opened, self.calls_storage.as_ref(), &clock).await?;
        #[cfg(feature = "calls")]
        let is_alone = self.bus.is_none() && self.handlers.is_empty();
        let connected = match connect(self.bus, &opened, &clock, &worker).await {
            Ok(connected) => connected,
            Err(error) => {
                // The next try has to find the file free.
                opened.store.close().await;
                return Err(error);
            }
        };
        let ports = TimerPorts {
            ids: ids(&clock),
            persistence: opened.persistence,
            queue: opened.queue,
            bus: connected.bus,
            clock: clock.port(),
            wake,
            begun: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        };
        #[cfg(feature = "calls")]
        let (calls, calls_plan) = match &self.calls {
            Some(options) => {
                let ports = crate::calls::open(&opened.store, &clock, &ports)?;
                let own = opened.store.has_timers_of_their_own();
                let plan = crate::calls::CallsPlan::new(&ports, options, own && is_alone)?;
                (Some(crate::calls::service_calls(&ports)), Some(plan))
            }
            None => (None, None),
        };
        let plan = if opened.store.is_client() {
            None
        } else {
            Some(Plan {
                worker: TimerWorker::new(&ports, worker)?,
                retention: Retention::new(&ports, self.retention)?,
                republish: RepublishLost::new(&ports, Arc::clone(&opened.dead_letters)),
                told: self.handlers.into_iter().next(),
                takes_commands: self.takes_commands,
                #[cfg(feature = "calls")]
                calls: calls_plan,
            })
        };
        let engine = Engine::new(ports, opened.dead_letters, opened.store, clock, plan);
        #[cfg(feature = "calls")]
        let engine = engine.with_calls(calls);
        #[cfg(feature = "nats")]
        let engine = engine.with_broker(connected.broker);
        Ok(Punctual::built(engine))
    }

    /// All that is wrong with what was asked for, each with what would be right.
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
        let nobody = self.handlers.is_empty() && self.bus.is_none() && !self.has_calls();
        wrong(nobody && !self.is_client(), NOBODY);
        wrong(
            self.is_client() && !nobody,
            "a client of a file fires nothing, so it needs neither `on_due` nor a bus: drop them, or open the file with `sqlite`",
        );
        wrong(
            self.handlers.len() > 1,
            "more than one handler was given: call `on_due` once, with one which may look at the event's tenant and data",
        );
        wrong(
            self.takes_commands && self.bus.is_none(),
            "`take_commands` needs the bus that they come from: call `bus` or `nats`",
        );
        #[cfg(feature = "nats")]
        if let Some(Bus::Nats(settings)) = &self.bus {
            let checked = settings.as_ref().as_ref().map_err(Clone::clone);
            let checked = checked.and_then(NatsSettings::check);
            problems.extend(checked.err().map(|error| error.to_string()));
            #[cfg(feature = "testing")]
            if self.clock.is_some() {
                problems.push(
                    "a broker lives in real time: drop the fake clock, or give a `bus` of your own"
                        .to_owned(),
                );
            }
        }
        problems.extend(
            self.worker_settings()
                .check()
                .err()
                .map(|error| error.to_string()),
        );
        problems.extend(self.retention.check().err().map(|error| error.to_string()));
        problems
    }

    #[cfg_attr(
        not(feature = "calls"),
        expect(clippy::unused_self, reason = "without them there are none")
    )]
    const fn has_calls(&self) -> bool {
        #[cfg(feature = "calls")]
        return self.calls.is_some();
        #[cfg(not(feature = "calls"))]
        false
    }

    fn is_client(&self) -> bool {
        self.storage.iter().any(|storage| match storage {
            #[cfg(feature = "sqlite")]
            Storage::Sqlite(settings) => settings.role == Role::Client,
            #[cfg(feature = "testing")]
            Storage::Memory => false,
        })
    }

    fn worker_settings(&self) -> WorkerSettings {
        if let Some(given) = self.worker {
            return given;
        }
        let usual = if self.has_calls() && self.handlers.is_empty() && self.bus.is_none() {
            // Somebody else's handler may be slow, and must not hold up other timers.
            WorkerSettings::for_calls()
        } else {
            WorkerSettings::default()
        };
        #[cfg(feature = "nats")]
        let usual = match self.bus {
            Some(Bus::Nats(_)) => WorkerSettings::for_a_broker(),
            _ => usual,
        };
        #[cfg(feature = "testing")]
        let usual = match self.clock {
            // Days have to pass in milliseconds.
            Some(_) => WorkerSettings {
                polling_interval: Duration::from_hours(1),
                ..usual
            },
            None => usual,
        };
        usual
    }

    fn clock(&self) -> Result<Clock, Error> {
        #[cfg(feature = "testing")]
        if let Some(clock) = &self.clock {
            return Ok(Clock::Fake(clock.clone()));
        }
        Clock::system()
    }
}

const NO_STORAGE: &str = "there is no place for the timers: call `sqlite` (feature `sqlite`), or `in_memory` in tests (feature `testing`)";
const NOBODY: &str =
    "there is nobody to tell when a timer is due: call `on_due`, `bus`, or `nats` (feature `nats`)";

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "calls"))]
mod tests {
    use punctual_adapters_http::{AllowedNets, HyperHttpClient, Roots};

    use super::*;
    use crate::CallOptions;

    #[test]
    fn events_of_calls_are_published_in_batches_unless_somebody_else_hears_them() {
        let http = HyperHttpClient::new(AllowedNets::default(), Roots::none()).unwrap();
        let calls = Builder::new().service_calls(CallOptions::new(http));
        assert_eq!(calls.worker_settings(), WorkerSettings::for_calls());
        let heard = calls.on_due(|_| async { Ok(()) });
        assert_eq!(heard.worker_settings(), WorkerSettings::default());
        assert_eq!(Builder::new().worker_settings(), WorkerSettings::default());
    }
}
