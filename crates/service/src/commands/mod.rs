//! The commands that read or change one thing and end, also while the database is being served.

mod backup;
mod batch;
mod batch_line;
mod call;
mod cancel;
mod completions;
mod dead_letters;
mod demo;
mod migrate;
mod output;
mod read;
mod schedule;
mod send;
mod trace;

use punctual_adapters_sqlite::{SchemaSet, SqliteSettings, SqliteTimerStore, served_by};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::TimerKey;
use punctual_ports::PortError;
use punctual_workflows::{ScheduleTimers, TimerPorts};

use crate::cli::KeyArgs;
use crate::display::cut;
use crate::failure::Failure;
use crate::settings::{ClientDatabases, Environment, TraceFlags};
use crate::store;

pub(crate) use backup::backup;
pub(crate) use call::call;
pub(crate) use cancel::cancel;
pub(crate) use completions::completions;
pub(crate) use dead_letters::dead_letters;
pub(crate) use demo::demo;
pub(crate) use migrate::migrate;
pub(crate) use output::Answers;
pub(crate) use read::{get, list};
pub(crate) use schedule::schedule;
pub(crate) use send::send;
pub(crate) use trace::trace;

/// Whether a command may begin a database or needs one with timers in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    MayBeNew,
    MustExist,
}

/// A database that may be served by another process at the same time.
struct Session {
    clock: SystemClock,
    store: SqliteTimerStore,
    /// Which it is.
    settings: SqliteSettings,
}

impl Session {
    async fn open(
        clock: SystemClock,
        flags: &TraceFlags,
        environment: &Environment<'_>,
        database: Database,
    ) -> Result<Self, Failure> {
        let settings = chosen(environment.client(flags)?);
        if database == Database::MayBeNew && settings.set == SchemaSet::Shared {
            return Err(Failure::refused(format!(
                "the timers of {} belong to service calls, and others do not fire there: submit a call with `timer-service call`, or serve timers with `timer-service --modules timer` and name their file with --db",
                crate::display::path(&settings.path)
            )));
        }
        let store = match database {
            Database::MayBeNew => store::open(&settings, &clock).await?,
            Database::MustExist => store::open_existing(&settings, &clock).await?,
        };
        Ok(Self {
            clock,
            store,
            settings,
        })
    }

    /// Whether its timers belong to service calls.
    fn is_of_calls(&self) -> bool {
        self.settings.set == SchemaSet::Shared
    }

    /// Prints a note if no process serves the database.
    fn say_if_unserved(&self) {
        if is_unserved(&self.settings) {
            crate::say(&format!(
                "note: no process serves {} at the moment: `timer-service --modules timer` does, and fires what is overdue then",
                crate::display::path(&self.settings.path)
            ));
        }
    }

    fn timers(&self) -> ScheduleTimers {
        // Nothing is published here: the process that serves the file does that.
        let bus = InProcessBus::new(Handlers::Inline);
        let ports = TimerPorts::new(self.clock.clone(), UuidIds, self.store.clone(), bus);
        ScheduleTimers::new(&ports)
    }

    async fn close(self) {
        self.store.close().await;
    }
}

/// Of two files that may be meant, the one that is served; otherwise the one that is there.
fn chosen(databases: ClientDatabases) -> SqliteSettings {
    let (own, shared) = match databases {
        ClientDatabases::One(settings) => return settings,
        ClientDatabases::Either { own, shared } => (own, shared),
    };
    let (served, calls_served) = (!is_unserved(&own), !is_unserved(&shared));
    let is_of_calls = if served == calls_served {
        shared.path.exists() && !own.path.exists()
    } else {
        calls_served
    };
    if is_of_calls { shared } else { own }
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
