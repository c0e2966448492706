//! Schedules, deletions and replacements that race with a firing.

use punctual_ports::{Answer, DeleteOutcome, SaveOutcome};
use punctual_workflows::TimerRequest;

use crate::ledger::reply;
use crate::world::{World, key, ms, secs};

#[tokio::test]
async fn a_timer_moved_before_firing_fires_only_at_its_new_time() {
    let world = World::new().await;
    world.schedule(&key("a"), secs(10)).await;
    world.advance(secs(5)).await;
    let due_at = world.in_(secs(60));
    assert_eq!(
        world.schedule(&key("a"), secs(60)).await,
        SaveOutcome::Rescheduled
    );
    world.advance(secs(120)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].at, due_at);
}

#[tokio::test]
async fn a_timer_rescheduled_while_it_fires_fires_again_even_in_the_same_millisecond() {
    let world = World::new().await;
    let timers = world.timers.clone();
    world.ledger.answers(move |event, _| {
        let (timers, event) = (timers.clone(), event.clone());
        Box::pin(async move {
            // Once: the same key, the same due time, the same millisecond.
            if event.firing_id.registration.registered_at < event.due_at {
                let again = TimerRequest::at(event.key(), event.due_at);
                timers.schedule(vec![again]).await.unwrap();
            }
            Answer::Done
        })
    });
    world.schedule(&key("a"), secs(10)).await;
    world.advance(secs(20)).await;
    assert_eq!(world.ledger.count(&key("a")), 2);
    assert_eq!(world.ledger.firings().len(), 2);
    assert!(world.is_reached(&key("a")).await);
}

#[tokio::test]
async fn a_replaced_timer_fires_again_after_it_has_fired() {
    let world = World::new().await;
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(2)).await;
    assert_eq!(
        world.schedule(&key("a"), secs(1)).await,
        SaveOutcome::AlreadyReached
    );
    let again = TimerRequest::at(key("a"), world.in_(secs(1)));
    let replaced = world.timers.replace(vec![again]).await.unwrap().remove(0);
    assert_eq!(replaced.unwrap(), SaveOutcome::Rescheduled);
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.firings().len(), 2);
}

#[tokio::test]
async fn a_cancelled_timer_never_fires() {
    let world = World::new().await;
    world.schedule(&key("a"), secs(10)).await;
    world.advance(secs(9)).await;
    let cancelled = world.timers.cancel(vec![key("a")]).await.unwrap().remove(0);
    assert_eq!(cancelled.unwrap(), DeleteOutcome::Deleted);
    world.advance(secs(600)).await;
    assert_eq!(world.ledger.seen().len(), 0);
}

#[tokio::test]
async fn a_timer_that_is_firing_cannot_be_cancelled() {
    let world = World::new().await;
    let (timers, outcome) = (world.timers.clone(), std::sync::Arc::default());
    let noted: std::sync::Arc<std::sync::Mutex<Option<DeleteOutcome>>> = outcome;
    let noting = noted.clone();
    world.ledger.answers(move |event, _| {
        let (timers, noting, key) = (timers.clone(), noting.clone(), event.key());
        Box::pin(async move {
            let answer = timers.cancel(vec![key]).await.unwrap().remove(0);
            *noting.lock().unwrap() = Some(answer.unwrap());
            Answer::Done
        })
    });
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(1)).await;
    assert_eq!(*noted.lock().unwrap(), Some(DeleteOutcome::Firing));
    let after = world.timers.cancel(vec![key("a")]).await.unwrap().remove(0);
    assert_eq!(after.unwrap(), DeleteOutcome::AlreadyReached);
}

#[tokio::test]
async fn a_timer_cancelled_and_scheduled_within_a_millisecond_has_another_firing() {
    let world = World::new().await;
    world.ledger.answers(|_, _| reply(Answer::Done));
    world.schedule(&key("a"), ms(0)).await;
    world.timers.cancel(vec![key("a")]).await.unwrap();
    assert_eq!(world.schedule(&key("a"), ms(0)).await, SaveOutcome::Created);
    world.advance(secs(1)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    let registered_at = seen[0].event.firing_id.registration.registered_at;
    assert!(registered_at > seen[0].event.due_at);
}
