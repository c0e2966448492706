//! Timers on SQLite: how a file is opened, and what only a file can do.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_sqlite::{
    OpenError, Role, SqliteSettings, SqliteTimerStore, rusqlite, schedule_in,
};
use punctual_ports::Backend;

use crate::caller_transaction::CallerTransaction;
use crate::clock::{EngineClock, current_runtime};
use crate::stores::Storage;
use crate::{Builder, Error, ErrorKind, Punctual, ScheduleOutcome, Timer};

/// How long to wait for a role that another process has: long enough for one that is about to
/// end, as in a restart.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

impl Builder {
    /// Keeps the timers in an SQLite file, which this engine fires. File and folder are created if
    /// they are missing. A file has one engine; others may use it as [clients](Self::sqlite_client).
    pub fn sqlite(self, path: impl Into<PathBuf>) -> Self {
        self.sqlite_with(SqliteSettings::timers(path))
    }

    /// Schedules, reads and cancels in a file that another process fires. What it schedules is
    /// noticed there within a second.
    pub fn sqlite_client(self, path: impl Into<PathBuf>) -> Self {
        self.sqlite_with(SqliteSettings::client(path))
    }

    /// The same with all settings: how durable, how large, how long to wait for a lock.
    pub fn sqlite_with(mut self, settings: SqliteSettings) -> Self {
        self.storage.push(Box::new(settings));
        self
    }

    /// Keeps the service calls in a file of their own, and the timers in theirs, which then may be
    /// anybody's: deletions of calls reach them by message.
    #[cfg(feature = "calls")]
    pub fn calls_in(mut self, settings: SqliteSettings) -> Self {
        self.calls_storage = Some(Box::new(settings));
        self
    }
}

#[async_trait]
impl Storage for SqliteSettings {
    fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    fn takes_commands_of_calls_alone(&mut self) {
        self.limits_commands = false;
    }

    /// Opens the file on a thread where blocking is allowed.
    async fn open(self: Box<Self>, clock: &dyn EngineClock) -> Result<Arc<dyn Backend>, Error> {
        current_runtime()?;
        let port = clock.port();
        let give_up = port.monotonic() + PATIENCE;
        loop {
            let (settings, now) = (self.clone(), port.now());
            let opening =
                tokio::task::spawn_blocking(move || SqliteTimerStore::open(&settings, now));
            match opening.await {
                Ok(Ok(store)) => return Ok(Arc::new(store)),
                Ok(Err(OpenError::RoleTaken { .. }))
                    if !clock.is_fake() && port.monotonic() < give_up =>
                {
                    port.sleep_for(BETWEEN_TRIES).await;
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(error) => {
                    let what = format!("opening the database was broken off: {error}");
                    return Err(Error::new(ErrorKind::Unavailable, what));
                }
            }
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        let kind = match error {
            OpenError::RoleTaken { .. } => ErrorKind::InUse,
            OpenError::Busy { .. } => ErrorKind::Busy,
            OpenError::Full { .. } => ErrorKind::Full,
            _ => ErrorKind::Unusable,
        };
        Self::caused(kind, error)
    }
}

impl Punctual {
    /// Copies the file as it is at this moment, while timers go on being scheduled and fired.
    /// The copy is complete and on the disk when this returns.
    ///
    /// # Errors
    /// If the file exists already, or cannot be written.
    pub async fn backup_to(&self, path: impl Into<PathBuf>) -> Result<(), Error> {
        self.engine.check_open()?;
        let store = self.sqlite()?.clone();
        Ok(store.backup_to(path).await?)
    }

    fn sqlite(&self) -> Result<&SqliteTimerStore, Error> {
        let store: &dyn Any = self.engine.stores.timers();
        store.downcast_ref().ok_or_else(|| {
            let message = "this needs timers on SQLite, but these are elsewhere: build with `sqlite`, which works with `fake_clock` too";
            Error::new(ErrorKind::Config, message)
        })
    }
}

/// A transaction of `rusqlite`, which this crate [re-exports](crate::rusqlite), on your own connection to the
/// same file. The call blocks, as `rusqlite`'s do.
///
/// Begin it with `TransactionBehavior::Immediate`: a transaction that reads first may fail later with a
/// `SQLITE_BUSY` that no waiting can cure. While you hold the write lock, the engine's own writes wait, so
/// keep it short.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use punctual::*;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.db");
/// # let punctual = Punctual::builder().sqlite(&path).on_due(|_| async { Ok(()) }).build().await?;
/// use punctual::rusqlite::{Connection, TransactionBehavior};
///
/// let mut mine = Connection::open(&path)?;
/// mine.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY)")?;
/// let transaction = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// transaction.execute("INSERT INTO orders VALUES ('order-123')", [])?;
/// let key = TimerKey::named(TenantId::default(), "order-123");
/// let timer = Timer::after(key.clone(), Duration::from_hours(1));
/// let _ = punctual.schedule_in(&transaction, timer)?;
/// transaction.commit()?; // both, or neither
/// assert!(punctual.find(&key).await?.is_some());
/// # Ok(())
/// # }
/// ```
impl CallerTransaction for &rusqlite::Transaction<'_> {
    type Scheduled = Result<ScheduleOutcome, Error>;

    fn schedule(self, punctual: &Punctual, timer: Timer) -> Self::Scheduled {
        let save = punctual.save_in_transaction(timer)?;
        let (engine, sqlite) = (&punctual.engine, punctual.sqlite()?);
        check_file(self.path(), sqlite.path())?;
        sqlite.check_file()?;
        let saved = schedule_in(self, &save, engine.ports.clock.now());
        let outcome = ScheduleOutcome::of(saved, &save.key).map_err(begin_immediate)?;
        engine.hints.leave(save.due_at);
        Ok(outcome)
    }
}

/// The advice for a transaction that has read before it writes: it cannot wait for the lock, and SQLite
/// refuses it at once.
fn begin_immediate(error: Error) -> Error {
    if error.kind() != ErrorKind::Busy {
        return error;
    }
    let message = format!(
        "{error}: roll back and try again, with a transaction that begins as TransactionBehavior::Immediate"
    );
    Error::new(ErrorKind::Busy, message)
}

/// A timer in another file would be stored there and never fire.
fn check_file(theirs: Option<&str>, ours: &Path) -> Result<(), Error> {
    let same = theirs.is_some_and(|theirs| {
        let theirs = Path::new(theirs);
        theirs == ours
            || match (theirs.canonicalize(), ours.canonicalize()) {
                (Ok(theirs), Ok(ours)) => theirs == ours,
                _ => false,
            }
    });
    if same {
        return Ok(());
    }
    let theirs = theirs.filter(|path| !path.is_empty()).unwrap_or("no file");
    let message = format!(
        "the transaction is on {theirs}, but the timers are in {}: open your connection on that file",
        ours.display()
    );
    Err(Error::new(ErrorKind::Rejected, message))
}
