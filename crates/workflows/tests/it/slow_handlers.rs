//! Handlers that take longer than a lease.

use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::{Answer, ClockPort, DeleteOutcome, PortErrorKind, TimerQueuePort};
use punctual_workflows::WorkerSettings;

use crate::world::{World, key, rare_polls, secs};

#[tokio::test]
async fn the_lease_of_a_slow_handler_is_renewed_and_no_other_worker_gets_its_timer() {
    // No polls: the worker's own poll would claim anew what it failed to renew.
    let world = World::with(rare_polls()).await;
    world.answers_after(Duration::from_mins(10));
    world.schedule(&key("a"), secs(1)).await;
    for _ in 0..12 {
        world.advance(Duration::from_secs(45)).await;
        let stolen = world
            .store
            .claim_due(world.now(), 10, secs(30))
            .await
            .unwrap();
        assert_eq!(stolen.claims, []);
    }
    world.advance(Duration::from_mins(2)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn other_timers_fire_on_time_beside_a_slow_handler() {
    let world = World::new().await;
    let clock = world.clock.clone();
    world.ledger.answers(move |event, _| {
        let (clock, is_slow) = (clock.clone(), event.key() == key("slow"));
        Box::pin(async move {
            if is_slow {
                clock.sleep_for(Duration::from_mins(10)).await;
            }
            Answer::Done
        })
    });
    world.schedule(&key("slow"), secs(1)).await;
    world.advance(secs(2)).await;
    for n in 0..30 {
        world.schedule(&key(&n.to_string()), secs(n * 7)).await;
    }
    world.advance(Duration::from_mins(5)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 31);
    assert!(seen.iter().all(|s| s.at == s.event.due_at));
    for n in 0..30 {
        assert!(
            world.is_reached(&key(&n.to_string())).await,
            "marked beside the slow one"
        );
    }
    assert!(!world.is_reached(&key("slow")).await);
}

#[tokio::test]
async fn a_timer_whose_lease_ended_under_us_is_not_published_a_second_time() {
    let world = World::new().await;
    world.answers_after(Duration::from_mins(3));
    world.faults.decide(|call| {
        (call.operation == "renew").then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    world.schedule(&key("a"), secs(1)).await;
    world.advance(Duration::from_mins(10)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn a_clock_set_forward_past_all_leases_repeats_nothing_that_is_under_way() {
    let world = World::new().await;
    world.answers_after(Duration::from_mins(3));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(2)).await;
    world.clock.set_wall(world.in_(Duration::from_hours(5)));
    world.advance(Duration::from_mins(10)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn renewals_go_on_after_the_clock_was_set_back() {
    let world = World::with(rare_polls()).await;
    world.schedule(&key("first"), secs(1)).await;
    world.advance(secs(2)).await;
    world
        .clock
        .set_wall(world.now().saturating_sub(Duration::from_hours(1)));
    world.answers_after(Duration::from_mins(10));
    world.schedule(&key("slow"), secs(1)).await;
    world.advance(Duration::from_mins(5)).await;
    let cancelled = world
        .timers
        .cancel(vec![key("slow")])
        .await
        .unwrap()
        .remove(0);
    assert_eq!(cancelled.unwrap(), DeleteOutcome::Firing);
}

#[tokio::test]
async fn a_timer_that_waits_for_a_slot_past_its_lease_is_released() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 1,
        ..rare_polls()
    })
    .await;
    world.answers_after(Duration::from_mins(2));
    world.faults.decide(|call| {
        (call.operation == "renew").then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    world.schedule(&key("first"), secs(1)).await;
    world.schedule(&key("second"), secs(1)).await;
    world.advance(secs(2)).await;
    let begun = world.ledger.seen()[0].event.key();
    world.advance(secs(60)).await;
    let stolen = world
        .store
        .claim_due(world.now(), 10, Duration::from_hours(9))
        .await
        .unwrap();
    assert_eq!(stolen.claims.len(), 2, "both leases have ended");
    world.advance(Duration::from_mins(10)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1, "the one that waited is another's now");
    assert_eq!(seen[0].event.key(), begun);
}

#[tokio::test]
async fn leases_that_ended_while_the_process_stood_still_hold_nothing_up() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 1,
        lease: Duration::from_hours(24),
        ..WorkerSettings::default()
    })
    .await;
    world.answers_after(secs(10));
    for n in 0..5 {
        world.schedule(&key(&n.to_string()), secs(1)).await;
    }
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.seen().len(), 1);
    world.clock.set_wall(world.in_(Duration::from_hours(25)));
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.ledger.firings().len(), 5);
}

#[tokio::test]
async fn a_store_slower_than_the_lease_still_fires() {
    let world = World::with(WorkerSettings {
        lease: secs(1),
        ..WorkerSettings::default()
    })
    .await;
    world
        .faults
        .decide(|call| (call.operation == "claim_due").then_some(Fault::DelayAfter(secs(2))));
    world.schedule(&key("a"), secs(1)).await;
    world.advance(Duration::from_mins(1)).await;
    assert!(world.ledger.count(&key("a")) >= 1);
    assert!(world.is_reached(&key("a")).await);
}
