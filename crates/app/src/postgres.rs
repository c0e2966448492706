//! Timers on PostgreSQL: how a database is opened, and how to schedule in a transaction on it.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_postgres::{
    ConnectError, ConnectErrorKind, OpenError, PostgresSettings, PostgresTimerStore, PostgresUrl,
    Role, StoreClock, tokio_postgres,
};
use punctual_ports::Backend;

use crate::caller_transaction::CallerTransaction;
use crate::clock::{EngineClock, current_runtime};
use crate::stores::Storage;
use crate::{Builder, Error, ErrorKind, Punctual, ScheduleOutcome, Timer};

impl Builder {
    /// Keeps the timers in a PostgreSQL database, at an address such as
    /// `postgres://user:password@host:5432/database`. Any number of engines may fire them together; each
    /// timer is fired by one of them, and by another within nine seconds if that one dies.
    ///
    /// The tables are created in the first schema of the user's `search_path` if they are missing.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), punctual::Error> {
    /// # use punctual::Punctual;
    /// let punctual = Punctual::builder()
    ///     .postgres("postgres://me@db.example/timers?sslmode=verify-full&passfile=/etc/punctual/pgpass")
    ///     .on_due(|due| async move { Ok(println!("{} is due", due.service_call_id)) })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn postgres(self, url: impl AsRef<str>) -> Self {
        self.postgres_database(PostgresUrl::new(url.as_ref()).map(PostgresSettings::timers))
    }

    /// Schedules, reads and cancels in a database whose timers other engines fire. The tables have to be
    /// there.
    pub fn postgres_client(self, url: impl AsRef<str>) -> Self {
        self.postgres_database(PostgresUrl::new(url.as_ref()).map(PostgresSettings::client))
    }

    /// The same with all settings: the schema, where notifications arrive, how long an operation may take.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), punctual::Error> {
    /// # use punctual::{PostgresSettings, Punctual};
    /// let settings = PostgresSettings {
    ///     schema: Some("timers".to_owned()),
    ///     ..PostgresSettings::timers("postgres://me@db.example/shop".parse()?)
    /// };
    /// let builder = Punctual::builder().postgres_with(settings);
    /// # Ok(())
    /// # }
    /// ```
    pub fn postgres_with(self, settings: PostgresSettings) -> Self {
        self.postgres_database(Ok(settings))
    }

    fn postgres_database(mut self, settings: Result<PostgresSettings, ConnectError>) -> Self {
        self.storage.push(Box::new(Database(settings)));
        self
    }
}

/// The settings, or what is wrong with the address, which `build` answers.
struct Database(Result<PostgresSettings, ConnectError>);

#[async_trait]
impl Storage for Database {
    fn is_client(&self) -> bool {
        matches!(&self.0, Ok(settings) if settings.role == Role::Client)
    }

    fn several_instances(&self) -> bool {
        true
    }

    fn problem(&self) -> Option<String> {
        self.0.as_ref().err().map(ToString::to_string)
    }

    async fn open(self: Box<Self>, clock: &dyn EngineClock) -> Result<Arc<dyn Backend>, Error> {
        current_runtime()?;
        let mut settings = self.0?;
        if clock.is_fake() && matches!(settings.time, StoreClock::Server) {
            // The server does not follow it.
            settings.time = StoreClock::Caller;
        }
        let instance = clock.ids().next_id();
        let store = PostgresTimerStore::open(&settings, clock.port(), instance).await?;
        Ok(Arc::new(store))
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        let kind = match error.kind() {
            ConnectErrorKind::Settings => ErrorKind::Config,
            _ if error.is_retryable() => ErrorKind::Unavailable,
            _ => ErrorKind::Unusable,
        };
        Self::caused(kind, error)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Connect(error) => error.into(),
            error if error.is_retryable() => Self::caused(ErrorKind::Unavailable, error),
            error => Self::caused(ErrorKind::Unusable, error),
        }
    }
}

/// A transaction of `tokio_postgres`, which this crate [re-exports](crate::tokio_postgres), on your own
/// connection to the same database. A pool's wrapper around it is dereferenced: `&*transaction`.
///
/// Its role needs the rights to read, insert, update and delete in the tables of the timers; its `search_path`
/// does not matter, and its settings are as they were. Until it ends, others that schedule or cancel the same
/// key wait for it, for up to five seconds: keep it short. A wait that is too long, a deadlock or a conflict of
/// snapshots is a retryable [`Busy`](ErrorKind::Busy): repeat the whole transaction.
///
/// Other instances are told of the commit by a `NOTIFY` inside it if the timer is due within a second and this
/// engine fires nothing itself; [`CommitNotify`](crate::CommitNotify) says what that costs, and how to have
/// more or less of it.
///
/// ```no_run
/// # async fn example(punctual: punctual::Punctual, mine: &mut punctual::tokio_postgres::Client)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use punctual::*;
/// let transaction = mine.transaction().await?;
/// transaction.execute("INSERT INTO orders VALUES ('order-123')", &[]).await?;
/// let key = TimerKey::named(TenantId::default(), "order-123");
/// let timer = Timer::after(key, Duration::from_hours(1));
/// let _ = punctual.schedule_in(&transaction, timer).await?;
/// transaction.commit().await?; // both, or neither
/// # Ok(())
/// # }
/// ```
impl<'a> CallerTransaction for &'a tokio_postgres::Transaction<'_> {
    type Scheduled = Pin<Box<dyn Future<Output = Result<ScheduleOutcome, Error>> + Send + 'a>>;

    fn schedule(self, punctual: &Punctual, timer: Timer) -> Self::Scheduled {
        let punctual = punctual.clone();
        Box::pin(async move {
            let save = punctual.save_in_transaction(timer)?;
            let engine = &punctual.engine;
            let store: &dyn Any = engine.stores.timers();
            let store: &PostgresTimerStore = store.downcast_ref().ok_or_else(|| {
                let message = "this needs timers on PostgreSQL, but these are elsewhere: build with `postgres`";
                Error::new(ErrorKind::Config, message)
            })?;
            let saved = store.schedule_in(self, &save, engine.ports.clock.now());
            let outcome = ScheduleOutcome::of(saved.await, &save.key)?;
            engine.hints.leave(save.due_at);
            Ok(outcome)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn leases_are_short_where_several_engines_fire() {
        let interval = Duration::from_secs(1);
        let builder = Builder::new().polling_interval(interval);
        let builder = builder.postgres("postgres://me@host/timers");
        let worker = builder.worker_settings();
        assert_eq!(worker.lease, Duration::from_secs(8));
        assert_eq!(worker.polling_interval, interval);
        let alone = Builder::new().polling_interval(interval).worker_settings();
        assert_eq!(alone.lease, Duration::from_secs(30));
    }
}
