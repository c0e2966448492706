//! A store on a file of its own, and what a crash leaves of it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use punctual_adapters_sqlite::{Role, SchemaSet, SqliteSettings, SqliteTimerStore, Synchronous};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey, Timestamp};
use punctual_ports::{SaveOutcome, SaveTimer, TimerPersistencePort};
use tempfile::TempDir;
use uuid::Uuid;

/// A temporary folder, in memory where possible.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

/// An open store. Dropping it removes its files.
pub(crate) struct OnFile {
    folder: TempDir,
    pub(crate) settings: SqliteSettings,
    pub(crate) store: SqliteTimerStore,
}

impl OnFile {
    pub(crate) fn new(set: SchemaSet) -> Self {
        let folder = folder();
        let mut settings = SqliteSettings::timers(folder.path().join("timer.db"));
        settings.set = set;
        settings.synchronous = Synchronous::Normal;
        Self::open(folder, settings)
    }

    pub(crate) fn with(change: impl FnOnce(&mut SqliteSettings)) -> Self {
        let folder = folder();
        let mut settings = SqliteSettings::timers(folder.path().join("timer.db"));
        change(&mut settings);
        Self::open(folder, settings)
    }

    fn open(folder: TempDir, settings: SqliteSettings) -> Self {
        let store = SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
        Self {
            folder,
            settings,
            store,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Another process that does not fire.
    pub(crate) fn client(&self) -> SqliteTimerStore {
        let mut settings = self.settings.clone();
        settings.role = Role::Client;
        SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap()
    }

    /// A connection of another program.
    pub(crate) fn outsider(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// What a crash leaves at this instant: the file and its log as they are, and no process.
    pub(crate) fn crash_and_reopen(&mut self) {
        let next = folder();
        for end in ["", "-wal"] {
            let from = with_end(self.path(), end);
            if from.exists() {
                std::fs::copy(from, with_end(&next.path().join("timer.db"), end)).unwrap();
            }
        }
        self.settings.path = next.path().join("timer.db");
        self.store = SqliteTimerStore::open(&self.settings, Timestamp::MIN).unwrap();
        self.folder = next;
    }
}

pub(crate) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The timer of a number: the default tenant's, due at that many seconds.
pub(crate) fn timer(number: usize) -> SaveTimer {
    SaveTimer {
        key: TimerKey::named(TenantId::default(), &number.to_string()),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: at(i64::try_from(number).unwrap() * 1_000),
        data: None,
        origin: ScheduleOrigin::Direct,
    }
}

/// Saves the timers of these numbers in one batch.
pub(crate) async fn save_some(store: &SqliteTimerStore, numbers: Range<usize>) {
    let saved = store
        .save(numbers.map(timer).collect(), at(0))
        .await
        .unwrap();
    for outcome in saved {
        assert_eq!(outcome.unwrap(), SaveOutcome::Created);
    }
}

/// Puts a scheduled call under a timer, as another program might.
pub(crate) fn put_call(connection: &rusqlite::Connection, key: &TimerKey) {
    connection
        .execute(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at,
                 due_at, request_spec, correlation_id, command_id, version)
             VALUES (?1, ?2, 'a call', 'Scheduled', ?3, ?3, ?4, ?5, ?5, 1)
             ON CONFLICT DO NOTHING",
            (
                key.tenant_id.as_str(),
                key.service_call_id.to_string(),
                "2026-01-01T00:00:00.000Z",
                r#"{"method":"GET","url":"http://example.invalid/"}"#,
                Uuid::nil().to_string(),
            ),
        )
        .unwrap();
}
