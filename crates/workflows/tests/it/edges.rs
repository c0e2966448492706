//! The edges of the worker's promises, one broken line of code away from being lost.

use punctual_adapters_memory::faults::Fault;
use punctual_domain::TimerEntry;
use punctual_ports::{Answer, ClockPort, PortErrorKind, TimerPersistencePort, TimerQueuePort};
use punctual_workflows::{TimerRequest, WorkerSettings};

use crate::ledger::{poison, reply, retry};
use crate::world::{World, key, key_of, ms, rare_polls, secs};

#[tokio::test]
async fn a_save_wakes_the_worker_after_it_was_stored_and_not_before() {
    let world = World::with(rare_polls()).await;
    world.advance(secs(1)).await;
    world
        .faults
        .at_call_of("save", 1, Fault::DelayBefore(secs(5)));
    let stored_at = world.in_(secs(5));
    let request = TimerRequest::at(key("a"), world.in_(secs(1)));
    let (saved, ()) = tokio::join!(
        world.timers.schedule(vec![request]),
        world.advance(secs(20))
    );
    saved.unwrap();
    world.advance(secs(20)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].at >= stored_at && seen[0].at.since(stored_at) <= secs(15));
}

#[tokio::test]
async fn an_outcome_is_settled_under_the_current_claim_of_its_timer() {
    let world = World::new().await;
    world.ledger.answers(|_, _| reply(poison()));
    let (until, clock) = (world.in_(secs(60)), world.clock.clone());
    world.faults.decide(move |call| {
        let fails =
            call.operation == "renew" || (call.operation == "dead_letter" && clock.now() < until);
        fails.then_some(Fault::FailBefore(PortErrorKind::Busy))
    });
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(200)).await;
    assert!(world.is_reached(&key("a")).await);
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn a_broken_store_is_not_forgotten_for_a_later_smaller_failure() {
    let world = World::new().await;
    world.ledger.answers(|event, _| {
        reply(if event.key() == key("retry") {
            retry()
        } else {
            Answer::Done
        })
    });
    let broken = Fault::FailBefore(PortErrorKind::Broken);
    world.faults.at_call_of("mark_fired", 1, broken);
    let busy = Fault::FailBefore(PortErrorKind::Busy);
    world.faults.at_call_of("retry_later", 1, busy);
    let due_at = world.in_(secs(1));
    let batch = ["retry", "good"].map(|name| TimerRequest::at(key(name), due_at));
    world.timers.schedule(batch.to_vec()).await.unwrap();
    world.advance(secs(1)).await;
    let stopped = world.worker.stopped().unwrap();
    assert_eq!(stopped.cause.operation(), "mark_fired");
}

#[tokio::test]
async fn waiting_claims_are_not_published_on_a_bus_that_fails() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 1,
        ..WorkerSettings::default()
    })
    .await;
    world.faults.decide(|call| {
        let away = Fault::FailBefore(PortErrorKind::Unavailable);
        (call.operation == "publish").then_some(away)
    });
    let due_at = world.in_(secs(1));
    let batch = (0..50).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(1) + ms(50)).await;
    let fired = world.faults.fired();
    let publishes = fired.iter().filter(|(call, _)| call.operation == "publish");
    assert_eq!(publishes.count(), 1);
    let free = world
        .store
        .claim_due(world.now(), 100, secs(30))
        .await
        .unwrap();
    assert_eq!(free.claims.len(), 50);
}

#[tokio::test]
async fn a_bus_that_was_away_is_tried_with_a_few_at_a_time() {
    let world = World::new().await;
    world.faults.decide(|call| {
        let away = Fault::FailBefore(PortErrorKind::Unavailable);
        (call.operation == "publish").then_some(away)
    });
    let due_at = world.in_(secs(1));
    let batch = (0..500).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(1)).await;
    let first = world.faults.fired().len();
    world.advance(secs(120)).await;
    let tried = world.faults.fired().len() - first;
    assert!(
        (8..=35 * 8).contains(&tried),
        "{tried} publishes in two minutes"
    );
}

#[tokio::test]
async fn a_dead_letter_s_timer_was_not_reached_before_its_due_time() {
    let world = World::new().await;
    let (due_at, clock) = (world.in_(secs(5)), world.clock.clone());
    world.ledger.answers(move |_, _| {
        clock.set_wall(due_at.saturating_sub(secs(60)));
        reply(poison())
    });
    world.schedule(&key("a"), secs(5)).await;
    world.advance(secs(6)).await;
    let found = world.store.find(key("a")).await.unwrap();
    let Some(TimerEntry::Reached { timer: reached, .. }) = found else {
        panic!("{found:?} should be reached");
    };
    assert_eq!(reached.reached_at(), due_at);
}

#[tokio::test]
async fn a_late_event_says_when_it_was_noticed() {
    let mut world = World::new().await;
    world.stop();
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(60)).await;
    world.restart(WorkerSettings::default());
    world.advance(ms(0)).await;
    let seen = world.ledger.seen().remove(0);
    assert_eq!(seen.envelope.timestamp, world.now());
    assert_eq!(seen.event.reached_at, world.now());
}

#[tokio::test]
async fn a_worker_with_room_for_a_few_timers_fires_them_all() {
    for batch_size in [1, 7, 8, 9] {
        let world = World::with(WorkerSettings {
            batch_size,
            max_in_flight: batch_size,
            ..rare_polls()
        })
        .await;
        let due_at = world.in_(secs(1));
        let batch = (0..20).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
        world.timers.schedule(batch.collect()).await.unwrap();
        world.advance(secs(2)).await;
        assert_eq!(world.ledger.seen().len(), 20, "{batch_size}");
    }
}

#[tokio::test]
async fn no_more_is_published_at_once_than_the_settings_say() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 4,
        ..rare_polls()
    })
    .await;
    let clock = world.clock.clone();
    world.ledger.answers(move |_, _| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep_for(secs(10)).await;
            Answer::Done
        })
    });
    let due_at = world.in_(secs(1));
    let batch = (0..30).map(|n| {
        let key = key_of(&format!("tenant-{}", n % 10), &n.to_string());
        TimerRequest::at(key, due_at)
    });
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.seen().len(), 4);
}

#[tokio::test]
async fn a_batch_wakes_the_worker_for_its_earliest_timer() {
    for fails in [false, true] {
        let world = World::with(rare_polls()).await;
        world.advance(secs(1)).await;
        if fails {
            let lost = Fault::FailAfter(PortErrorKind::Unavailable);
            world.faults.at_call_of("save", 1, lost);
        }
        let dues = [30, 10, 20].map(|n| world.in_(secs(n)));
        let batch = (0..).zip(dues).map(|(n, due_at)| {
            let n: u32 = n;
            TimerRequest::at(key(&n.to_string()), due_at)
        });
        assert_eq!(world.timers.schedule(batch.collect()).await.is_err(), fails);
        world.advance(secs(40)).await;
        let at: Vec<_> = world.ledger.seen().iter().map(|seen| seen.at).collect();
        assert_eq!(at, [dues[1], dues[2], dues[0]]);
    }
}
