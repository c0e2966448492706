//! Our side: the real store, the real use cases and the real worker, as a process would run them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::{MessageEnvelope, Timestamp, Topic};
use punctual_ports::{
    Answer, Backend, BatchResult, ClockPort, ConsumerName, EventBusPort, MessageHandler, PortError,
    SaveOutcome, Subscribe, Subscription, TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::{
    Drained, ScheduleTimers, TimerPorts, TimerRequest, TimerWorker, WorkerSettings, WorkerStopped,
    handler_fn,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::Outcome;

/// A worker that takes longer than this has lost something.
const LONGEST: Duration = Duration::from_mins(2);

/// A store whose timers are scheduled and fired here.
pub(crate) trait Store: Backend + TimerPersistencePort + TimerQueuePort + Clone {}

impl<S: Backend + TimerPersistencePort + TimerQueuePort + Clone> Store for S {}

/// An open database and what works on it. Made inside a runtime.
pub(crate) struct Ours<S = SqliteTimerStore> {
    pub(crate) store: S,
    pub(crate) ports: TimerPorts,
    pub(crate) bus: InProcessBus,
}

impl Ours {
    /// Opens a file as the one process that fires its timers, works on it, and closes it.
    pub(crate) async fn with<T>(
        settings: &SqliteSettings,
        clock: &SystemClock,
        work: impl AsyncFnOnce(&Self) -> Outcome<T>,
    ) -> Outcome<T> {
        let ours = Self::open(settings, clock)?;
        let done = work(&ours).await?;
        ours.close().await;
        Ok(done)
    }

    pub(crate) fn open(settings: &SqliteSettings, clock: &SystemClock) -> Outcome<Self> {
        let store = SqliteTimerStore::open(settings, clock.now())?;
        Ok(Self::on(store, clock))
    }
}

impl<S: Store> Ours<S> {
    /// Works on a store that is open.
    pub(crate) fn on(store: S, clock: &SystemClock) -> Self {
        let bus = InProcessBus::new(Handlers::Spawned(tokio::runtime::Handle::current()));
        let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), bus.clone());
        Self { store, ports, bus }
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
    }

    pub(crate) fn scheduling(&self) -> ScheduleTimers {
        ScheduleTimers::new(&self.ports)
    }

    /// Schedules one batch after the other in each of several tasks; returns how long all took.
    pub(crate) async fn schedule(
        &self,
        timers: Vec<TimerRequest>,
        batch: usize,
        callers: usize,
    ) -> Outcome<Duration> {
        let scheduling = self.scheduling();
        let batches: Vec<_> = timers.chunks(batch).map(<[_]>::to_vec).collect();
        let shares = shares(batches, callers);
        let started = Instant::now();
        let mut running = JoinSet::new();
        for share in shares {
            let scheduling = scheduling.clone();
            running.spawn(async move {
                for batch in share {
                    all_created(scheduling.schedule(batch).await)?;
                }
                Outcome::Ok(())
            });
        }
        join(running).await?;
        Ok(started.elapsed())
    }

    pub(crate) async fn subscribe(
        &self,
        handler: Arc<dyn MessageHandler>,
    ) -> Outcome<Box<dyn Subscription>> {
        let request = Subscribe {
            topic: Topic::TimerEvents,
            consumer: ConsumerName::new("bench"),
            max_batch: 1,
            handler,
        };
        Ok(self.bus.subscribe(request).await?)
    }

    /// Fires timers until it is stopped.
    pub(crate) async fn run(
        &self,
        settings: WorkerSettings,
        handler: Arc<dyn MessageHandler>,
    ) -> Outcome<Running> {
        let subscription = self.subscribe(handler).await?;
        let worker = TimerWorker::new(&self.ports, settings)?;
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run(async { _ = stopped.await }));
        let (store, ports) = (self.store.clone(), self.ports.clone());
        let clock = Arc::clone(&ports.clock);
        let wake = Arc::new(move || ports.wake.due_at(Timestamp::MIN));
        let watching = tokio::spawn(async move { store.watch(clock, wake).await });
        Ok(Running {
            stop,
            worker,
            watching,
            subscription,
        })
    }

    /// Runs the worker until `count` firings were handled, and then until all are settled.
    pub(crate) async fn fire(&self, count: usize, settings: WorkerSettings) -> Outcome<Firing> {
        let (first, seen) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let (noting, counting) = (Arc::clone(&first), Arc::clone(&seen));
        let enough = Arc::new(Notify::new());
        let notifier = Arc::clone(&enough);
        let subscription = self.subscribe(each(move |_| {
            noting.get_or_init(Instant::now);
            if counting.fetch_add(1, Ordering::Relaxed) + 1 >= count {
                notifier.notify_one();
            }
        }));
        let subscription = subscription.await?;
        let worker = TimerWorker::new(&self.ports, settings)?;
        let took = run_until(worker, enough).await?;
        subscription.stop().await;
        Ok(Firing {
            first: first.get().copied().ok_or("nothing was fired")?,
            took,
            handled: seen.load(Ordering::Relaxed),
        })
    }
}

/// A worker with a handler, and the watch for other programs' commits.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<Drained, WorkerStopped>>,
    watching: JoinHandle<PortError>,
    subscription: Box<dyn Subscription>,
}

impl Running {
    /// Stops in an orderly way; what was in flight is settled then.
    pub(crate) async fn stop(self) -> Outcome<()> {
        self.watching.abort();
        // A dropped receiver means that the worker has stopped, and its error is returned below.
        let _ = self.stop.send(());
        let drained = self.worker.await??;
        self.subscription.stop().await;
        all_settled(drained)
    }
}

/// A handler that only notes what it gets.
pub(crate) fn each(
    note: impl Fn(&MessageEnvelope) + Send + Sync + 'static,
) -> Arc<dyn MessageHandler> {
    handler_fn(move |envelope| {
        note(&envelope);
        async { Answer::Done }
    })
}

/// Runs a worker until that is enough and everything is settled; returns how long it took.
pub(crate) async fn run_until(worker: TimerWorker, enough: Arc<Notify>) -> Outcome<Duration> {
    let shutdown = async move { drop(tokio::time::timeout(LONGEST, enough.notified()).await) };
    let started = Instant::now();
    let drained = tokio::spawn(worker.run(shutdown)).await??;
    let took = started.elapsed();
    if took > LONGEST {
        return Err(format!("some timers did not fire within {LONGEST:?}").into());
    }
    all_settled(drained)?;
    Ok(took)
}

/// What a worker did.
pub(crate) struct Firing {
    /// When the first event was handled.
    pub(crate) first: Instant,
    /// From the start of the worker until the last mark.
    pub(crate) took: Duration,
    pub(crate) handled: usize,
}

/// Splits work into shares that differ by one at most.
pub(crate) fn shares<T>(work: Vec<T>, count: usize) -> Vec<Vec<T>> {
    let mut shares: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for (index, item) in work.into_iter().enumerate() {
        shares[index % count].push(item);
    }
    shares
}

pub(crate) async fn join(mut running: JoinSet<Outcome<()>>) -> Outcome<()> {
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

pub(crate) fn all_settled(drained: Drained) -> Outcome<()> {
    match drained.unfinished {
        0 => Ok(()),
        unfinished => Err(format!("{unfinished} firings were not settled").into()),
    }
}

/// Every timer of this benchmark is new; any other answer would measure something else.
pub(crate) fn all_created(answered: BatchResult<SaveOutcome>) -> Outcome<()> {
    for outcome in answered? {
        match outcome? {
            SaveOutcome::Created => {}
            other => return Err(format!("a new timer was answered with {other:?}").into()),
        }
    }
    Ok(())
}
