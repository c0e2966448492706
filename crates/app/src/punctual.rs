//! The handle by which a program schedules.

use std::sync::Arc;

use punctual_domain::{CorrelationId, TimerEntry, TimerKey, Timestamp};
use punctual_ports::{
    Instance, StoredDeadLetter, TimerPage, TimerPageQuery, TimerPersistencePort, only_answer,
};
use punctual_workflows::{ScheduleTimers, TimerRequest};

use crate::engine::Engine;
use crate::outcomes::{BatchError, CancelOutcome, EnsureOutcome, ScheduleOutcome};
use crate::readiness::{NotReady, expect_start};
use crate::write_check::Probe;
use crate::{Builder, Error, ErrorKind, Running, Timer};

/// Durable timers. Clones share one engine.
///
/// See the [first page](crate) for how it is used and what it promises.
#[derive(Clone)]
pub struct Punctual {
    pub(crate) engine: Arc<Engine>,
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

    /// Whether timers that are due now reach their receiver: for a readiness check.
    ///
    /// # Errors
    /// With the reason: the engine [was not started](NotReady::NotStarted) or has stopped, the broker is
    /// away or not as it has to be, or the store has not answered a poll for five seconds.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.engine.readiness()
    }

    /// Whether new timers and calls can be stored now: for a readiness check. If nothing was written
    /// for two seconds, something small is, as durably as a timer; an answer holds for as long, so
    /// that frequent checks cost nothing.
    ///
    /// # Errors
    /// With the reason, in a sentence that names the file or store: the disk is full, the file has grown to
    /// its limit, or another program holds its lock.
    pub async fn writable(&self) -> Result<(), String> {
        self.check_write(Probe::IfUnsure).await
    }

    /// The same as far as it is known: nothing is written unless the last write has failed.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    #[doc(hidden)]
    pub async fn writable_as_known(&self) -> Result<(), String> {
        self.check_write(Probe::IfFailing).await
    }

    async fn check_write(&self, probe: Probe) -> Result<(), String> {
        let (stores, clock) = (&self.engine.stores, &self.engine.ports.clock);
        let problem = stores.write_problem(clock.as_ref(), probe).await;
        problem.map_or(Ok(()), Err)
    }

    /// When the worker last polled for due timers; `None` before it has. Alarming if it is long ago.
    pub fn last_poll(&self) -> Option<Timestamp> {
        self.engine.ports.last_poll.at()
    }

    /// Whether this engine fires timers; if not, others do, and it polls for none.
    pub fn fires(&self) -> bool {
        self.engine.fires
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
        self.engine.stores.timers().capabilities().standalone_timers
    }

    /// The store of timers and who schedules in it, for an adapter that speaks of them to others.
    #[doc(hidden)]
    pub fn timer_ports(&self) -> (Arc<dyn TimerPersistencePort>, ScheduleTimers) {
        let persistence = Arc::clone(&self.engine.ports.persistence);
        (persistence, self.engine.timers.clone())
    }

    /// Announces a timer that is due at this instant and that a transaction of your own is about to
    /// commit to the store, past this handle: the worker polls then, and a few times more within three
    /// seconds. Without it, the timer is found by the store's change feed or by the next poll.
    /// `schedule_in` does this by itself.
    pub fn expect_due_at(&self, due_at: impl Into<Timestamp>) {
        self.engine.hints.leave(due_at.into());
    }

    /// Starts to fire, beginning with overdue timers. It works once; if it fails because
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
        let (key, request) = self.request(timer)?;
        let saved = self.engine.timers.schedule(vec![request]).await;
        ScheduleOutcome::of(only_answer(saved, "schedule a timer"), &key)
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
    /// it was not scheduled again since.
    pub async fn ensure(&self, timer: Timer) -> Result<EnsureOutcome, Error> {
        let (key, request) = self.request(timer)?;
        let saved = self.engine.timers.ensure(vec![request]).await;
        EnsureOutcome::of(only_answer(saved, "ensure a timer"), &key)
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

    /// The request of a caller and its key, unless the engine has stopped.
    pub(crate) fn request(&self, timer: Timer) -> Result<(TimerKey, TimerRequest), Error> {
        self.engine.check_open()?;
        expect_start(&self.engine);
        let key = timer.key().clone();
        Ok((key, timer.request(self.engine.now_rounded_up())))
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
        let (key, request) = self.request(timer)?;
        let saved = self.engine.timers.replace(vec![request]).await;
        ScheduleOutcome::of(only_answer(saved, "replace a timer"), &key)
    }

    /// Removes a timer that has not fired. Only [`Cancelled`](CancelOutcome::Cancelled) means that
    /// it will not.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn cancel(&self, key: &TimerKey) -> Result<CancelOutcome, Error> {
        self.engine.check_open()?;
        let deleted = self.engine.timers.cancel(vec![key.clone()]).await;
        CancelOutcome::of(only_answer(deleted, "cancel a timer"))
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
        let removed = self.engine.dead_letters.remove(vec![sequence]).await;
        only_answer(removed, "remove a dead letter")?;
        Ok(())
    }

    /// The instances that share the store and live, this one included; `None` where the store is one
    /// process's alone.
    ///
    /// # Errors
    /// If the store does not answer, or the engine has stopped.
    pub async fn instances(&self) -> Result<Option<Vec<Instance>>, Error> {
        self.engine.check_open()?;
        Ok(self.engine.stores.timers().instances(self.now()).await?)
    }

    /// The time by the engine's clock, which due times are compared with.
    pub fn now(&self) -> Timestamp {
        self.engine.ports.clock.now()
    }

    /// Closes the file of an engine that was never started, such as a client's. One that runs is
    /// ended by [`Running::shutdown`]. Dropping the last clone does the same without waiting.
    pub async fn close(&self) {
        self.engine.stop("it was closed", None);
        self.engine.stores.close().await;
    }
}

/// A timer without an answer may not be stored.
fn no_answer() -> Result<ScheduleOutcome, Error> {
    let message = "the store gave no answer: call again";
    Err(Error::new(ErrorKind::Unavailable, message))
}

opaque_debug!(Punctual);
