//! Messages as other programs and other versions write them: with less than ours, or with more.

use punctual_domain::messages::StartExecution;
use punctual_domain::service_call::{CallStatus, Outcome, ServiceCall};
use punctual_domain::{EnvelopeId, Message, MessageEnvelope, ServiceCallId, TenantId, TimerKey};
use punctual_ports::PublishOutcome;
use serde_json::{Value, json};
use uuid::Uuid;

use super::world::{CallWorld, call};
use crate::world::{key, ms, secs};

fn id(n: u128) -> EnvelopeId {
    EnvelopeId::from_uuid(Uuid::from_u128(n))
}

fn read(envelope: &Value) -> MessageEnvelope {
    MessageEnvelope::from_json(envelope.to_string().as_bytes()).unwrap()
}

/// A message of a tenant, as bytes would say it.
fn message(world: &CallWorld, n: u128, type_name: &str, payload: &Value) -> MessageEnvelope {
    read(&json!({
        "id": id(n), "type": type_name, "tenantId": payload["tenantId"],
        "timestampMs": world.now().as_millis(), "payload": payload,
    }))
}

/// A submission without an id, and with a key if it is given.
fn submission(world: &CallWorld, tenant: &str, idempotency_key: Option<&str>) -> Value {
    json!({
        "tenantId": tenant, "name": "n", "dueAt": world.in_(secs(5)),
        "requestSpec": {"method": "GET", "url": "https://target.example/n"},
        "idempotencyKey": idempotency_key,
    })
}

async fn deliver(world: &CallWorld, envelope: MessageEnvelope) -> PublishOutcome {
    let answers = world.outside.wire.deliver(vec![envelope]).await.unwrap();
    answers.into_iter().next().unwrap().unwrap()
}

async fn is_accepted(world: &CallWorld, n: u128, payload: &Value) {
    let command = message(world, n, "SubmitServiceCall", payload);
    assert_eq!(deliver(world, command).await, PublishOutcome::Accepted);
}

#[tokio::test]
async fn a_command_without_an_id_is_one_call_however_often_it_is_delivered() {
    let world = CallWorld::new().await;
    let payload = submission(&world, "tenant-a", None);
    for _ in 0..3 {
        is_accepted(&world, 1, &payload).await;
    }
    let tenant_id = TenantId::new("tenant-a").unwrap();
    let drawn = ServiceCallId::drawn_from_message(&tenant_id, id(1));
    let call = TimerKey::new(tenant_id, drawn);
    assert_eq!(world.status(&call).await, Some(CallStatus::Scheduled));
    // Another command with the same content is another call.
    is_accepted(&world, 2, &payload).await;
    world.advance(secs(6)).await;
    is_accepted(&world, 1, &payload).await;
    world.advance(secs(6)).await;
    assert_eq!(world.status(&call).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 2);
}

#[tokio::test]
async fn commands_without_an_id_and_with_one_key_are_one_call_of_their_tenant() {
    let world = CallWorld::new().await;
    let payload = submission(&world, "tenant-a", Some("k"));
    for n in [1, 1, 2] {
        is_accepted(&world, n, &payload).await;
    }
    is_accepted(&world, 3, &submission(&world, "tenant-b", Some("k"))).await;
    let mut other = payload.clone();
    other["name"] = json!("something else");
    let conflict = deliver(&world, message(&world, 4, "SubmitServiceCall", &other)).await;
    assert!(matches!(conflict, PublishOutcome::Refused { .. }));
    world.advance(secs(6)).await;
    assert_eq!(world.outside.wire.count("ServiceCallSubmitted"), 2);
    assert_eq!(world.outside.http.requests().len(), 2);
}

#[tokio::test]
async fn a_command_without_an_id_repeats_what_was_submitted_under_its_key_before() {
    let world = CallWorld::new().await;
    let payload = submission(&world, "tenant-a", Some("k"));
    let mut before = payload.clone();
    before["serviceCallId"] = json!(key("a").service_call_id);
    is_accepted(&world, 1, &before).await;
    is_accepted(&world, 2, &payload).await;
    world.advance(secs(6)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn the_envelope_may_name_the_call_in_place_of_the_command() {
    let world = CallWorld::new().await;
    let payload = submission(&world, "tenant-a", Some("k"));
    let mut command =
        serde_json::to_value(message(&world, 1, "SubmitServiceCall", &payload)).unwrap();
    command["aggregateId"] = json!(key("a").service_call_id);
    command["payload"]
        .as_object_mut()
        .unwrap()
        .remove("serviceCallId");
    assert_eq!(
        deliver(&world, read(&command)).await,
        PublishOutcome::Accepted
    );
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Scheduled));
}

#[tokio::test]
async fn an_event_of_another_timer_with_nothing_but_its_key_starts_the_call_and_never_early() {
    let world = CallWorld::new().await;
    world.outside.wire.loses(&["DueTimeReached"]);
    world.submit(call("a", world.in_(secs(5)))).await;
    let key = key("a");
    let payload = json!({"tenantId": key.tenant_id, "serviceCallId": key.service_call_id});
    world.advance(ms(4_999)).await;
    deliver(&world, message(&world, 1, "DueTimeReached", &payload)).await;
    world.settle().await;
    assert_eq!(world.status(&key).await, Some(CallStatus::Scheduled));
    world.advance(ms(1)).await;
    for _ in 0..2 {
        deliver(&world, message(&world, 2, "DueTimeReached", &payload)).await;
        world.settle().await;
    }
    assert_eq!(world.status(&key).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_result_of_another_version_ends_its_call_in_its_own_words() {
    let world = CallWorld::new().await;
    world.outside.wire.loses(&["StartExecution"]);
    for (name, type_name, field, meta) in [
        (
            "a",
            "ExecutionFailed",
            "errorMeta",
            json!({"kind": "QuotaExceeded", "message": "no"}),
        ),
        (
            "b",
            "ExecutionSucceeded",
            "responseMeta",
            json!({"status": 204}),
        ),
    ] {
        world.submit(call(name, world.now())).await;
        world.settle().await;
        let key = key(name);
        let dispatched = world.outside.wire.of_type("StartExecution");
        let dispatched = dispatched.last().unwrap().envelope.clone();
        assert!(matches!(
            &dispatched.message,
            Message::StartExecution(StartExecution { service_call_id, .. })
                if *service_call_id == key.service_call_id
        ));
        let payload = json!({
            "tenantId": key.tenant_id, "serviceCallId": key.service_call_id,
            "executionId": dispatched.id, "finishedAt": world.now(), field: meta,
        });
        deliver(&world, message(&world, 1, type_name, &payload)).await;
        world.settle().await;
        let Some(ServiceCall::Finished(call)) = world.find(&key).await else {
            panic!("{name} has no end");
        };
        match call.outcome() {
            Outcome::Failed(error) => assert_eq!(error.kind.as_str(), "QuotaExceeded"),
            Outcome::Succeeded(response) => {
                assert_eq!((response.status, response.latency_ms), (204, 0));
            }
        }
    }
    let failed = world.outside.wire.of_type("ServiceCallFailed");
    let json = serde_json::to_value(&failed[0].envelope).unwrap();
    assert_eq!(json["payload"]["errorMeta"]["kind"], "QuotaExceeded");
}
