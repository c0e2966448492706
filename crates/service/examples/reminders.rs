//! Timers of your own program, on one SQLite file: schedules a few reminders and prints each as it
//! fires. Kill it on the way and start it again: what was scheduled fires then.
//!
//! Run it with `cargo run --release --example reminders`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::{Message, TenantId, TimerData, TimerKey, Timestamp, Topic};
use punctual_ports::{Answer, ClockPort, ConsumerName, EventBusPort, Subscribe};
use punctual_workflows::{
    ScheduleTimers, TimerPorts, TimerRequest, TimerWorker, WorkerSettings, each_message,
};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The adapters: this machine's clock, a file, and a bus within the process.
    let clock = Arc::new(SystemClock::start()?);
    let bus = InProcessBus::new(Handlers::Spawned(tokio::runtime::Handle::current()));
    let file = std::env::temp_dir().join("punctual-reminders.db");
    let store = SqliteTimerStore::open(&SqliteSettings::timers(&file), clock.now())?;
    let ports = TimerPorts::new(clock.as_ref().clone(), UuidIds, store.clone(), bus.clone());

    // What other programs commit to the file is noticed within a second.
    let (watched, wake) = (store.clone(), ports.wake.clone());
    let for_watch: Arc<dyn ClockPort> = clock.clone();
    tokio::spawn(async move {
        let look = || wake.due_at(Timestamp::MIN);
        watched.watch_foreign_commits(for_watch, look).await;
    });

    // Who is told. The answer says what becomes of the timer: done, again later, or never.
    let (fired, mut firings) = mpsc::unbounded_channel();
    let handler = each_message(move |envelope| {
        fired.send(envelope).ok();
        async { Answer::Done }
    });
    let wish = Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("reminders"),
        max_batch: 1,
        handler,
    };
    let subscription = bus.subscribe(wish).await?;

    // The worker fires what is due until it is told to stop.
    let worker = TimerWorker::new(&ports, WorkerSettings::default())?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async move { _ = stopped.await }));

    let timers = ScheduleTimers::new(&ports);
    let now = clock.now();
    let reminders = [
        ("tea", 2_500),
        ("pasta", 1_000),
        ("meeting", 1_750),
        ("now", 0),
    ];
    for (name, millis) in reminders {
        let key = TimerKey::named(TenantId::default(), name);
        let due_at = now.saturating_add(Duration::from_millis(millis));
        let request = TimerRequest {
            data: Some(TimerData::of(name)?),
            ..TimerRequest::at(key, due_at)
        };
        // Replaces what an earlier run has left.
        timers.replace(vec![request]).await?.remove(0)?;
        println!("scheduled {name:8} for {due_at}");
    }
    for _ in reminders {
        let Some(envelope) = firings.recv().await else {
            break;
        };
        if let Message::DueTimeReached(event) = envelope.message {
            let name: String = event.data.map_or(Ok(String::new()), |data| data.read())?;
            let late = event.reached_at.since(event.due_at);
            println!(
                "fired     {name:8} at  {} ({late:?} late)",
                event.reached_at
            );
        }
    }
    stop.send(()).ok();
    let drained = running.await??;
    subscription.stop().await;
    store.close().await;
    println!("stopped, {} unfinished", drained.unfinished);
    Ok(())
}
