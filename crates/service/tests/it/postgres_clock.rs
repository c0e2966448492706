//! An instance whose clock is behind that of its database's server, through a crash of the server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_postgres::{PostgresSettings, PostgresTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::{
    CorrelationId, Message, ScheduleOrigin, TenantId, TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, Backend, ClockPort, ConsumerName, EventBusPort, IdPort, SaveTimer, Subscribe,
    TimerPersistencePort,
};
use punctual_test_servers::PostgresServer;
use punctual_workflows::{TimerPorts, TimerWorker, WorkerSettings, handler_fn};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::running::PATIENCE;

const BEHIND: Duration = Duration::from_secs(10);

/// The machine's clock, set back.
#[derive(Clone)]
struct Slow(SystemClock);

#[async_trait]
impl ClockPort for Slow {
    fn now(&self) -> Timestamp {
        self.0.now().saturating_sub(BEHIND)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep_until(&self, instant: Timestamp) {
        self.0.sleep_until(instant.saturating_add(BEHIND)).await;
    }

    async fn sleep_for(&self, duration: Duration) {
        self.0.sleep_for(duration).await;
    }
}

/// Stores a timer as soon as the server is there.
async fn save(store: &PostgresTimerStore, clock: &Slow, name: &str, after: Duration) {
    let timer = SaveTimer {
        key: TimerKey::named(TenantId::default(), name),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: clock.now().saturating_add(after),
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    loop {
        let saved = store.save(vec![timer.clone()], clock.now()).await;
        match saved.and_then(|mut outcomes| outcomes.remove(0)) {
            Ok(_) => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        clock.sleep_for(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_ten_seconds_behind_fires_on_after_a_crash_of_the_server() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let clock = Slow(SystemClock::start().unwrap());
    let settings = PostgresSettings::timers(server.url().parse().unwrap());
    let opened = PostgresTimerStore::open(&settings, Arc::new(clock.clone()), UuidIds.next_id());
    let store = Box::pin(opened).await.unwrap();
    let bus = InProcessBus::new(Handlers::Spawned(Handle::current()));
    let (fired, mut firings) = mpsc::unbounded_channel();
    let hear = handler_fn(move |envelope| {
        if let Message::DueTimeReached(event) = envelope.message {
            fired.send(event.key()).unwrap();
        }
        std::future::ready(Answer::Done)
    });
    let subscribe = Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("test"),
        max_batch: 1,
        handler: hear,
    };
    let _subscription = bus.subscribe(subscribe).await.unwrap();
    let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), bus);
    let worker = WorkerSettings::default().for_several_instances();
    let worker = TimerWorker::new(&ports, worker).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
    let (watched, wake) = (store.clone(), ports.wake.clone());
    let on_change = Arc::new(move || wake.due_at(Timestamp::MIN));
    let watching = Arc::new(clock.clone());
    tokio::spawn(async move { watched.watch(watching, on_change).await });

    let mut hear = async |name: &str| {
        // A firing that was not marked before the crash comes again.
        let wanted = TimerKey::named(TenantId::default(), name);
        let heard = async { while firings.recv().await.as_ref() != Some(&wanted) {} };
        tokio::select! {
            () = heard => {}
            () = clock.sleep_for(PATIENCE) => panic!("{name} has not fired"),
        }
    };
    save(&store, &clock, "before", Duration::ZERO).await;
    hear("before").await;
    for crash in ["one", "two"] {
        let due_meanwhile = format!("due during {crash}");
        save(&store, &clock, &due_meanwhile, Duration::from_millis(200)).await;
        server.kill();
        server.restart();
        hear(&due_meanwhile).await;
        let saved_after = format!("saved after {crash}");
        save(&store, &clock, &saved_after, Duration::ZERO).await;
        hear(&saved_after).await;
    }
    stop.send(()).unwrap();
    let _ = working.await.unwrap().unwrap();
    store.close().await;
}
