//! Standalone timers, beside those of calls.

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

/// Records the messages it receives, and refuses them if it is set to.
#[derive(Default)]
struct Listener {
    received: Mutex<Vec<ServiceCallId>>,
    refuses: Mutex<bool>,
}

#[async_trait]
impl MessageHandler for Listener {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let ids = batch.iter().map(|it| it.message.service_call_id());
        self.received.lock().unwrap().extend(ids);
        let reason = || "not now".to_owned();
        let answer = if *self.refuses.lock().unwrap() {
            Answer::RetryLater { reason: reason() }
        } else {
            Answer::Done
        };
        vec![answer; batch.len()]
    }
}

async fn forward_to(world: &mut CallWorld, handler: Arc<dyn MessageHandler>) {
    let forward = Arc::new(ForwardStandaloneTimers::new(&world.process.ports, handler));
    let outside = world.outside.clone();
    world
        .process
        .subscribe(&outside, Topic::TimerEvents, "others", forward)
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
async fn only_timers_without_a_call_are_forwarded() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    forward_to(&mut world, listener.clone()).await;
    world.submit(call("a", world.in_(secs(1)))).await;
    schedule(&world, key("standalone")).await;
    world.advance(secs(10)).await;
    let received = listener.received.lock().unwrap().clone();
    assert_eq!(received, [key("standalone").service_call_id]);
    assert_eq!(world.outside.http.requests().len(), 1);
    assert!(is_reached(&world, &key("standalone")).await);
}

#[tokio::test]
async fn the_timer_of_a_deleted_call_is_not_forwarded() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    forward_to(&mut world, listener.clone()).await;
    let submitted = call("deleted", world.in_(Duration::from_hours(1)));
    world.submit(submitted).await;
    world.settle().await;
    let deleted = key("deleted");
    world
        .process
        .submit
        .delete(deleted.clone(), None)
        .await
        .unwrap();
    world.settle().await;
    world.advance(secs(1)).await;
    // As in a file of its own that has not received the deletion.
    schedule(&world, deleted.clone()).await;
    world.advance(secs(10)).await;
    assert!(is_reached(&world, &deleted).await);
    assert!(listener.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_timer_that_is_registered_after_a_deletion_outlives_the_event_of_it() {
    let world = CallWorld::new().await;
    let submitted = call("deleted", world.in_(Duration::from_hours(1)));
    world.submit(submitted).await;
    world.settle().await;
    let deleted = key("deleted");
    world.outside.wire.decides(|envelope| {
        let is_deletion = matches!(envelope.message, Message::ServiceCallDeleted(_));
        if is_deletion {
            Fate::Delayed
        } else {
            Fate::Delivered(1)
        }
    });
    let delete = &world.process.submit;
    delete.delete(deleted.clone(), None).await.unwrap();
    world.advance(secs(1)).await;
    schedule(&world, deleted.clone()).await;
    let late = world.outside.wire.take_delayed();
    assert_eq!(late.len(), 1);
    world.outside.wire.deliver(late).await.unwrap();
    let found = world.outside.timers.find(deleted.clone()).await.unwrap();
    assert!(found.is_some(), "it is another timer");
}

#[tokio::test]
async fn a_timer_that_the_listener_refuses_is_not_marked_and_is_retried() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    *listener.refuses.lock().unwrap() = true;
    forward_to(&mut world, listener.clone()).await;
    schedule(&world, key("x")).await;
    world.advance(secs(6)).await;
    assert!(!is_reached(&world, &key("x")).await);
    *listener.refuses.lock().unwrap() = false;
    world.advance(Duration::from_mins(1)).await;
    assert!(is_reached(&world, &key("x")).await);
    assert!(listener.received.lock().unwrap().len() > 1);
}

#[tokio::test]
async fn a_timer_waits_while_calls_cannot_be_read() {
    let mut world = CallWorld::new().await;
    let listener = Arc::new(Listener::default());
    forward_to(&mut world, listener.clone()).await;
    world.process.faults.at_call_of(
        "was_submitted",
        1,
        Fault::FailBefore(PortErrorKind::Unavailable),
    );
    schedule(&world, key("x")).await;
    world.advance(Duration::from_mins(1)).await;
    assert!(is_reached(&world, &key("x")).await);
    assert_eq!(listener.received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_standalone_timer_without_a_subscriber_is_a_dead_letter() {
    let mut world = CallWorld::new().await;
    forward_to(&mut world, Arc::new(RejectStandaloneTimers)).await;
    schedule(&world, key("x")).await;
    world.advance(secs(10)).await;
    let dead_letters = world.outside.timers.list(None, 10).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
    let reason = &dead_letters[0].dead_letter.reason;
    assert!(reason.contains("belongs to no service call"), "{reason}");
}
