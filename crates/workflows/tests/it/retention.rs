//! Retention purges old rows in small batches, and no others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::{PortErrorKind, SaveOutcome, TimerPersistencePort};
use punctual_workflows::{Driven, Retention, RetentionSettings, TimerRequest, WorkerSettings};

use crate::world::{World, key, ms, secs};

const DAY: Duration = Duration::from_hours(24);

/// Rare polls, so that months pass quickly.
fn settings() -> WorkerSettings {
    WorkerSettings {
        polling_interval: Duration::from_hours(6),
        ..WorkerSettings::default()
    }
}

fn daily() -> RetentionSettings {
    RetentionSettings {
        every: Duration::from_hours(1),
        ..RetentionSettings::default()
    }
}

#[tokio::test]
async fn a_reached_timer_is_kept_for_the_retention_time_and_no_longer() {
    let world = World::with(settings()).await;
    let _retention = world.clock.drive(Driven::new(
        Retention::worker(&world.ports, daily()).unwrap(),
    ));
    world.schedule(&key("old"), secs(1)).await;
    world.schedule(&key("far"), DAY * 300).await;
    world.advance(DAY * 29).await;
    assert!(world.is_reached(&key("old")).await);
    world.advance(DAY * 2).await;
    assert_eq!(world.store.find(key("old")).await.unwrap(), None);
    assert!(world.store.find(key("far")).await.unwrap().is_some());
    assert_eq!(
        world.schedule(&key("old"), secs(1)).await,
        SaveOutcome::Created
    );
}

#[tokio::test]
async fn a_large_purge_is_done_in_batches_with_pauses_between() {
    let world = World::with(settings()).await;
    let due_at = world.in_(secs(1));
    let batch = (0..2_000).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(DAY * 31).await;
    let purges = world.count_calls("purge");
    let _retention = world.clock.drive(Driven::new(
        Retention::worker(&world.ports, daily()).unwrap(),
    ));
    world.advance(ms(0)).await;
    assert_eq!(purges.load(Ordering::SeqCst), 1);
    world.advance(ms(249)).await;
    assert_eq!(
        purges.load(Ordering::SeqCst),
        1,
        "it pauses between two batches"
    );
    world.advance(secs(2)).await;
    assert_eq!(
        purges.load(Ordering::SeqCst),
        5,
        "four full batches and one that found nothing"
    );
    assert_eq!(world.store.find(key("0")).await.unwrap(), None);
}

#[tokio::test]
async fn purging_keeps_up_with_twenty_thousand_firings_a_second() {
    let world = World::with(settings()).await;
    let due_at = world.in_(secs(1));
    for part in 0..4 {
        let batch = (0..10_000).map(|n| TimerRequest::at(key(&format!("{part}-{n}")), due_at));
        world.timers.schedule(batch.collect()).await.unwrap();
    }
    world.advance(DAY * 31).await;
    // Each batch of five hundred takes twelve milliseconds: two seconds for all, with the pauses.
    world
        .faults
        .decide(|call| (call.operation == "purge").then_some(Fault::DelayBefore(ms(12))));
    let _retention = world.clock.drive(Driven::new(
        Retention::worker(&world.ports, daily()).unwrap(),
    ));
    world.advance(secs(3)).await;
    assert_eq!(world.store.find(key("3-9999")).await.unwrap(), None);
    assert_eq!(world.store.purge(world.now(), 1).await.unwrap(), 0);
}

#[tokio::test]
async fn a_store_that_fails_for_now_is_tried_again_and_a_broken_one_ends_it() {
    let world = World::with(settings()).await;
    let retention = Driven::new(Retention::worker(&world.ports, daily()).unwrap());
    let _driving = world.clock.drive(retention.clone());
    world
        .faults
        .at_call_of("purge", 1, Fault::FailBefore(PortErrorKind::Busy));
    world
        .faults
        .at_call_of("purge", 3, Fault::FailBefore(PortErrorKind::Broken));
    let purges = world.count_calls("purge");
    world.advance(secs(2)).await;
    assert!(retention.stopped().is_none());
    world.advance(Duration::from_hours(3)).await;
    assert!(retention.stopped().is_some());
    assert!(purges.load(Ordering::SeqCst) <= 3);
}

#[tokio::test]
async fn it_runs_as_a_task_until_shutdown() {
    let world = World::with(settings()).await;
    world.schedule(&key("old"), secs(1)).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let retention = Retention::worker(&world.ports, daily()).unwrap();
    let task = tokio::spawn(retention.run(async move { _ = stopped.await }));
    tokio::task::yield_now().await;
    world.advance(DAY * 31).await;
    assert_eq!(world.store.find(key("old")).await.unwrap(), None);
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_and_named() {
    let world = World::with(settings()).await;
    let default = RetentionSettings::default();
    for (field, settings) in [
        (
            "keep",
            RetentionSettings {
                keep: Duration::ZERO,
                ..default
            },
        ),
        (
            "batch_size",
            RetentionSettings {
                batch_size: 0,
                ..default
            },
        ),
        (
            "between_batches",
            RetentionSettings {
                between_batches: Duration::ZERO,
                ..default
            },
        ),
        (
            "every",
            RetentionSettings {
                every: Duration::ZERO,
                ..default
            },
        ),
    ] {
        let error = Retention::worker(&world.ports, settings).err().unwrap();
        assert_eq!(error.field, field);
    }
}
