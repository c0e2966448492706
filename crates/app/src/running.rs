//! An engine that runs, and the ways in which it ends.
//!
//! On the machine's clock one task holds everything together: the worker, retention, the publishing
//! again of what a broker lost, the change feed of the stores and the hints of `schedule_in`. On a fake
//! clock there is no task at all: the clock steps the same parts while it is advanced.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual_domain::Topic;
use punctual_ports::{ConsumerName, EventBusPort, MessageHandler, Subscribe, Subscription};
use punctual_workflows::{Drained, WorkerStopped};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Error;
use crate::engine::{Engine, Plan};
use crate::handler::{OnDue, Receiver};

/// How long to wait for whatever is left after the worker has drained. It has had its time, and
/// what is not finished then fires again.
pub(crate) const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// An engine that fires timers, until it is [shut down](Self::shutdown).
///
/// Dropping it stops the engine at once: handlers are broken off where they wait, and what they had
/// not finished fires again after the next start. That is safe, but not polite.
#[must_use = "dropping it stops the engine: keep it, and end it with `shutdown`"]
pub struct Running {
    engine: Arc<Engine>,
    parts: Option<Box<dyn Parts>>,
}

/// The parts of an engine that run. Dropping them stops them at once.
#[async_trait]
pub(crate) trait Parts: Send + Sync {
    /// Drains the worker and ends the rest.
    async fn shutdown(&mut self, engine: &Engine) -> Result<ShutDown, Error>;
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutDown {
    /// How many timers were claimed and could not be finished in 25 seconds. Nothing is lost: they
    /// fire after the next start, those whose handler had started a second time.
    pub unfinished: usize,
}

/// The plan of an engine, and its subscriptions: ready to run.
pub(crate) struct Ready {
    pub(crate) plan: Plan,
    pub(crate) subscriptions: Vec<Box<dyn Subscription>>,
}

impl Running {
    pub(crate) async fn start(engine: Arc<Engine>) -> Result<Self, Error> {
        engine.check_open()?;
        let ready = {
            let mut plan = engine.plan.lock().await;
            let requests = subscription_requests(&engine, plan.as_ref())?;
            let subscriptions = subscribe(engine.ports.bus.as_ref(), requests).await?;
            let plan = plan.take().ok_or_else(|| engine.nothing_to_start())?;
            Ready {
                plan,
                subscriptions,
            }
        };
        let parts = engine.clock.run(&engine, ready);
        engine.runs();
        Ok(Self {
            engine,
            parts: Some(parts),
        })
    }

    /// Waits until the engine has stopped by itself, and gives the reason: its store broke, its file was
    /// renamed, removed or replaced, a store or bus of yours panicked, or the runtime that it was started
    /// on is gone. Calls are answered with
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
            Some(parts) => parts.shutdown(&self.engine).await,
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
        drop(parts);
        self.engine.stores.close_soon();
    }
}

opaque_debug!(Running);

/// Runs an engine as a task.
pub(crate) fn spawn(runtime: &Handle, engine: &Arc<Engine>, ready: Ready) -> Box<dyn Parts> {
    let stop = watch::Sender::new(false);
    let ends = EndsWithTask(Arc::clone(engine));
    let task = runtime.spawn(supervise(ends, ready, stop.subscribe()));
    Box::new(Task { stop, task })
}

struct Task {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<ShutDown, Error>>,
}

#[async_trait]
impl Parts for Task {
    async fn shutdown(&mut self, engine: &Engine) -> Result<ShutDown, Error> {
        self.stop.send_replace(true);
        match (&mut self.task).await {
            Ok(outcome) => outcome,
            // It has panicked or was dropped, and has said so.
            Err(_) => Err(engine.stopped().await),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
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
        self.0.stores.close_soon();
    }
}

/// The subscriptions of an engine: to events, to commands, to the messages of calls. Collected before
/// anything is awaited: a plan cannot be shared between threads, and whoever waits for `start` may be
/// moved to another.
fn subscription_requests(
    engine: &Arc<Engine>,
    plan: Option<&Plan>,
) -> Result<Vec<Subscribe>, Error> {
    let plan = plan.ok_or_else(|| engine.nothing_to_start())?;
    let mut requests = Vec::new();
    let receiver: Option<(Arc<dyn MessageHandler>, usize)> = match &plan.receiver {
        // One event a call, so that a slow one holds up no other.
        Some(Receiver::Function(handle)) => {
            let (handle, engine) = (Arc::clone(handle), Arc::downgrade(engine));
            Some((Arc::new(OnDue { handle, engine }), 1))
        }
        Some(Receiver::Subscriber(handler, max_batch)) => Some((Arc::clone(handler), *max_batch)),
        None => None,
    };
    if let Some((handler, max_batch)) = receiver {
        requests.push(request(Topic::TimerEvents, "on-due", max_batch, handler));
    }
    if plan.takes_commands {
        let handler = Arc::new(engine.timers.clone());
        requests.push(request(Topic::TimerCommands, "timer", 1_000, handler));
    }
    let deletions = crate::calls::deletions(plan.hears_deletions, &engine.ports.persistence);
    if let Some(handler) = deletions {
        requests.push(request(Topic::OrchestrationEvents, "timer", 500, handler));
    }
    if let Some(calls) = &plan.calls {
        for (topic, consumer, max_batch, handler) in calls.handlers() {
            requests.push(request(topic, consumer, max_batch, handler));
        }
    }
    Ok(requests)
}

fn request(
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
    requests: Vec<Subscribe>,
) -> Result<Vec<Box<dyn Subscription>>, Error> {
    let mut subscriptions = Vec::with_capacity(requests.len());
    for request in requests {
        subscriptions.push(bus.subscribe(request).await?);
    }
    Ok(subscriptions)
}

/// What runs besides the timers.
pub(crate) struct CallsRun {
    /// The attempts, which drain when a stop is requested.
    pub(crate) execute: BoxFuture<'static, Result<(), WorkerStopped>>,
    /// The outbox, which is published until everything has drained, and left to other instances then.
    pub(crate) dispatch: BoxFuture<'static, Result<(), WorkerStopped>>,
    /// What goes on until the end.
    pub(crate) rest: BoxFuture<'static, WorkerStopped>,
}

impl CallsRun {
    /// Where there are no service calls.
    pub(crate) fn none() -> Self {
        Self {
            execute: ready(Ok(())).boxed(),
            dispatch: ready(Ok(())).boxed(),
            rest: pending().boxed(),
        }
    }
}

/// Runs everything until a stop is requested, or going on makes no sense.
async fn supervise(
    ends: EndsWithTask,
    Ready {
        plan,
        subscriptions,
    }: Ready,
    mut stop: watch::Receiver<bool>,
) -> Result<ShutDown, Error> {
    let engine = &ends.0;
    let (has_drained, drained) = watch::channel(false);
    let calls = crate::calls::run(plan.calls, stop.clone(), drained);
    let stop_requested = async move {
        // An error means that `Running` was dropped, which requests the same.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let work = async {
        if let Some(worker) = plan.worker {
            return worker.run(stop_requested).await;
        }
        stop_requested.await;
        Ok(Drained { unfinished: 0 })
    };
    let retention = async {
        match plan.retention {
            Some(retention) => retention.run(pending()).await,
            None => pending().await,
        }
    };
    // Both drain at the same time; the messages of that are still published meanwhile.
    let work = async {
        let (drained, ()) = tokio::try_join!(work, calls.execute)?;
        has_drained.send_replace(true);
        Ok(drained)
    };
    let work = async { tokio::try_join!(work, calls.dispatch).map(|(drained, ())| drained) };
    let outcome = tokio::select! {
        biased;
        drained = work => drained,
        stopped = for_ever(retention) => Err(stopped),
        stopped = for_ever(plan.republish.run(pending())) => Err(stopped),
        stopped = calls.rest => Err(stopped),
        cause = engine.watch_stores() => Err(WorkerStopped { cause }),
        never = engine.hints.run() => match never {},
    };
    end(engine, outcome, subscriptions).await
}

/// Ends what is left, and publishes the end to all handles.
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

/// Work that is never requested to stop goes on for ever, or until the store is broken.
async fn for_ever(work: impl Future<Output = Result<(), WorkerStopped>>) -> WorkerStopped {
    match work.await {
        Err(stopped) => stopped,
        Ok(()) => pending().await,
    }
}
