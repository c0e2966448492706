//! How a store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_migrations::SchemaSet;

use crate::PostgresUrl;
use crate::values::Instant;

/// What a program does with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Fires timers, together with all others that do.
    Timer,
    /// Schedules, cancels and reads, and never fires: a worker on it stops at once.
    Client,
}

/// The clock that all instances share: it decides about leases and registrations, and with the clock of the
/// instance about what is due.
#[derive(Debug, Clone, Default)]
pub enum StoreClock {
    /// The clock of the database server. Nothing fires early by either clock.
    #[default]
    Server,
    /// The time that each call names: for a fake clock, which the server does not follow.
    Caller,
    /// A clock that a test sets.
    #[doc(hidden)]
    Set(TestClock),
}

impl StoreClock {
    /// What takes the place of the server's clock in an operation that names a time.
    pub(crate) fn given(&self, now: Timestamp) -> Option<Instant> {
        match self {
            Self::Server => None,
            Self::Caller => Some(Instant(now)),
            Self::Set(clock) => Some(Instant(clock.get().unwrap_or(now))),
        }
    }

    pub(crate) const fn is_server(&self) -> bool {
        matches!(self, Self::Server)
    }
}

/// A store's clock for tests: the time of each call, until it is set. Clones share it.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl Default for TestClock {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl TestClock {
    /// Stops it at an instant; `None` makes it follow the callers again.
    pub fn set(&self, now: Option<Timestamp>) {
        let millis = now.map_or(i64::MIN, Timestamp::as_millis);
        self.0.store(millis, Ordering::Release);
    }

    fn get(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0.load(Ordering::Acquire)).ok()
    }
}

/// When a timer that a caller stores in its own transaction
/// ([`schedule_in`](crate::PostgresTimerStore::schedule_in)) comes with a `NOTIFY`, which the server sends to
/// all instances at the commit.
///
/// Nothing depends on it: without it, the worker in the caller's process polls at the due time and at
/// growing intervals after that, and others find the timer at their next poll, or within five seconds if the
/// commit comes more than a second after the due time. It has a price: a commit with a `NOTIFY` holds a
/// lock of the whole server while it waits for the disk, so that such commits follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitNotify {
    /// If the timer is due within a second, and no worker in this process polls for it.
    #[default]
    IfSoon,
    /// Always: also for transactions that stay open past the due times of their timers.
    Always,
    /// Never.
    Never,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// Where the database is.
    pub url: PostgresUrl,
    /// The schema of the tables; by default the first of the `search_path`. It must exist.
    pub schema: Option<String>,
    /// Where notifications arrive, if not at `url`: a pooler that gives each transaction another
    /// connection passes none on.
    pub listen_url: Option<PostgresUrl>,
    /// Which tables it has: timers alone, unless timers belong to service calls in the same schema, or it is
    /// for attempts. A client takes those that are there.
    pub set: SchemaSet,
    /// What it is opened for.
    pub role: Role,
    /// The clock that all instances share.
    pub time: StoreClock,
    /// When a commit of a caller's with a timer in it wakes other instances.
    pub commit_notify: CommitNotify,
    /// How long an operation may take before it answers `Unavailable`.
    pub time_limit: Duration,
    /// How long opening waits for a server that does not answer, or takes no connections yet. What does not
    /// pass by itself, such as a wrong password, is an error at once. Not at all by default.
    pub wait: Duration,
    /// What others see of this instance.
    pub label: InstanceLabel,
}

/// What an instance says of itself to those who list all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceLabel {
    /// What its operator knows it by, such as host and process.
    pub name: String,
    /// The modules that it runs.
    pub modules: String,
}

impl PostgresSettings {
    /// Timers alone, fired by this process and by all others that open them so.
    pub const fn timers(url: PostgresUrl) -> Self {
        Self {
            url,
            schema: None,
            listen_url: None,
            set: SchemaSet::TimersOnly,
            role: Role::Timer,
            time: StoreClock::Server,
            commit_notify: CommitNotify::IfSoon,
            time_limit: Duration::from_secs(10),
            wait: Duration::ZERO,
            label: InstanceLabel {
                name: String::new(),
                modules: String::new(),
            },
        }
    }

    /// Service calls and their timers, made and fired by this process and by all others that open them so.
    pub const fn service_calls(url: PostgresUrl) -> Self {
        let mut settings = Self::timers(url);
        settings.set = SchemaSet::Shared;
        settings
    }

    /// The attempts of calls that are elsewhere, made by this process and by all others that open them so.
    pub const fn execution(url: PostgresUrl) -> Self {
        let mut settings = Self::timers(url);
        settings.set = SchemaSet::ExecutionOnly;
        settings
    }

    /// The same timers, for scheduling, cancelling and reading beside the processes that fire them.
    pub const fn client(url: PostgresUrl) -> Self {
        let mut settings = Self::timers(url);
        settings.role = Role::Client;
        settings
    }
}
