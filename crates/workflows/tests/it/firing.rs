//! The ordinary life of a timer.

use std::sync::atomic::Ordering;

use punctual_domain::{CorrelationId, TimerData, Timestamp};
use punctual_ports::Answer;
use punctual_workflows::{TimerRequest, WorkerSettings};
use uuid::Uuid;

use crate::ledger::reply;
use crate::world::{World, key, ms, secs};

#[tokio::test]
async fn a_timer_fires_once_at_its_instant_and_not_before() {
    let world = World::new().await;
    let due_at = world.in_(secs(90));
    world.schedule(&key("a"), secs(90)).await;
    world.advance(ms(89_999)).await;
    assert_eq!(world.ledger.seen().len(), 0);
    world.advance(ms(1)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].at, seen[0].event.reached_at), (due_at, due_at));
    assert!(world.is_reached(&key("a")).await);
    world.advance(secs(3_600)).await;
    assert_eq!(world.ledger.seen().len(), 1);
}

#[tokio::test]
async fn the_event_carries_data_correlation_and_no_cause() {
    let world = World::new().await;
    let correlation_id = CorrelationId::from_uuid(Uuid::from_u128(77));
    let data = TimerData::from_json("{\"order\": 1}").unwrap();
    let request = TimerRequest {
        correlation_id: Some(correlation_id),
        data: Some(data.clone()),
        ..TimerRequest::at(key("a"), world.in_(secs(1)))
    };
    world.timers.schedule(vec![request]).await.unwrap();
    world.advance(secs(1)).await;
    let seen = world.ledger.seen().remove(0);
    assert_eq!(seen.event.data, Some(data));
    assert_eq!(seen.envelope.metadata.correlation_id, Some(correlation_id));
    assert_eq!(seen.envelope.metadata.causation_id, None);
    assert_eq!(seen.envelope.timestamp, seen.event.reached_at);
    assert_eq!(
        seen.envelope.deduplication_id(),
        seen.event.firing_id.to_string()
    );
}

#[tokio::test]
async fn what_became_due_while_no_worker_ran_fires_first_at_start() {
    let mut world = World::new().await;
    world.stop();
    world.schedule(&key("late"), secs(1)).await;
    world.advance(secs(3_600)).await;
    world.restart(WorkerSettings::default());
    world.advance(ms(0)).await;
    assert_eq!(world.ledger.count(&key("late")), 1);
    assert_eq!(world.ledger.seen()[0].at, world.now());
}

#[tokio::test]
async fn a_due_time_in_the_past_fires_at_once() {
    let world = World::new().await;
    world.advance(secs(1)).await;
    world.schedule_at(&key("a"), Timestamp::MIN).await;
    world.advance(ms(0)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn many_timers_of_one_instant_all_fire_at_it() {
    let world = World::new().await;
    let due_at = world.in_(secs(10));
    let batch = (0..2_500).map(|n| TimerRequest::at(key(&n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(secs(10)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 2_500);
    assert!(seen.iter().all(|seen| seen.at == due_at));
    assert_eq!(world.ledger.firings().len(), 2_500);
}

#[tokio::test]
async fn a_handler_may_schedule_its_own_timer_again() {
    let world = World::new().await;
    let (timers, clock) = (world.timers.clone(), world.clock.clone());
    world.ledger.answers(move |event, _| {
        let (timers, clock, key) = (timers.clone(), clock.clone(), event.key());
        Box::pin(async move {
            use punctual_ports::ClockPort;
            let next = clock.now().saturating_add(secs(60));
            timers
                .schedule(vec![TimerRequest::at(key, next)])
                .await
                .unwrap();
            Answer::Done
        })
    });
    world.schedule(&key("heartbeat"), secs(60)).await;
    world.advance(secs(600)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 10);
    assert_eq!(
        world.ledger.firings().len(),
        10,
        "each with an id of its own"
    );
    world.ledger.answers(|_, _| reply(Answer::Done));
    world.advance(secs(600)).await;
    assert_eq!(world.ledger.seen().len(), 11);
}

#[tokio::test]
async fn an_idle_worker_asks_the_store_once_a_polling_interval() {
    let world = World::new().await;
    world.schedule(&key("far"), secs(1_000_000)).await;
    world.advance(secs(1)).await;
    let claims = world.count_calls("claim_due");
    let all = world.faults.fired().len();
    world.advance(secs(60)).await;
    assert_eq!(claims.load(Ordering::SeqCst), 12);
    assert_eq!(world.faults.fired().len(), all);
}
