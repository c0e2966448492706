//! Stopping in order: nothing is lost, nothing is repeated.

use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::{PortErrorKind, TimerQueuePort};
use punctual_workflows::{Drained, TimerRequest, TimerWorker, WorkerSettings};
use tokio::sync::oneshot;

use crate::world::{World, key, ms, secs};

/// Runs the worker as a process does: as a task that sleeps.
fn run(
    world: &mut World,
    settings: WorkerSettings,
) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Drained>) {
    world.stop();
    let worker = TimerWorker::new(&world.ports, settings).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let shutdown = async move { _ = stopped.await };
        worker.run(shutdown).await.unwrap()
    });
    (stop, task)
}

#[tokio::test]
async fn a_shutdown_finishes_what_is_in_flight_and_gives_back_the_rest() {
    let mut world = World::new().await;
    world.answers_after(secs(10));
    let settings = WorkerSettings {
        publishes_in_flight: 4,
        ..WorkerSettings::default()
    };
    let (stop, task) = run(&mut world, settings);
    let due_at = world.in_(secs(1));
    let batch = (0..20).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(2)).await;
    let begun = world.ledger.seen().len();
    assert!((1..=4).contains(&begun));
    stop.send(()).unwrap();
    world.advance(secs(20)).await;
    assert_eq!(task.await.unwrap(), Drained { unfinished: 0 });
    assert_eq!(world.ledger.seen().len(), begun, "nothing more was begun");
    let left = world
        .store
        .claim_due(world.now(), 100, secs(30))
        .await
        .unwrap();
    assert_eq!(
        left.claims.len(),
        20 - begun,
        "the rest is free for the next one"
    );
}

#[tokio::test]
async fn nothing_fires_twice_over_an_orderly_restart() {
    let mut world = World::new().await;
    world.answers_after(ms(300));
    let due_at = world.in_(secs(1));
    let batch = (0..500).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    for _ in 0..10 {
        let (stop, task) = run(&mut world, WorkerSettings::default());
        tokio::task::yield_now().await;
        world.advance(ms(700)).await;
        stop.send(()).unwrap();
        world.advance(secs(1)).await;
        assert_eq!(task.await.unwrap(), Drained { unfinished: 0 });
    }
    assert_eq!(world.ledger.seen().len(), 500);
    assert_eq!(world.ledger.firings().len(), 500);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let mut world = World::new().await;
    world.answers_after(Duration::from_hours(1));
    let (stop, task) = run(&mut world, WorkerSettings::default());
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(2)).await;
    stop.send(()).unwrap();
    world.advance(secs(26)).await;
    assert_eq!(task.await.unwrap(), Drained { unfinished: 1 });
}

#[tokio::test]
async fn a_shutdown_keeps_telling_a_store_that_fails_for_now() {
    let mut world = World::new().await;
    let (stop, task) = run(&mut world, WorkerSettings::default());
    world.faults.decide(|call| {
        let failing = call.operation == "mark_fired" && call.number_of_operation < 5;
        failing.then_some(Fault::FailBefore(PortErrorKind::Busy))
    });
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(1)).await;
    stop.send(()).unwrap();
    world.advance(secs(20)).await;
    assert_eq!(task.await.unwrap(), Drained { unfinished: 0 });
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn claims_that_arrive_during_a_shutdown_are_released() {
    let mut world = World::new().await;
    let (stop, task) = run(&mut world, WorkerSettings::default());
    world.advance(secs(1)).await;
    world
        .faults
        .at_call_of("claim_due", 2, Fault::DelayAfter(secs(5)));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(2)).await;
    stop.send(()).unwrap();
    world.advance(secs(10)).await;
    assert_eq!(task.await.unwrap(), Drained { unfinished: 0 });
    assert_eq!(world.ledger.seen().len(), 0);
    let left = world
        .store
        .claim_due(world.now(), 10, secs(30))
        .await
        .unwrap();
    assert_eq!(left.claims.len(), 1, "free for the next one");
}
