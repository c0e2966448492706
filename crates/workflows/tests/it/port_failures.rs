//! What the worker does when bus, handler or store fail, class by class.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::{Answer, DeadLetterPort, PortErrorKind};
use punctual_workflows::{TimerRequest, WorkerSettings};

use crate::ledger::{poison, reply, retry};
use crate::world::{World, key, key_of, ms, secs};

#[tokio::test]
async fn a_failing_handler_is_tried_again_later_and_later() {
    let world = World::new().await;
    world
        .ledger
        .answers(|_, earlier| reply(if earlier < 5 { retry() } else { Answer::Done }));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(120)).await;
    let at: Vec<Duration> = world
        .ledger
        .seen()
        .windows(2)
        .map(|pair| pair[1].at.since(pair[0].at))
        .collect();
    assert_eq!(at.len(), 5);
    for (wait, whole) in at.iter().zip([1, 2, 4, 8, 16]) {
        assert!(
            *wait <= secs(whole) && *wait >= secs(whole) * 3 / 4,
            "{at:?}"
        );
    }
    assert_eq!(world.ledger.firings().len(), 1, "the same firing each time");
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn a_timer_that_always_fails_is_tried_at_most_hourly_and_for_ever() {
    let world = World::new().await;
    world.ledger.answers(|_, _| reply(retry()));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(Duration::from_hours(24)).await;
    let before = world.ledger.seen().len();
    world.advance(Duration::from_hours(24)).await;
    let in_a_day = world.ledger.seen().len() - before;
    assert!((23..=33).contains(&in_a_day), "{in_a_day}");
}

#[tokio::test]
async fn a_hundred_failing_timers_delay_no_other() {
    let world = World::new().await;
    world.ledger.answers(|event, _| {
        reply(if event.tenant_id.as_str() == "failing" {
            retry()
        } else {
            Answer::Done
        })
    });
    for n in 0..100 {
        world
            .schedule(&key_of("failing", &n.to_string()), secs(1))
            .await;
    }
    let claims = world.count_calls("claim_due");
    for n in 0..60 {
        world.schedule(&key(&n.to_string()), secs(n)).await;
    }
    world.advance(secs(60)).await;
    for seen in world.ledger.seen() {
        if seen.event.tenant_id.as_str() != "failing" {
            assert_eq!(seen.at, seen.event.due_at, "a healthy timer was late");
        }
    }
    assert!(
        claims.load(Ordering::SeqCst) < 1_500,
        "no busy loop: {claims:?}"
    );
}

#[tokio::test]
async fn poison_becomes_a_dead_letter_and_the_timer_is_reached() {
    let world = World::new().await;
    world.ledger.answers(|_, _| reply(poison()));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(Duration::from_hours(2)).await;
    assert_eq!(world.ledger.seen().len(), 1);
    assert!(world.is_reached(&key("a")).await);
    let dead_letters = world.store.list(None, 10).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
    let (dead_letter, seen) = (&dead_letters[0].dead_letter, &world.ledger.seen()[0]);
    assert_eq!(dead_letter.reason, "not ever");
    assert_eq!(dead_letter.id, seen.event.firing_id.to_string());
    assert_eq!(dead_letter.payload, seen.envelope.to_json().unwrap());
}

#[tokio::test]
async fn without_a_subscriber_timers_wait_and_nothing_is_marked() {
    let mut world = World::new().await;
    world.unsubscribe();
    world.schedule(&key("a"), secs(1)).await;
    let claims = world.count_calls("claim_due");
    world.advance(Duration::from_mins(10)).await;
    assert!(!world.is_reached(&key("a")).await);
    assert!(
        claims.load(Ordering::SeqCst) < 300,
        "no busy loop: {claims:?}"
    );
    world.subscribe().await;
    world.advance(secs(5)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn a_bus_that_was_away_counts_no_attempts_and_all_fire_soon_after() {
    let world = World::new().await;
    let away_until = world.in_(Duration::from_mins(5));
    let clock = world.clock.clone();
    world.faults.decide(move |call| {
        use punctual_ports::ClockPort;
        let away = call.operation == "publish" && clock.now() < away_until;
        away.then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    for n in 0..500 {
        world.schedule(&key(&n.to_string()), ms(n * 500)).await;
    }
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.ledger.seen().len(), 0);
    world.advance(secs(6)).await;
    assert_eq!(world.ledger.firings().len(), 500, "back within one pause");
    assert_eq!(world.ledger.seen().len(), 500, "and none of them twice");
}

#[tokio::test]
async fn a_mark_that_fails_is_repeated_and_the_event_is_not() {
    let world = World::new().await;
    let until = world.in_(Duration::from_mins(10));
    let clock = world.clock.clone();
    world.faults.decide(move |call| {
        use punctual_ports::ClockPort;
        let failing = call.operation == "mark_fired" && clock.now() < until;
        failing.then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    world.schedule(&key("a"), secs(1)).await;
    let marks = world.count_calls("mark_fired");
    world.advance(Duration::from_mins(10)).await;
    assert!(!world.is_reached(&key("a")).await);
    world.advance(secs(6)).await;
    assert!(world.is_reached(&key("a")).await);
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert!(
        (100..300).contains(&marks.load(Ordering::SeqCst)),
        "no busy loop: {marks:?}"
    );
}

#[tokio::test]
async fn published_but_unmarked_is_bounded_and_full_means_no_more_claims() {
    let settings = WorkerSettings {
        batch_size: 10,
        max_in_flight: 20,
        ..WorkerSettings::default()
    };
    let world = World::with(settings).await;
    world.faults.decide(|call| {
        let failing = call.operation == "mark_fired" && call.number_of_operation < 20;
        failing.then_some(Fault::FailBefore(PortErrorKind::StorageFull))
    });
    let due_at = world.in_(secs(1));
    let batch = (0..100).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(10)).await;
    let in_flight = world.ledger.seen().len();
    assert!(
        (10..=20).contains(&in_flight),
        "at most max_in_flight: {in_flight}"
    );
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.ledger.seen().len(), 100, "each once");
    assert_eq!(world.ledger.firings().len(), 100);
}

#[tokio::test]
async fn a_store_that_fails_for_now_is_left_alone_for_a_while_and_then_all_is_well() {
    let world = World::new().await;
    world.advance(secs(1)).await;
    let until = world.in_(Duration::from_mins(2));
    let clock = world.clock.clone();
    world.faults.decide(move |call| {
        use punctual_ports::ClockPort;
        let failing = call.operation != "save" && clock.now() < until;
        failing.then_some(Fault::FailBefore(PortErrorKind::Busy))
    });
    world.schedule(&key("a"), secs(10)).await;
    let claims = world.count_calls("claim_due");
    world.advance(Duration::from_mins(2)).await;
    assert!(
        claims.load(Ordering::SeqCst) < 60,
        "no busy loop: {claims:?}"
    );
    world.advance(secs(6)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn a_broken_store_stops_the_worker_with_the_cause() {
    for operation in ["claim_due", "mark_fired", "retry_later"] {
        let world = World::new().await;
        if operation == "retry_later" {
            world.ledger.answers(|_, _| reply(retry()));
        }
        let fault = Fault::FailBefore(PortErrorKind::Broken);
        world.faults.at_call_of(operation, 1, fault);
        world.schedule(&key("a"), secs(1)).await;
        world.advance(secs(60)).await;
        let stopped = world.worker.stopped().unwrap();
        assert_eq!(stopped.cause.operation(), operation);
        assert_eq!(
            stopped.to_string(),
            format!("the timer worker has stopped: failed to {operation}: a fault was injected")
        );
    }
}

#[tokio::test]
async fn a_store_that_may_never_claim_stops_the_worker() {
    let world = World::new().await;
    let fault = Fault::FailBefore(PortErrorKind::Rejected);
    world.faults.at_call_of("claim_due", 1, fault);
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(60)).await;
    let stopped = world.worker.stopped().unwrap();
    assert_eq!(stopped.cause.kind(), PortErrorKind::Rejected);
}

#[tokio::test]
async fn a_crash_after_the_event_and_before_the_mark_repeats_it_under_the_same_id() {
    for fault in [Fault::CrashAfter, Fault::CrashBefore] {
        let operation = if fault == Fault::CrashAfter {
            "publish"
        } else {
            "mark_fired"
        };
        let mut world = World::new().await;
        world.faults.at_call_of(operation, 1, fault);
        world.schedule(&key("a"), secs(1)).await;
        tokio::select! {
            () = world.clock.advance(secs(10)) => panic!("it crashes on the way"),
            () = world.faults.crashed() => {}
        }
        assert_eq!(world.ledger.count(&key("a")), 1);
        world.restart(WorkerSettings::default());
        world.advance(ms(0)).await;
        assert_eq!(world.ledger.count(&key("a")), 2);
        assert_eq!(world.ledger.firings().len(), 1);
        assert!(world.is_reached(&key("a")).await);
    }
}
