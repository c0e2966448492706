//! Attempts whose calls are in another database: what is deleted there, and what is too old to tell.

use std::time::Duration;

use punctual_adapters_memory::MemoryCallStore;
use punctual_domain::messages::{ServiceCallDeleted, StartExecution};
use punctual_domain::service_call::ErrorKind;
use punctual_domain::{EnvelopeId, Message, MessageEnvelope, MessageMetadata, Timestamp, Topic};
use punctual_ports::{Answer, ExecutionLogPort, MessageHandler};
use punctual_workflows::calls::{AcceptExecutions, CallSettings, DeleteCallAttempts};
use uuid::Uuid;

use super::world::{CallWorld, Outside, call};
use crate::world::{key, secs};

const DAY: Duration = Duration::from_hours(24);
const KEEP: Duration = Duration::from_hours(30 * 24);

/// A process that makes attempts alone; commands come from a test.
async fn execution() -> CallWorld {
    let outside = Outside {
        store: MemoryCallStore::executions_alone(),
        ..Outside::new()
    };
    let mut world = CallWorld::on(outside, CallSettings::default()).await;
    world.process.unsubscribe(Topic::ExecutionCommands);
    world
}

fn accept(world: &CallWorld) -> AcceptExecutions {
    AcceptExecutions::new(&world.process.ports).forgetting_after(KEEP)
}

/// An id that was drawn at an instant, as version 7 has it.
fn drawn_at(at: Timestamp, number: u128) -> EnvelopeId {
    let millis = u128::from(at.as_millis().unsigned_abs()) << 80;
    EnvelopeId::from_uuid(Uuid::from_u128(millis | 0x7 << 76 | 0x8 << 60 | number))
}

/// The command of an attempt, under the id that it was first dispatched with.
fn command(world: &CallWorld, name: &str, id: EnvelopeId) -> MessageEnvelope {
    let call = call(name, world.now());
    let command = StartExecution {
        tenant_id: call.tenant_id,
        service_call_id: call.service_call_id.unwrap(),
        request_spec: call.request,
        timeout_ms: 30_000,
    };
    MessageEnvelope {
        id,
        timestamp: world.now(),
        metadata: MessageMetadata::default(),
        message: command.into(),
    }
}

fn deletion(world: &CallWorld, name: &str) -> MessageEnvelope {
    let key = key(name);
    let event = ServiceCallDeleted {
        tenant_id: key.tenant_id,
        service_call_id: key.service_call_id,
        deleted_at: world.now(),
    };
    MessageEnvelope {
        id: drawn_at(world.now(), 0),
        timestamp: world.now(),
        metadata: MessageMetadata::default(),
        message: event.into(),
    }
}

/// How often the target was asked.
fn requests(world: &CallWorld) -> usize {
    world.outside.http.requests().len()
}

#[tokio::test]
async fn a_command_that_comes_after_the_deletion_of_its_call_starts_nothing() {
    let world = execution().await;
    let (accept, delete) = (
        accept(&world),
        DeleteCallAttempts::new(&world.process.ports),
    );
    let deleted = delete.handle(vec![deletion(&world, "a"), deletion(&world, "b")]);
    assert_eq!(deleted.await, [Answer::Done, Answer::Done]);
    let batch = ["a", "b", "c"].into_iter().zip(1..);
    let batch = batch.map(|(name, number)| command(&world, name, drawn_at(world.now(), number)));
    let answers = accept.handle(batch.collect()).await;
    assert_eq!(answers, vec![Answer::Done; 3]);
    world.advance(secs(60)).await;
    assert_eq!(requests(&world), 1);
    assert_eq!(world.attempts(&key("c")).await.len(), 1);
    // What else is on the topic concerns it not.
    let other = command(&world, "d", drawn_at(world.now(), 9));
    assert_eq!(delete.handle(vec![other]).await, [Answer::Done]);
}

#[tokio::test]
async fn a_command_that_is_older_than_the_memory_of_attempts_is_answered_and_not_carried_out() {
    let world = execution().await;
    let accept = accept(&world);
    let old = drawn_at(world.now().saturating_sub(KEEP + secs(1)), 1);
    let young = drawn_at(world.now().saturating_sub(KEEP.saturating_sub(secs(1))), 2);
    let unknown = EnvelopeId::from_uuid(Uuid::from_u128(4_711));
    let batch = [("old", old), ("young", young), ("unknown", unknown)];
    let batch = batch.map(|(name, id)| command(&world, name, id)).to_vec();
    let seen = world.outside.wire.count("ExecutionFailed");
    let answers = accept.handle(batch).await;
    assert_eq!(answers, vec![Answer::Done; 3]);
    assert_eq!(world.attempts(&key("old")).await, []);
    assert_eq!(world.outside.wire.count("ExecutionFailed"), seen + 1);
    let mut failed = world.outside.wire.of_type("ExecutionFailed");
    match failed.remove(failed.len() - 1).envelope.message {
        Message::ExecutionFailed(event) => {
            assert_eq!(event.execution_id, old);
            assert_eq!(event.error_meta.kind, ErrorKind::Interrupted);
        }
        other => panic!("{other:?}"),
    }
    world.advance(secs(60)).await;
    assert_eq!(requests(&world), 2, "what may be new is made");
}

#[tokio::test]
async fn an_attempt_is_made_once_however_late_its_command_comes_again() {
    let world = execution().await;
    let (accept, id) = (accept(&world), drawn_at(world.now(), 1));
    let first = accept.handle(vec![command(&world, "a", id)]).await;
    assert_eq!(first, [Answer::Done]);
    world.advance(secs(60)).await;
    assert_eq!(requests(&world), 1);
    let (mut succeeded, mut failed) = (0, 0);
    for day in 1..=40 {
        world.advance(DAY).await;
        let before = world.outside.wire.count("ExecutionSucceeded");
        let again = accept.handle(vec![command(&world, "a", id)]).await;
        assert_eq!(again, [Answer::Done], "day {day}");
        world.advance(secs(60)).await;
        match world.outside.wire.count("ExecutionSucceeded") - before {
            0 => failed += 1,
            _ => succeeded += 1,
        }
    }
    assert_eq!(requests(&world), 1);
    assert_eq!(world.outside.store.entries(key("a"), 10).await.unwrap(), []);
    assert!(succeeded >= 30 && failed >= 8, "{succeeded} {failed}");
}
