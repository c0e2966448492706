//! Scheduling by callers and by commands.

use punctual_adapters_memory::faults::Fault;
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, ScheduleTimer, TimerData,
    TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, ConsumerName, EventBusPort, MessageHandler, PortErrorKind, SaveOutcome, Subscribe,
    TimerPersistencePort,
};
use punctual_workflows::{ScheduleTimers, TimerRequest};
use std::sync::Arc;
use uuid::Uuid;

use crate::world::{World, key, secs};

fn command(key: &TimerKey, sent_at: Timestamp, due_at: Timestamp) -> MessageEnvelope {
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(1)),
        timestamp: sent_at,
        metadata: MessageMetadata {
            correlation_id: Some(CorrelationId::from_uuid(Uuid::from_u128(7))),
            causation_id: None,
        },
        message: ScheduleTimer {
            tenant_id: key.tenant_id.clone(),
            service_call_id: key.service_call_id,
            due_at,
            data: Some(TimerData::from_json("{\"order\":1}").unwrap()),
        }
        .into(),
    }
}

#[tokio::test]
async fn a_command_from_the_bus_becomes_a_timer_that_fires() {
    let world = World::new().await;
    let request = Subscribe {
        topic: Topic::TimerCommands,
        consumer: ConsumerName::new("timer"),
        max_batch: 100,
        handler: Arc::new(world.timers.clone()),
    };
    let _subscription = world.bus.subscribe(request).await.unwrap();
    let due_at = world.in_(secs(30));
    let sent = command(&key("a"), world.now(), due_at);
    let published = world.bus.publish(vec![sent.clone(), sent]).await.unwrap();
    assert!(published.iter().all(Result::is_ok));
    world.advance(secs(60)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].at, due_at);
    assert_eq!(
        seen[0].event.data.as_ref().unwrap().as_json(),
        "{\"order\":1}"
    );
    let correlation_id = CorrelationId::from_uuid(Uuid::from_u128(7));
    assert_eq!(
        seen[0].envelope.metadata.correlation_id,
        Some(correlation_id)
    );
}

#[tokio::test]
async fn commands_in_any_order_and_number_end_in_one_row_and_one_firing() {
    let world = World::new().await;
    let now = world.now();
    let sent = |age: u64, due_in: u64| {
        command(
            &key("a"),
            now.saturating_sub(secs(age)),
            now.saturating_add(secs(due_in)),
        )
    };
    for batch in [
        vec![sent(1, 50), sent(3, 10), sent(2, 20)],
        vec![sent(2, 20), sent(1, 50), sent(1, 50), sent(3, 10)],
    ] {
        let answers = world.timers.handle(batch).await;
        assert!(answers.iter().all(|answer| *answer == Answer::Done));
    }
    world.advance(secs(100)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].at, now.saturating_add(secs(50)));
}

#[tokio::test]
async fn a_command_is_answered_done_only_after_it_is_stored() {
    for fault in [
        Fault::FailBefore(PortErrorKind::Unavailable),
        Fault::FailBefore(PortErrorKind::StorageFull),
        Fault::FailBefore(PortErrorKind::Broken),
        Fault::FailAfter(PortErrorKind::Unavailable),
    ] {
        let world = World::new().await;
        world.faults.at_call_of("save", 1, fault);
        let sent = command(&key("a"), world.now(), world.in_(secs(30)));
        let answers = world.timers.handle(vec![sent.clone()]).await;
        assert!(
            matches!(answers[0], Answer::Pause { .. }),
            "{fault:?}: {answers:?}"
        );
        let again = world.timers.handle(vec![sent]).await;
        assert_eq!(again, [Answer::Done]);
        assert!(world.store.find(key("a")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_is_not_a_command_is_poison_and_spoils_no_other() {
    let world = World::new().await;
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(1)).await;
    let event = world.ledger.seen()[0].envelope.clone();
    let good = command(&key("b"), world.now(), world.in_(secs(30)));
    let answers = world.timers.handle(vec![event, good]).await;
    assert!(matches!(&answers[0], Answer::Poison { reason } if reason.contains("DueTimeReached")));
    assert_eq!(answers[1], Answer::Done);
}

#[tokio::test]
async fn a_timer_of_no_request_gets_a_correlation_of_its_own() {
    let world = World::new().await;
    world.schedule(&key("a"), secs(1)).await;
    world.schedule(&key("b"), secs(1)).await;
    let mut correlations = Vec::new();
    for name in ["a", "b"] {
        let found = world.store.find(key(name)).await.unwrap().unwrap();
        correlations.push(found.timer().correlation_id);
    }
    assert_ne!(correlations[0], correlations[1]);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_refused_whole_and_says_so() {
    let world = World::new().await;
    let too_many = ScheduleTimers::MAX_BATCH + 1;
    let batch = vec![TimerRequest::at(key("a"), world.now()); too_many];
    let error = world.timers.schedule(batch).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to schedule timers: 10001 in one call: at most 10000 are taken"
    );
    assert!(!error.is_retryable());
    assert!(world.store.find(key("a")).await.unwrap().is_none());
    assert!(world.timers.cancel(vec![key("a"); too_many]).await.is_err());
}

#[tokio::test]
async fn a_schedule_whose_answer_was_lost_fires_on_time_all_the_same() {
    let world = World::new().await;
    world.advance(secs(1)).await;
    world
        .faults
        .at_call_of("save", 1, Fault::FailAfter(PortErrorKind::Unavailable));
    let due_at = world.in_(secs(2));
    let request = TimerRequest::at(key("a"), due_at);
    assert!(world.timers.schedule(vec![request]).await.is_err());
    world.advance(secs(3)).await;
    assert_eq!(world.ledger.seen()[0].at, due_at);
    assert_eq!(
        world.schedule(&key("a"), secs(9)).await,
        SaveOutcome::AlreadyReached
    );
}
