//! The handle by which a program schedules.

use std::fmt;
use std::sync::Arc;

use punctual_domain::{CorrelationId, TimerEntry, TimerKey, Timestamp};
use punctual_ports::{StoredDeadLetter, TimerPage, TimerPageQuery, TimerPersistencePort};
use punctual_workflows::ScheduleTimers;

use crate::engine::Engine;
use crate::outcomes::{BatchError, CancelOutcome, EnsureOutcome, ScheduleOutcome};
use crate::readiness::{NotReady, expect_start};
use crate::{Builder, Error, Running, Timer};

/// Durable timers. Clones are the same engine; give one to whoever schedules.
///
/// See the [first page](crate) for how it is used and what it promises.
#[derive(Clone)]
pub struct Punctual {
    engine: Arc<Engine>,
}

impl Punctual {
    /// Begins to put an engine together.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) const fn of(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// A new engine, whose file may hold timers already.
    pub(crate) fn built(engine: Engine) -> Self {
        let engine = Arc::new(engine);
        expect_start(&engine);
        Self { engine }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Whether timers that are due now can be told to whoever is to be told: for a readiness check.
    ///
    /// # Errors
    /// With the reason: the engine [was not started](NotReady::NotStarted) or has stopped, or the broker is
    /// away or not as it has to be.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.engine.readiness()
    }

    /// Whether new timers and calls can be stored now: for a readiness check. If nothing was written
    /// for two seconds, something small is, as durably as a timer; an answer holds for as long, so
    /// that asking often costs nothing.
    ///
    /// # Errors
    /// With the reason, in a sentence that names the file: the disk is full, the file has grown to
    /// its limit, or another program holds its lock.
    pub async fn writable(&self) -> Result<(), String> {
        #[cfg(feature = "sqlite")]
        if let Some(problem) = self
            .write_problem(crate::write_check::Probe::IfUnsure)
            .await
        {
            return Err(problem);
        }
        Ok(())
    }

    /// The same as far as it is known: nothing is written unless the last write has failed.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    #[doc(hidden)]
    pub async fn writable_as_known(&self) -> Result<(), String> {
        #[cfg(feature = "sqlite")]
        if let Some(problem) = self
            .write_problem(crate::write_check::Probe::IfFailing)
            .await
        {
            return Err(problem);
        }
        Ok(())
    }

    /// The service calls, if the engine takes them.
    #[cfg(feature = "calls")]
    pub fn calls(&self) -> Option<crate::ServiceCalls> {
        self.engine.calls().cloned()
    }

    /// When the worker last looked for what is due; `None` before it has. Alarming if it is long ago.
    pub fn last_poll(&self) -> Option<Timestamp> {
        self.engine.ports.last_poll.at()
    }

    /// How many timers wait, and how many of them are overdue, each counted up to `limit`.
    ///
    /// # Errors
    /// If the store cannot be read now.
    pub async fn backlog(&self, limit: usize) -> Result<(usize, usize), Error> {
        let now = self.engine.ports.clock.now();
        let backlog = self.engine.ports.queue.backlog(now, limit).await?;
        Ok((backlog.pending, backlog.overdue))
    }

    /// Whether timers can be scheduled that belong to no service call.
    pub fn has_timers_of_their_own(&self) -> bool {
        self.engine.store.has_timers_of_their_own()
    }

    /// The store of timers and who schedules in it, for an adapter that speaks of them to others.
    #[doc(hidden)]
    pub fn timer_ports(&self) -> (Arc<dyn TimerPersistencePort>, ScheduleTimers) {
        let persistence = Arc::clone(&self.engine.ports.persistence);
        (persistence, self.engine.timers.clone())
    }

    /// Begins to fire: what became due while nobody did, first. It works once; if it fails because
    /// of the bus, or is dropped before it returns, it can be called again.
    ///
    /// On a fake clock nothing happens by itself: the clock does the work while it is advanced.
    ///
    /// # Errors
    /// If it was started before, is a client, or the bus cannot be subscribed to.
    pub async fn start(&self) -> Result<Running, Error> {
        Running::start(Arc::clone(&self.engine)).await
    }

    /// Schedules a timer, or moves it, with its data, if it has not fired yet. `Ok` means that the
    /// timer is stored and will fire.
    ///
    /// What a program schedules at every start is for [`ensure`](Self::ensure): this would move a timer
    /// that became due while the program was down.
    ///
    /// # Errors
    /// [`AlreadyReached`](crate::ErrorKind::AlreadyReached), if a timer of that key has fired:
    /// [`replace`](Self::replace) lets it fire again. Else if it could not be stored, or the engine has
    /// stopped. It may be stored all the same if the error can be retried: call again.
    pub async fn schedule(&self, timer: Timer) -> Result<ScheduleOutcome, Error> {
        self.engine.check_open()?;
        expect_start(&self.engine);
        let request = timer.request(self.engine.now_rounded_up());
        let key = request.key.clone();
        let mut saved = self.engine.timers.schedule(vec![request]).await?;
        ScheduleOutcome::of(only(&mut saved)?, &key)
    }

    /// Schedules a timer if there is none of that key, and leaves one alone that waits, is overdue or
    /// fires at this moment: for what a program wants to exist and schedules at every start. `Ok` means
    /// that a timer of that key is stored and will fire.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), punctual::Error> {
    /// # use std::time::Duration;
    /// # use punctual::*;
    /// # let clock = testing::FakeClock::new("2026-12-24T18:00:00Z".parse()?);
    /// # let builder = Punctual::builder().in_memory(clock.clone());
    /// const A_DAY: Duration = Duration::from_hours(24);
    /// let punctual = builder
    ///     .on_due_with(|due, punctual| async move {
    ///         // … the day's work, and then the next day's timer, under the same key.
    ///         let _ = punctual.schedule(Timer::at(due.key(), due.due_at.saturating_add(A_DAY))).await?;
    ///         Ok(())
    ///     })
    ///     .build()
    ///     .await?;
    /// let running = punctual.start().await?;
    /// // At every start: the first makes the timer, and no later one moves it.
    /// let daily = TimerKey::named(TenantId::default(), "daily");
    /// punctual.ensure(Timer::after(daily, A_DAY)).await?;
    /// # running.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule): also `AlreadyReached`, if a timer of that key has fired and
    /// nobody has scheduled it anew.
    pub async fn ensure(&self, timer: Timer) -> Result<EnsureOutcome, Error> {
        self.engine.check_open()?;
        expect_start(&self.engine);
        let request = timer.request(self.engine.now_rounded_up());
        let key = request.key.clone();
        let mut saved = self.engine.timers.ensure(vec![request]).await?;
        EnsureOutcome::of(only(&mut saved)?, &key)
    }

    /// The same for many, at a fraction of the cost of each by itself. Each is stored or not by
    /// itself; timers with the same key apply in order.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), punctual::Error> {
    /// # use std::time::Duration;
    /// # use punctual::*;
    /// # let clock = testing::FakeClock::new("2026-12-24T18:00:00Z".parse()?);
    /// # let punctual = Punctual::builder().in_memory(clock).on_due(|_| async { Ok(()) }).build().await?;
    /// let tenant = TenantId::new("acme")?;
    /// let timers = (0..25_000).map(|n| {
    ///     let key = TimerKey::named(tenant.clone(), &format!("invoice-{n}"));
    ///     Timer::after(key, Duration::from_secs(n))
    /// });
    /// let outcomes = punctual.schedule_all(timers).await?;
    /// assert_eq!(outcomes.len(), 25_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If any of them could not be stored, or has fired already; the error has the outcome of each.
    pub async fn schedule_all(
        &self,
        timers: impl IntoIterator<Item = Timer>,
    ) -> Result<Vec<ScheduleOutcome>, BatchError> {
        let timers: Vec<Timer> = timers.into_iter().collect();
        let mut outcomes = Vec::with_capacity(timers.len());
        let mut timers = timers.into_iter();
        let mut given_up = self.engine.check_open().err();
        expect_start(&self.engine);
        loop {
            let part: Vec<Timer> = timers.by_ref().take(ScheduleTimers::MAX_BATCH).collect();
            if part.is_empty() {
                return BatchError::check(outcomes);
            }
            let length = part.len();
            if given_up.is_none() {
                match self.schedule_part(part).await {
                    Ok(mut part) => outcomes.append(&mut part),
                    Err(error) => given_up = Some(error),
                }
            }
            // What fails as a whole would most likely fail again, after as long a wait.
            if let Some(error) = &given_up {
                outcomes.extend((0..length).map(|_| Err(error.clone())));
            }
        }
    }

    async fn schedule_part(
        &self,
        part: Vec<Timer>,
    ) -> Result<Vec<Result<ScheduleOutcome, Error>>, Error> {
        let now = self.engine.now_rounded_up();
        let keys: Vec<TimerKey> = part.iter().map(|timer| timer.key().clone()).collect();
        let requests = part.into_iter().map(|timer| timer.request(now)).collect();
        let saved = self.engine.timers.schedule(requests).await?;
        let mut saved = saved.into_iter();
        let outcome = |key| {
            saved
                .next()
                .map_or_else(no_answer, |one| ScheduleOutcome::of(one, key))
        };
        Ok(keys.iter().map(outcome).collect())
    }

    /// Schedules a timer even if it has fired: it fires again.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub async fn replace(&self, timer: Timer) -> Result<ScheduleOutcome, Error> {
        self.engine.check_open()?;
        expect_start(&self.engine);
        let request = timer.request(self.engine.now_rounded_up());
        let key = request.key.clone();
        let mut saved = self.engine.timers.replace(vec![request]).await?;
        ScheduleOutcome::of(only(&mut saved)?, &key)
    }

    /// Removes a timer that has not fired. Only [`Cancelled`](CancelOutcome::Cancelled) means that
    /// it will not.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn cancel(&self, key: &TimerKey) -> Result<CancelOutcome, Error> {
        self.engine.check_open()?;
        let mut deleted = self.engine.timers.cancel(vec![key.clone()]).await?;
        CancelOutcome::of(only(&mut deleted)?)
    }

    /// Reads a timer, whether it has fired or not.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn find(&self, key: &TimerKey) -> Result<Option<TimerEntry>, Error> {
        self.engine.check_open()?;
        Ok(self.engine.ports.persistence.find(key.clone()).await?)
    }

    /// Lists a tenant's timers by due time, page by page.
    ///
    /// # Errors
    /// If the store does not answer, the cursor is not one of its own, or the engine has stopped.
    pub async fn list(&self, query: TimerPageQuery) -> Result<TimerPage, Error> {
        self.engine.check_open()?;
        Ok(self.engine.ports.persistence.page(query).await?)
    }

    /// Reads the timers of one request, of whatever tenants, by due time. Of more than `limit` it
    /// reads the first by tenant and id.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn trace(&self, id: CorrelationId, limit: usize) -> Result<Vec<TimerEntry>, Error> {
        self.engine.check_open()?;
        let persistence = &self.engine.ports.persistence;
        let mut timers = persistence.find_by_correlation(id, None, limit).await?;
        timers.sort_by_key(|entry| entry.timer().registration.due_at);
        Ok(timers)
    }

    /// Reads the events that a handler has refused for ever, the oldest first, after a sequence
    /// number. To let one fire again, [`replace`](Self::replace) its timer.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, Error> {
        self.engine.check_open()?;
        Ok(self.engine.dead_letters.list(after, limit).await?)
    }

    /// Forgets a dead letter. Whether it was there does not matter.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn forget_dead_letter(&self, sequence: u64) -> Result<(), Error> {
        self.engine.check_open()?;
        let mut removed = self.engine.dead_letters.remove(vec![sequence]).await?;
        only(&mut removed)??;
        Ok(())
    }

    /// The time by the engine's clock, which due times are compared with.
    pub fn now(&self) -> Timestamp {
        self.engine.ports.clock.now()
    }

    /// Closes the file of an engine that was never started, such as a client's. One that runs is
    /// ended by [`Running::shutdown`]. Dropping the last clone does the same, but nobody waits.
    pub async fn close(&self) {
        self.engine.stop("it was closed", None);
        self.engine.store.close().await;
    }
}

#[cfg(feature = "sqlite")]
mod on_sqlite {
    use std::path::{Path, PathBuf};

    use punctual_adapters_sqlite::{rusqlite, schedule_in};
    use punctual_domain::{CorrelationId, ScheduleOrigin};
    use punctual_ports::SaveTimer;

    use super::{Error, Punctual, ScheduleOutcome, Timer};
    use crate::ErrorKind;
    use crate::store::{SqliteStore, Store};
    use crate::write_check::Probe;

    impl Punctual {
        /// Schedules a timer inside your own transaction, on your own connection to the same file:
        /// your rows and the timer commit together, or neither does.
        ///
        /// Begin the transaction with `TransactionBehavior::Immediate`: a transaction that reads
        /// first may fail later with a `SQLITE_BUSY` that no waiting can cure. It is `rusqlite`'s
        /// own type, which this crate [re-exports](crate::rusqlite). While you hold the write lock,
        /// the engine's own writes wait, so keep it short.
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
        ///
        /// # Errors
        /// If it cannot be stored, has fired already, or the transaction is on another file. What the
        /// transaction did before still stands, and you decide what becomes of it.
        pub fn schedule_in(
            &self,
            transaction: &rusqlite::Transaction<'_>,
            timer: Timer,
        ) -> Result<ScheduleOutcome, Error> {
            let engine = self.engine();
            engine.check_open()?;
            crate::readiness::expect_start(engine);
            let sqlite = self.sqlite()?;
            check_file(transaction.path(), sqlite.store.path())?;
            sqlite.store.check_file()?;
            let request = timer.request(engine.now_rounded_up());
            let save = SaveTimer {
                key: request.key,
                correlation_id: request
                    .correlation_id
                    .unwrap_or_else(|| CorrelationId::from_uuid(engine.ports.ids.next_id())),
                due_at: request.due_at,
                data: request.data,
                origin: ScheduleOrigin::Direct,
            };
            let saved = schedule_in(transaction, &save, engine.ports.clock.now());
            let outcome = ScheduleOutcome::of(saved, &save.key).map_err(begin_immediate)?;
            sqlite.hints.leave(save.due_at);
            Ok(outcome)
        }

        /// Copies the file as it is at this moment, while timers go on being scheduled and fired.
        /// The copy is complete and on the disk when this returns.
        ///
        /// # Errors
        /// If the file exists already, or cannot be written.
        pub async fn backup_to(&self, path: impl Into<PathBuf>) -> Result<(), Error> {
            self.engine().check_open()?;
            let store = self.sqlite()?.store.clone();
            Ok(store.backup_to(path).await?)
        }

        pub(super) async fn write_problem(&self, probe: Probe) -> Option<String> {
            let clock = self.engine().ports.clock.as_ref();
            match &self.engine().store {
                Store::Sqlite(sqlite) => sqlite.write_problem(clock, probe).await,
                #[cfg(feature = "testing")]
                Store::Memory(_) => None,
            }
        }

        fn sqlite(&self) -> Result<&SqliteStore, Error> {
            match &self.engine().store {
                Store::Sqlite(sqlite) => Ok(sqlite),
                #[cfg(feature = "testing")]
                Store::Memory(_) => {
                    let message = "this needs timers on SQLite, but these are in memory: build with `sqlite`, which works with `fake_clock` too";
                    Err(Error::new(ErrorKind::Config, message))
                }
            }
        }
    }

    /// A transaction that has read before it writes cannot wait for the lock: SQLite refuses it at
    /// once, which nobody understands the first time.
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
}

/// The one answer to a batch of one.
fn only<T>(answers: &mut Vec<T>) -> Result<T, Error> {
    answers.pop().map_or_else(no_answer, Ok)
}

/// What is not answered for is not stored, as far as anybody knows.
fn no_answer<T>() -> Result<T, Error> {
    let message = "the store gave no answer: call again";
    Err(Error::new(crate::ErrorKind::Unavailable, message))
}

impl fmt::Debug for Punctual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Punctual").finish_non_exhaustive()
    }
}
