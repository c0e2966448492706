//! Timers that belong to no call, beside those of calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::faults::Fault;
use punctual_domain::{
    CorrelationId, Message, MessageEnvelope, ScheduleOrigin, ServiceCallId, TimerEntry, TimerKey,
    Topic,
};
use punctual_ports::{
    Answer, DeadLetterPort, MessageHandler, PortErrorKind, SaveTimer, TimerPersistencePort,
};
use punctual_workflows::calls::{ForwardStandaloneTimers, RejectStandaloneTimers};

use uuid::Uuid;

use super::wire::Fate;
use super::world::{CallWorld, call};
use crate::world::{key, secs};

/// Notes what it is told, and answers as it is asked to.
#[derive(Default)]
struct Listener {
    heard: Mutex<Vec<ServiceCallId>>,
    refuses: Mutex<bool>,
}

#[async_trait]
impl MessageHandler for Listener {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let ids = batch.iter().map(|it| it.message.service_call_id());
        self.heard.lock().unwrap().extend(ids);
        let reason = || "not now".to_owned();
        let answer = if *self.refuses.lock().unwrap() {
            Answer::RetryLater { reason: reason() }
        } else {
            Answer::Done
        };
        vec![answer; batch.len()]
    }
}

async fn told(world: &mut CallWorld, whom: Arc<dyn MessageHandler>) {
    let tell = Arc::new(ForwardStandaloneTimers::new(&world.process.ports, whom));
    let outside = world.outside.clone();
    world
        .process
        .subscribe(&outside, Topic::TimerEvents, "others", tell)
        .await;
}

async fn schedule(world: &CallWorld, key: TimerKey) {
    let (timers, now) = (&world.outside.timers, world.now());
    let timer = SaveTimer {
        key,
        correlation_id: CorrelationId::from_uuid(Uuid::from_u128(1)),
        due_at: now,
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let saved = timers.save(vec![timer], now).await.unwrap();
    assert!(saved.iter().all(Result::is_ok), "{saved:?}");
}

async fn is_reached(world: &CallWorld, key: &TimerKey) -> bool {
    let found = world.outside.timers.find(key.clone()).await.unwrap();
    matches!(found, Some(TimerEntry::Reached { .. }))
}

#[tokio::test]
async fn whoever_is_told_of_other_timers_hears_those_of_no_call_and_no_others() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    told(&mut world, listener.clone()).await;
    world.submit(call("a", world.in_(secs(1)))).await;
    schedule(&world, key("nobody's")).await;
    world.advance(secs(10)).await;
    let heard = listener.heard.lock().unwrap().clone();
    assert_eq!(heard, [key("nobody's").service_call_id]);
    assert_eq!(world.outside.http.requests().len(), 1);
    assert!(is_reached(&world, &key("nobody's")).await);
}

#[tokio::test]
async fn the_timer_of_a_deleted_call_is_told_to_nobody() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    told(&mut world, listener.clone()).await;
    let submitted = call("gone", world.in_(Duration::from_hours(1)));
    world.submit(submitted).await;
    world.settle().await;
    let gone = key("gone");
    world
        .process
        .submit
        .delete(gone.clone(), None)
        .await
        .unwrap();
    world.settle().await;
    world.advance(secs(1)).await;
    // As in a file of its own that has not heard of the deletion.
    schedule(&world, gone.clone()).await;
    world.advance(secs(10)).await;
    assert!(is_reached(&world, &gone).await);
    assert!(listener.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_timer_that_is_registered_after_a_deletion_outlives_the_event_of_it() {
    let world = CallWorld::new().await;
    let submitted = call("gone", world.in_(Duration::from_hours(1)));
    world.submit(submitted).await;
    world.settle().await;
    let gone = key("gone");
    world.outside.wire.decides(|envelope| {
        let is_deletion = matches!(envelope.message, Message::ServiceCallDeleted(_));
        if is_deletion {
            Fate::Held
        } else {
            Fate::Delivered(1)
        }
    });
    let delete = &world.process.submit;
    delete.delete(gone.clone(), None).await.unwrap();
    world.advance(secs(1)).await;
    schedule(&world, gone.clone()).await;
    let late = world.outside.wire.take_held();
    assert_eq!(late.len(), 1);
    world.outside.wire.deliver(late).await.unwrap();
    let found = world.outside.timers.find(gone.clone()).await.unwrap();
    assert!(found.is_some(), "it is another timer");
}

#[tokio::test]
async fn what_the_listener_does_not_take_is_not_marked_and_comes_again() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    *listener.refuses.lock().unwrap() = true;
    told(&mut world, listener.clone()).await;
    schedule(&world, key("x")).await;
    world.advance(secs(6)).await;
    assert!(!is_reached(&world, &key("x")).await);
    *listener.refuses.lock().unwrap() = false;
    world.advance(Duration::from_mins(1)).await;
    assert!(is_reached(&world, &key("x")).await);
    assert!(listener.heard.lock().unwrap().len() > 1);
}

#[tokio::test]
async fn while_it_is_not_known_whose_a_timer_is_it_waits() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    told(&mut world, listener.clone()).await;
    world.process.faults.at_call_of(
        "was_submitted",
        1,
        Fault::FailBefore(PortErrorKind::Unavailable),
    );
    schedule(&world, key("x")).await;
    world.advance(Duration::from_mins(1)).await;
    assert!(is_reached(&world, &key("x")).await);
    assert_eq!(listener.heard.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_timer_that_nobody_can_be_told_of_is_a_dead_letter() {
    let mut world = CallWorld::new().await;
    told(&mut world, Arc::new(RejectStandaloneTimers)).await;
    schedule(&world, key("x")).await;
    world.advance(secs(10)).await;
    let dead_letters = world.outside.timers.list(None, 10).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
    let reason = &dead_letters[0].dead_letter.reason;
    assert!(reason.contains("belongs to no service call"), "{reason}");
}
