//! The worker as a task that sleeps, as a process runs it, and on the real clock.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::MemoryTimerStore;
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::Topic;
use punctual_ports::{Answer, ClockPort, ConsumerName, EventBusPort, Subscribe};
use punctual_workflows::{
    Drained, ScheduleTimers, TimerPorts, TimerRequest, TimerWorker, WorkerSettings, handler_fn,
};
use tokio::sync::{mpsc, oneshot};

use crate::world::{World, key, ms, secs};

#[tokio::test]
async fn a_running_worker_sleeps_until_the_next_due_instant() {
    let mut world = World::new().await;
    world.stop();
    let worker = TimerWorker::new(&world.ports, WorkerSettings::default()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(worker.run(async move { _ = stopped.await }));
    tokio::task::yield_now().await;
    let due_at = world.in_(ms(1_234));
    world.schedule(&key("a"), ms(1_234)).await;
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.seen()[0].at, due_at);
    world
        .clock
        .set_wall(world.now().saturating_sub(Duration::from_hours(1)));
    let due_at = world.in_(secs(3));
    world.schedule(&key("b"), secs(3)).await;
    world.advance(secs(3)).await;
    assert_eq!(world.ledger.seen()[1].at, due_at);
    stop.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap(), Drained { unfinished: 0 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_real_clock_timers_fire_in_order_and_none_early() {
    let clock = Arc::new(SystemClock::start().unwrap());
    let bus = InProcessBus::new(Handlers::Spawned(tokio::runtime::Handle::current()));
    let store = MemoryTimerStore::new();
    let ports = TimerPorts::new(clock.as_ref().clone(), UuidIds, store, bus.clone());
    let (fired, mut seen) = mpsc::unbounded_channel();
    let now = Arc::clone(&clock);
    let handler = handler_fn(move |envelope| {
        fired.send((envelope, now.now())).ok();
        async { Answer::Done }
    });
    let request = Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("receiver"),
        max_batch: 1,
        handler,
    };
    let _subscription = bus.subscribe(request).await.unwrap();
    let worker = TimerWorker::new(&ports, WorkerSettings::default()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(worker.run(async move { _ = stopped.await }));
    let timers = ScheduleTimers::new(&ports);
    let due = |n: u64| clock.now().saturating_add(ms(5 + n));
    let batch = (0..100)
        .map(|n| TimerRequest::at(key(&n.to_string()), due(n)))
        .collect();
    timers.schedule(batch).await.unwrap();
    for _ in 0..100 {
        let (envelope, at) = seen.recv().await.unwrap();
        let punctual_domain::Message::DueTimeReached(event) = envelope.message else {
            panic!("only events are subscribed to");
        };
        assert!(at >= event.due_at, "{} is early", event.firing_id);
        assert!(event.reached_at >= event.due_at);
    }
    stop.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap(), Drained { unfinished: 0 });
    assert!(seen.try_recv().is_err(), "and none twice");
}
