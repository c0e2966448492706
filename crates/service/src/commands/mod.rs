//! The commands that read or change one thing and end, also while the database is being served.

pub(crate) mod backup;
mod batch;
mod batch_line;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod instances;
pub(crate) mod migrate;
pub(crate) mod output;
pub(crate) mod read;
pub(crate) mod schedule;
pub(crate) mod send;
pub(crate) mod trace;

use std::sync::Arc;

use punctual_adapters_sqlite::{SchemaSet, SqliteSettings, served_by};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::TimerKey;
use punctual_ports::{Backend, PortError, TimerStores};
use punctual_workflows::{InFlightEpoch, LastPoll, ScheduleTimers, TimerPorts, WakeSignal};

use crate::cli::KeyArgs;
use crate::display::cut;
use crate::failure::Failure;
use crate::settings::{ClientDatabases, Environment, TimerDatabase, TraceFlags};
use crate::store;

/// A database that may be served by other processes at the same time.
struct Session {
    clock: SystemClock,
    backend: Arc<dyn Backend>,
    /// The ports of the timers.
    stores: TimerStores,
    /// Which it is.
    database: TimerDatabase,
}

impl Session {
    /// Opens a database that has to be there.
    async fn open(flags: &TraceFlags, environment: &Environment<'_>) -> Result<Self, Failure> {
        let (clock, database) = (clock()?, chosen(environment.client(flags)?));
        let backend: Arc<dyn Backend> = match &database {
            TimerDatabase::Sqlite(settings) => Arc::new(store::open_existing(settings, &clock)?),
            TimerDatabase::Postgres(settings) => {
                Arc::new(store::open_postgres(settings, &clock).await?)
            }
        };
        Ok(Self::on(clock, backend, database))
    }

    /// The same for commands about timers: refuses a database that has none.
    async fn open_timers(
        flags: &TraceFlags,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        let session = Self::open(flags, environment).await?;
        if session.backend.has_timers() {
            return Ok(session);
        }
        session.close().await;
        Err(session.has_no_timers())
    }

    fn has_no_timers(&self) -> Failure {
        Failure::refused(format!(
            "{} has the attempts of service calls, and no timers: name a database of timers with --db or DATABASE_URL",
            self.database
        ))
    }

    /// Opens a database to schedule timers in. A file is created if it is not there.
    async fn open_or_create(
        clock: SystemClock,
        flags: &TraceFlags,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        let database = chosen(environment.client(flags)?);
        let backend: Arc<dyn Backend> = match &database {
            TimerDatabase::Sqlite(settings) if settings.set == SchemaSet::Shared => {
                return Err(Failure::refused(format!(
                    "the timers of {} belong to service calls, and others do not fire there: submit a call with `timer-service call`, or serve timers with `timer-service --modules timer` and name their file with --db",
                    crate::display::path(&settings.path)
                )));
            }
            TimerDatabase::Sqlite(settings) => Arc::new(store::open(settings, &clock)?),
            TimerDatabase::Postgres(settings) => {
                Arc::new(store::open_postgres(settings, &clock).await?)
            }
        };
        if !backend.has_timers() {
            backend.close().await;
            return Err(Self::on(clock, backend, database).has_no_timers());
        }
        if database.sqlite().is_none() && !backend.capabilities().standalone_timers {
            backend.close().await;
            return Err(Failure::refused(format!(
                "the timers of {database} belong to service calls, and others do not fire there: submit a call with `timer-service call`, or serve timers from another schema with `timer-service --modules timer`"
            )));
        }
        Ok(Self::on(clock, backend, database))
    }

    fn on(clock: SystemClock, backend: Arc<dyn Backend>, database: TimerDatabase) -> Self {
        Self {
            clock,
            stores: backend.timer_stores(),
            backend,
            database,
        }
    }

    /// Whether its timers belong to service calls.
    fn is_of_calls(&self) -> bool {
        !self.backend.capabilities().standalone_timers
    }

    /// Prints a note if no process serves the database, as far as that can be told.
    fn say_if_unserved(&self) {
        if let Some(settings) = self.database.sqlite()
            && is_unserved(settings)
        {
            crate::say(&format!(
                "note: no process serves {} at the moment: `timer-service --modules timer` does, and fires what is overdue then",
                crate::display::path(&settings.path)
            ));
        }
    }

    fn timers(&self) -> ScheduleTimers {
        ScheduleTimers::new(&TimerPorts {
            clock: Arc::new(self.clock.clone()),
            ids: Arc::new(UuidIds),
            persistence: Arc::clone(&self.stores.persistence),
            queue: Arc::clone(&self.stores.queue),
            // Nothing is published here: the process that serves the database does that.
            bus: Arc::new(InProcessBus::new(Handlers::Inline)),
            wake: WakeSignal::new(),
            in_flight_epoch: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        })
    }

    async fn close(&self) {
        self.backend.close().await;
    }
}

/// Of two files that may be meant, the one that is served; otherwise the one that is there.
fn chosen(databases: ClientDatabases) -> TimerDatabase {
    let (own, shared) = match databases {
        ClientDatabases::Postgres(settings) => return TimerDatabase::Postgres(settings),
        ClientDatabases::One(settings) => return TimerDatabase::Sqlite(settings),
        ClientDatabases::Either { own, shared } => (own, shared),
    };
    let (served, calls_served) = (!is_unserved(&own), !is_unserved(&shared));
    let is_of_calls = if served == calls_served {
        shared.path.exists() && !own.path.exists()
    } else {
        calls_served
    };
    TimerDatabase::Sqlite(if is_of_calls { shared } else { own })
}

fn is_unserved(settings: &SqliteSettings) -> bool {
    // An error is reported when the file is opened.
    matches!(served_by(&settings.path), Ok(None))
}

/// Starts the clock.
pub(crate) fn clock() -> Result<SystemClock, Failure> {
    SystemClock::start()
        .map_err(|error| Failure::refused(format!("the clock cannot be started: {error}")))
}

/// The key that the flags name, and the name if it was given by one. The command line makes sure that
/// there is an id or a name.
fn key(args: KeyArgs) -> Result<(TimerKey, Option<String>), Failure> {
    match (args.id, args.name) {
        (Some(id), _) => Ok((TimerKey::new(args.tenant, id), None)),
        (None, Some(name)) => Ok((TimerKey::named(args.tenant, &name), Some(name))),
        (None, None) => Err(Failure::usage("which timer: give --id or --name")),
    }
}

/// A timer in a sentence, with its name if one was given.
fn described(key: &TimerKey, name: Option<&str>) -> String {
    let (id, tenant) = (key.service_call_id, &key.tenant_id);
    match name {
        Some(name) => format!("timer \"{}\" ({id}) of tenant {tenant}", cut(name)),
        None => format!("timer {id} of tenant {tenant}"),
    }
}

/// The one answer of a batch of one.
fn only<T>(answers: Vec<Result<T, PortError>>) -> Result<T, Failure> {
    match answers.into_iter().next() {
        Some(answer) => Ok(answer?),
        None => Err(Failure::failed("the store gave no answer")),
    }
}
