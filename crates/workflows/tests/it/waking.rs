//! When the worker wakes: at the next due instant, on an earlier save, by polling, and when the
//! clock is set.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use punctual_adapters_memory::faults::Fault;
use punctual_domain::{CorrelationId, DeleteOutcome, ScheduleOrigin};
use punctual_ports::{SaveTimer, TimerPersistencePort};
use punctual_workflows::{TimerRequest, WorkerSettings};
use uuid::Uuid;

use crate::world::{World, key, ms, rare_polls, secs};

#[tokio::test]
async fn an_earlier_save_wakes_the_worker() {
    let world = World::with(rare_polls()).await;
    world.schedule(&key("later"), secs(600)).await;
    world.advance(secs(1)).await;
    let due_at = world.in_(ms(250));
    world.schedule(&key("sooner"), ms(250)).await;
    world.advance(secs(1)).await;
    assert_eq!(world.ledger.seen()[0].at, due_at);
}

#[tokio::test]
async fn a_save_during_a_poll_wakes_the_worker() {
    let world = World::with(rare_polls()).await;
    world.advance(secs(1)).await;
    world.schedule(&key("far"), secs(1_000)).await;
    // The poll sees the far one, and a nearer one is saved before its result arrives.
    world
        .faults
        .at_call_of("claim_due", 2, Fault::DelayAfter(secs(10)));
    world.schedule(&key("first"), secs(5)).await;
    world.advance(secs(5)).await;
    let due_at = world.in_(secs(30));
    world.schedule(&key("second"), secs(30)).await;
    world.advance(secs(60)).await;
    let second = world
        .ledger
        .seen()
        .into_iter()
        .find(|s| s.event.key() == key("second"));
    assert_eq!(second.unwrap().at, due_at);
}

#[tokio::test]
async fn what_another_process_saved_is_found_by_polling() {
    let world = World::new().await;
    world.advance(secs(1)).await;
    let foreign = SaveTimer {
        key: key("foreign"),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: world.in_(secs(7)),
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let due_at = foreign.due_at;
    world.store.save(vec![foreign], world.now()).await.unwrap();
    world.advance(secs(10)).await;
    assert_eq!(
        world.ledger.seen()[0].at,
        due_at,
        "seen by the poll before, fired on time"
    );
}

#[tokio::test]
async fn a_clock_set_forward_makes_timers_due() {
    let world = World::with(rare_polls()).await;
    world.schedule(&key("a"), Duration::from_mins(30)).await;
    world.advance(secs(1)).await;
    world.clock.set_wall(world.in_(Duration::from_hours(2)));
    world.advance(secs(1)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn a_clock_set_back_delays_timers_and_fires_none_early() {
    let world = World::with(rare_polls()).await;
    let due_at = world.in_(secs(10));
    world.schedule(&key("a"), secs(10)).await;
    world.advance(secs(9)).await;
    world
        .clock
        .set_wall(due_at.saturating_sub(Duration::from_hours(1)));
    let claims = world.count_calls("claim_due");
    world.advance(Duration::from_mins(59)).await;
    assert_eq!(world.ledger.seen().len(), 0);
    assert!(claims.load(Ordering::SeqCst) <= 2, "no busy loop");
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(world.ledger.seen()[0].at, due_at);
}

#[tokio::test]
async fn polling_goes_on_although_the_clock_was_set_back() {
    let world = World::new().await;
    world.advance(secs(1)).await;
    world
        .clock
        .set_wall(world.now().saturating_sub(Duration::from_hours(24)));
    let claims = world.count_calls("claim_due");
    world.advance(secs(60)).await;
    assert_eq!(claims.load(Ordering::SeqCst), 12);
}

#[tokio::test]
async fn a_clock_set_back_between_claim_and_event_holds_the_event_until_it_is_due_again() {
    let world = World::new().await;
    let due_at = world.in_(secs(5));
    world.schedule(&key("a"), secs(5)).await;
    let clock = world.clock.clone();
    world.faults.decide(move |call| {
        (call.operation == "claim_due" && call.number_of_operation == 2).then(|| {
            clock.set_wall(due_at.saturating_sub(secs(60)));
            Fault::DelayAfter(secs(1))
        })
    });
    world.advance(secs(60)).await;
    assert_eq!(world.ledger.seen().len(), 0);
    world.advance(secs(10)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].at, seen[0].event.reached_at), (due_at, due_at));
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn a_timer_claimed_during_a_glitch_of_the_clock_waits_for_its_time() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 1,
        ..WorkerSettings::default()
    })
    .await;
    let clock = world.clock.clone();
    world.ledger.answers(move |_, _| {
        let clock = clock.clone();
        Box::pin(async move {
            punctual_ports::ClockPort::sleep_for(&clock, secs(1)).await;
            punctual_ports::Answer::Done
        })
    });
    world.schedule(&key("a"), secs(1)).await;
    world.schedule(&key("b"), Duration::from_mins(30)).await;
    // For as long as a claim waits for a slot before its tenant counts as saturated.
    world.advance(ms(1_980)).await;
    world.clock.set_wall(world.in_(Duration::from_hours(1)));
    world.advance(ms(10)).await;
    let mut cancelled = world.timers.cancel(vec![key("b")]).await.unwrap();
    let cancelled = cancelled.remove(0).unwrap();
    assert_eq!(cancelled, DeleteOutcome::Firing, "it waits for the slot");
    world
        .clock
        .set_wall(world.now().saturating_sub(Duration::from_hours(1)));
    world.advance(Duration::from_mins(40)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.at >= seen.event.due_at));
}

#[tokio::test]
async fn a_failed_poll_is_retried_long_before_the_next_interval() {
    let world = World::with(rare_polls()).await;
    world.advance(secs(1)).await;
    world.faults.at_call_of(
        "claim_due",
        2,
        Fault::FailBefore(punctual_ports::PortErrorKind::Busy),
    );
    world.schedule(&key("a"), secs(5)).await;
    world.advance(secs(6)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn a_schedule_whose_caller_dropped_it_fires_on_time() {
    // Before the store has it, and after.
    for fault in [Fault::DelayBefore(secs(1)), Fault::DelayAfter(secs(1))] {
        let world = World::with(rare_polls()).await;
        world.advance(secs(1)).await;
        world.faults.at_call_of("save", 1, fault);
        let due_at = world.in_(secs(3));
        let request = TimerRequest::at(key("a"), due_at);
        let mut scheduling = Box::pin(world.timers.schedule(vec![request]));
        assert!((&mut scheduling).now_or_never().is_none());
        drop(scheduling);
        world.advance(secs(10)).await;
        let seen = world.ledger.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].at, due_at);
    }
}
