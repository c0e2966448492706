//! An engine that runs, and the ways in which it ends.
//!
//! On the machine's clock one task holds everything together: the worker, retention, the publishing
//! again of what a broker lost, the watch over foreign commits and the hints of `schedule_in`. On a fake clock there is no task at all: the clock
//! steps the same parts while it is advanced.

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::Topic;
use punctual_ports::{ConsumerName, EventBusPort, MessageHandler, Subscribe, Subscription};
use punctual_workflows::{Drained, RepublishLost, Retention, TimerWorker, WorkerStopped};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Error;
#[cfg(feature = "calls")]
use crate::calls::CallsPlan;
use crate::clock::Clock;
#[cfg(feature = "testing")]
use crate::driven::DrivenParts;
use crate::engine::{Engine, Plan};
use crate::handler::{OnDue, Told};
use crate::store::Store;

/// How long to wait for whatever is left after the worker has drained. It has had its time, and
/// what is not finished then fires again.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// An engine that fires timers, until it is [shut down](Self::shutdown).
///
/// Dropping it stops the engine at once: handlers are broken off where they wait, and what they had
/// not finished fires again after the next start. That is safe, but not polite.
#[must_use = "dropping it stops the engine: keep it, and end it with `shutdown`"]
pub struct Running {
    engine: Arc<Engine>,
    parts: Option<Parts>,
}

enum Parts {
    Task {
        stop: watch::Sender<bool>,
        task: JoinHandle<Result<ShutDown, Error>>,
    },
    #[cfg(feature = "testing")]
    Driven(DrivenParts),
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutDown {
    /// How many timers were claimed and could not be finished in 25 seconds. Nothing is lost: they
    /// fire after the next start, those whose handler had begun a second time.
    pub unfinished: usize,
}

/// What an engine is made of, ready to run.
pub(crate) struct Ready {
    pub(crate) worker: TimerWorker,
    pub(crate) retention: Retention,
    pub(crate) republish: RepublishLost,
    #[cfg(feature = "calls")]
    pub(crate) calls: Option<CallsPlan>,
    pub(crate) subscriptions: Vec<Box<dyn Subscription>>,
}

impl Running {
    pub(crate) async fn start(engine: Arc<Engine>) -> Result<Self, Error> {
        engine.check_open()?;
        let ready = {
            let mut plan = engine.plan.lock().await;
            let wishes = wishes(&engine, plan.as_ref())?;
            let subscriptions = subscribe(engine.ports.bus.as_ref(), wishes).await?;
            let plan = plan.take().ok_or_else(|| engine.nothing_to_start())?;
            Ready {
                worker: plan.worker,
                retention: plan.retention,
                republish: plan.republish,
                #[cfg(feature = "calls")]
                calls: plan.calls,
                subscriptions,
            }
        };
        let parts = match &engine.clock {
            Clock::System { runtime, .. } => {
                let stop = watch::Sender::new(false);
                let ends = EndsWithTask(Arc::clone(&engine));
                let task = runtime.spawn(supervise(ends, ready, stop.subscribe()));
                Parts::Task { stop, task }
            }
            #[cfg(feature = "testing")]
            Clock::Fake(clock) => Parts::Driven(DrivenParts::new(&engine, clock, ready)),
        };
        engine.runs();
        Ok(Self {
            engine,
            parts: Some(parts),
        })
    }

    /// Waits until the engine has stopped by itself, and tells why: its store broke, its file was
    /// renamed, removed or replaced, a bus of yours
    /// panicked, or the runtime that it was started on is gone. Calls are answered with
    /// [`Stopped`](crate::ErrorKind::Stopped) from then on, and nothing that was acknowledged is
    /// lost.
    ///
    /// It may wait for ever, so wait for something else at the same time:
    ///
    /// ```no_run
    /// # async fn example(running: punctual::Running) -> Result<(), punctual::Error> {
    /// tokio::select! {
    ///     why = running.stopped() => eprintln!("{why}; {}", why.advice()),
    ///     _ = tokio::signal::ctrl_c() => {}
    /// }
    /// running.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stopped(&self) -> Error {
        self.engine.stopped().await
    }

    /// Claims nothing more, finishes what is in flight, for at most 25 seconds, and closes the
    /// file. All clones of the [`Punctual`](crate::Punctual) answer
    /// [`Stopped`](crate::ErrorKind::Stopped) then.
    ///
    /// On a fake clock, a handler that sleeps on that clock is waited for: advance the clock
    /// meanwhile.
    ///
    /// Not inside a handler, which would wait for itself: let it tell some other task to do it.
    ///
    /// # Errors
    /// With the cause, if the engine has stopped by itself before, or does so now.
    pub async fn shutdown(mut self) -> Result<ShutDown, Error> {
        let outcome = match self.parts.as_mut() {
            Some(Parts::Task { stop, task, .. }) => {
                stop.send_replace(true);
                match task.await {
                    Ok(outcome) => outcome,
                    // It has panicked or was dropped, and has said so.
                    Err(_) => Err(self.engine.stopped().await),
                }
            }
            #[cfg(feature = "testing")]
            Some(Parts::Driven(driven)) => driven.shutdown(&self.engine).await,
            None => Err(Error::stopped("it was shut down before")),
        };
        self.parts = None;
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        self.engine.stop(
            "its `Running` was dropped: keep it as long as it is to fire",
            None,
        );
        match parts {
            Parts::Task { task, .. } => task.abort(),
            #[cfg(feature = "testing")]
            Parts::Driven(_) => {}
        }
        self.engine.store.close_soon();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// The engine's task, however it ends: with its runtime or by a panic, too. Whoever schedules must
/// not go on as if somebody fired.
struct EndsWithTask(Arc<Engine>);

impl Drop for EndsWithTask {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() {
            "something panicked while it ran: that panic's own message says what"
        } else {
            "its tokio runtime was shut down"
        };
        // After a good end neither does anything.
        self.0.stop(reason, None);
        self.0.store.close_soon();
    }
}

/// Who is to be told, and who takes commands. Collected before anything is awaited: a plan cannot be
/// shared between threads, and whoever waits for `start` may be moved to another.
fn wishes(engine: &Arc<Engine>, plan: Option<&Plan>) -> Result<Vec<Subscribe>, Error> {
    let plan = plan.ok_or_else(|| engine.nothing_to_start())?;
    let mut wishes = Vec::new();
    let told: Option<(Arc<dyn MessageHandler>, usize)> = match &plan.told {
        // One event a call, so that a slow one holds up no other.
        Some(Told::Function(handle)) => {
            let (handle, engine) = (Arc::clone(handle), Arc::downgrade(engine));
            Some((Arc::new(OnDue { handle, engine }), 1))
        }
        Some(Told::Subscriber(handler, max_batch)) => Some((Arc::clone(handler), *max_batch)),
        None => None,
    };
    if let Some((handler, max_batch)) = told {
        wishes.push(wish(Topic::TimerEvents, "on-due", max_batch, handler));
    }
    if plan.takes_commands || has_calls(plan) {
        let handler = Arc::new(engine.timers.clone());
        wishes.push(wish(Topic::TimerCommands, "timer", 1_000, handler));
    }
    #[cfg(feature = "calls")]
    if let Some(calls) = &plan.calls {
        for (topic, consumer, max_batch, handler) in calls.handlers() {
            wishes.push(wish(topic, consumer, max_batch, handler));
        }
    }
    Ok(wishes)
}

const fn has_calls(plan: &Plan) -> bool {
    #[cfg(feature = "calls")]
    return plan.calls.is_some();
    #[cfg(not(feature = "calls"))]
    {
        let _ = plan;
        false
    }
}

fn wish(
    topic: Topic,
    consumer: &'static str,
    max_batch: usize,
    handler: Arc<dyn MessageHandler>,
) -> Subscribe {
    Subscribe {
        topic,
        consumer: ConsumerName::new(consumer),
        max_batch,
        handler,
    }
}

async fn subscribe(
    bus: &dyn EventBusPort,
    wishes: Vec<Subscribe>,
) -> Result<Vec<Box<dyn Subscription>>, Error> {
    let mut subscriptions = Vec::with_capacity(wishes.len());
    for wish in wishes {
        subscriptions.push(bus.subscribe(wish).await?);
    }
    Ok(subscriptions)
}

/// Runs everything until it is told to stop, or going on makes no sense.
async fn supervise(
    ends: EndsWithTask,
    ready: Ready,
    mut stop: watch::Receiver<bool>,
) -> Result<ShutDown, Error> {
    let engine = &ends.0;
    #[cfg(feature = "calls")]
    let (execute, sweep_calls) = crate::calls::run(ready.calls, stop.clone());
    let asked = async move {
        // An error means that `Running` is gone, which asks for the same.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let work = ready.worker.run(asked);
    // Both drain at the same time; whatever has to be told of that is still published meanwhile.
    #[cfg(feature = "calls")]
    let work = async { tokio::try_join!(work, execute).map(|(drained, ())| drained) };
    #[cfg(not(feature = "calls"))]
    let sweep_calls = pending();
    let outcome = tokio::select! {
        biased;
        drained = work => drained,
        stopped = for_ever(ready.retention.run(pending())) => Err(stopped),
        stopped = for_ever(ready.republish.run(pending())) => Err(stopped),
        stopped = sweep_calls => Err(stopped),
        stopped = file_moved(engine) => Err(stopped),
        never = look_out(engine) => match never {},
    };
    end(engine, outcome, ready.subscriptions).await
}

/// Ends what is left, and tells everybody.
pub(crate) async fn end(
    engine: &Engine,
    outcome: Result<Drained, WorkerStopped>,
    subscriptions: Vec<Box<dyn Subscription>>,
) -> Result<ShutDown, Error> {
    match &outcome {
        Ok(_) => engine.stop("it was shut down", None),
        Err(stopped) => engine.fail(stopped.clone().into()),
    }
    let ending = async {
        for subscription in subscriptions {
            subscription.stop().await;
        }
        engine.close().await;
    };
    tokio::select! {
        () = ending => {}
        () = engine.ports.clock.sleep_for(LAST_MOMENTS) => {
            tracing::warn!("something was still under way and was left behind: no timer is lost by that");
        }
    }
    match engine.failure() {
        Some(failure) => Err(failure),
        None => Ok(ShutDown {
            unfinished: outcome.map_or(0, |drained| drained.unfinished),
        }),
    }
}

/// Whatever nobody asks to stop goes on for ever, or until the store is broken.
async fn for_ever(work: impl Future<Output = Result<(), WorkerStopped>>) -> WorkerStopped {
    match work.await {
        Err(stopped) => stopped,
        Ok(()) => pending().await,
    }
}

/// Waits until a file of the engine is renamed, removed or replaced, also while nothing is due.
async fn file_moved(engine: &Engine) -> WorkerStopped {
    match &engine.store {
        #[cfg(feature = "sqlite")]
        Store::Sqlite(sqlite) => {
            let cause = sqlite.file_moved(engine.ports.clock.as_ref()).await;
            WorkerStopped { cause }
        }
        #[cfg(feature = "testing")]
        Store::Memory(_) => pending().await,
    }
}

/// Lets the worker look whenever somebody else may have written.
async fn look_out(engine: &Engine) -> Infallible {
    match &engine.store {
        #[cfg(feature = "sqlite")]
        Store::Sqlite(sqlite) => {
            let on_commit = || engine.ports.wake.due_at(punctual_domain::Timestamp::MIN);
            let clock = Arc::clone(&engine.ports.clock);
            // It ends when the store is closed or broken, which the worker notices by itself.
            let watch = sqlite.store.watch_foreign_commits(clock, on_commit);
            tokio::join!(watch, sqlite.hints.run()).1
        }
        #[cfg(feature = "testing")]
        Store::Memory(_) => pending().await,
    }
}
