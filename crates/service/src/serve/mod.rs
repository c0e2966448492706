//! Serving: fires timers until told to stop.
//!
//! | what happens | what we do | exit code |
//! |---|---|---|
//! | SIGTERM, SIGINT | claim nothing more, finish what is in flight, for at most 25 s | 0 |
//! | a second signal | end at once, unless it comes within a fifth of a second of the first; what was in flight fires again after the next start | 128 + its number |
//! | standard output breaks | the same as on a signal; firings that were not written stay scheduled | 1 |
//! | the store is broken | stop, with the cause | 1 |
//! | a panic anywhere | end at once | 1 |

mod banner;
mod file_check;
mod firing_lines;
mod signals;
mod stop;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_sqlite::{SqliteTimerStore, Synchronous};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::{Timestamp, Topic};
use punctual_ports::{ClockPort, ConsumerName, EventBusPort, Subscribe};
use punctual_workflows::{Retention, TimerPorts, TimerWorker};
use tokio::runtime::Handle;

use crate::failure::Failure;
use crate::settings::ServeSettings;
use crate::{stdout, store};
use firing_lines::FiringLines;
use signals::Signals;
use stop::{Reason, Stop};

/// How long to wait for whatever is left after the worker has drained. It has had its time, and
/// what is not finished then fires again.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// Fires timers until a signal comes or going on makes no sense, and says at the end why it ended.
pub(crate) async fn run(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    let served = serve(settings, clock).await;
    match &served {
        Ok(()) => tracing::info!(reason = "a signal", "stopped: no timer is lost"),
        // Whoever could not even start has not stopped.
        Err(Failure::Failed(reason)) => tracing::error!(reason, "stopped: no timer is lost"),
        Err(_) => {}
    }
    served
}

async fn serve(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    // Signals first: from now on none of them ends us in an unforeseen way.
    let stop = Stop::new();
    let signals = Signals::listen()
        .map_err(|error| Failure::refused(format!("signals cannot be listened to: {error}")))?;
    tokio::spawn(signals.obey(stop.clone(), clock.clone()));
    let unwritable =
        |error| Failure::refused(format!("standard output cannot be written: {error}"));
    let stdout = stdout::open().map_err(unwritable)?;

    let store = tokio::select! {
        biased;
        _ = stop.requested() => return Ok(()),
        opened = store::open(&settings.database, &clock) => opened?,
    };
    // Only now that the role is ours: another process may still be writing to the same file.
    let is_durable = settings.database.synchronous == Synchronous::Full;
    let lines = FiringLines::start(stdout, stop.clone(), is_durable).map_err(unwritable)?;
    let bus = InProcessBus::new(Handlers::Spawned(Handle::current()));
    let wish = Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("stdout"),
        max_batch: settings.worker.publish_batch,
        handler: Arc::new(lines),
    };
    let subscription = bus.subscribe(wish).await?;
    let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), bus);
    let worker = TimerWorker::new(&ports, settings.worker)?;
    let retention = Retention::new(&ports, settings.retention)?;
    let watching = tokio::spawn(watch(
        store.clone(),
        ports.clone(),
        settings.database.path.clone(),
    ));

    banner::show(&settings);
    let retaining = tokio::spawn(retain(retention, stop.clone()));
    let waiting = stop.clone();
    let outcome = worker
        .run(async move { _ = waiting.requested().await })
        .await;

    // Whatever ended the worker ends the rest.
    stop.request(Reason::Asked);
    watching.abort();
    let ending = async {
        subscription.stop().await;
        let _ = retaining.await;
        store.close().await;
    };
    tokio::select! {
        () = ending => {}
        () = clock.sleep_for(LAST_MOMENTS) => {
            tracing::warn!("something was still under way and was left behind: no timer is lost by that");
        }
    }
    // A store that broke is the worst of the reasons, also if it did so while we were stopping.
    match (outcome, stop.requested().await) {
        (Err(stopped), _) => Err(stopped.into()),
        (Ok(_), Reason::Failed(sentence)) => Err(Failure::failed(sentence)),
        (Ok(_), Reason::Asked) => Ok(()),
    }
}

/// Lets the worker look whenever another process, such as `schedule`, has written to the file, and
/// tells if that file is no longer ours.
async fn watch(store: SqliteTimerStore, ports: TimerPorts, path: PathBuf) {
    let wake = ports.wake;
    let on_commit = move || wake.due_at(Timestamp::MIN);
    let commits = store.watch_foreign_commits(Arc::clone(&ports.clock), on_commit);
    tokio::join!(commits, file_check::watch(&path, ports.clock.as_ref()));
}

/// Removes what is old. If the store is broken, that is for all of us.
async fn retain(retention: Retention, stop: Stop) {
    let waiting = stop.clone();
    let retained = retention
        .run(async move { _ = waiting.requested().await })
        .await;
    if let Err(stopped) = retained {
        stop.request(Reason::Failed(stopped.to_string()));
    }
}
