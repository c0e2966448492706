//! Databases to test on, stores on them, and timers for those.

use std::ops::Range;

use punctual_adapters_postgres::{
    OpenError, PostgresSettings, PostgresTimerStore, PostgresUrl, Role, SchemaSet,
};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey, Timestamp};
use punctual_ports::{SaveOutcome, SaveTimer, TimerPersistencePort};
use punctual_test_servers::{SharedDatabase, psql};
use uuid::Uuid;

use crate::store::{machine_clock, new_instance};

/// A database of one test's own on the shared server.
pub(crate) struct Scratch {
    database: SharedDatabase,
}

impl Scratch {
    /// An empty one. `None`, with a line that says so, if there is no shared server.
    pub(crate) fn new() -> Option<Self> {
        let database = SharedDatabase::create()?;
        Some(Self { database })
    }

    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    pub(crate) fn name(&self) -> &str {
        self.database.name()
    }

    pub(crate) fn settings(&self) -> PostgresSettings {
        settings(&self.url())
    }

    /// A store that fires.
    pub(crate) async fn store(&self) -> PostgresTimerStore {
        open(&self.settings()).await.unwrap()
    }

    /// The tables of a set, and no store.
    pub(crate) async fn migrated(set: SchemaSet) -> Option<Self> {
        let scratch = Self::new()?;
        let mut settings = scratch.settings();
        settings.set = set;
        open(&settings).await.unwrap().close().await;
        Some(scratch)
    }

    /// Runs statements as the superuser; the rows are lines, their columns between bars.
    pub(crate) fn execute(&self, statements: &str) -> String {
        execute(&self.url(), statements)
    }

    pub(crate) fn rows(&self, query: &str) -> Vec<String> {
        self.execute(query).lines().map(str::to_owned).collect()
    }
}

pub(crate) fn execute(url: &str, statements: &str) -> String {
    match psql(url, statements) {
        Ok(rows) => rows,
        Err(said) => panic!("failed to run `{statements}`: {said}"),
    }
}

pub(crate) fn settings(url: &str) -> PostgresSettings {
    PostgresSettings::timers(PostgresUrl::new(url).unwrap())
}

pub(crate) fn client_settings(url: &str) -> PostgresSettings {
    let mut settings = settings(url);
    settings.role = Role::Client;
    settings
}

/// A new instance on the machine's clock.
pub(crate) async fn open(settings: &PostgresSettings) -> Result<PostgresTimerStore, OpenError> {
    PostgresTimerStore::open(settings, machine_clock(), new_instance()).await
}

/// The machine's time, which is also that of every server.
pub(crate) fn now() -> Timestamp {
    machine_clock().now()
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

pub(crate) fn key(number: usize) -> TimerKey {
    TimerKey::named(TenantId::default(), &number.to_string())
}

/// The timer of a number, by default due long ago: at that many milliseconds.
pub(crate) fn timer(number: usize) -> SaveTimer {
    timer_of(key(number), at(i64::try_from(number).unwrap()))
}

pub(crate) fn timer_of(key: TimerKey, due_at: Timestamp) -> SaveTimer {
    SaveTimer {
        key,
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at,
        data: None,
        origin: ScheduleOrigin::Direct,
    }
}

/// Saves the timers of these numbers in one batch.
pub(crate) async fn save_some(store: &PostgresTimerStore, numbers: Range<usize>) {
    let saved = store
        .save(numbers.map(timer).collect(), now())
        .await
        .unwrap();
    for outcome in saved {
        assert_eq!(outcome.unwrap(), SaveOutcome::Created);
    }
}
