//! The request of a call is stored with the call and its attempt, and the command for it without.

use std::time::Duration;

use punctual_adapters_postgres::{PostgresCallStore, SchemaSet};
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{
    CallDetails, CallName, CallStep, ErrorKind, ErrorMeta, Headers, Method, Outcome, RequestSpec,
    ServiceCall, Tags,
};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, MessageMetadata, TenantId, TimerKey,
    Timestamp,
};
use punctual_ports::{
    CallChange, Fingerprint, NewCall, OutboxPort, OutboxRow, ServiceCallPersistencePort,
};
use uuid::Uuid;

use crate::store::InSchema;

const CANARY: &str = "canary-4711";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

fn id(number: u128) -> EnvelopeId {
    EnvelopeId::from_uuid(Uuid::from_u128(number))
}

fn request() -> RequestSpec {
    let headers = vec![("Authorization".to_owned(), CANARY.to_owned())];
    RequestSpec {
        method: Method::Get,
        url: "https://example.com/hook".parse().unwrap(),
        headers: Headers::new(headers).unwrap(),
        body: None,
    }
}

fn envelopes(step: &CallStep, now: i64) -> Vec<MessageEnvelope> {
    let outgoing = step.outgoing.iter().zip(100 + now.unsigned_abs()..);
    outgoing
        .map(|(outgoing, number)| MessageEnvelope {
            id: outgoing.id.unwrap_or_else(|| id(number.into())),
            timestamp: at(now),
            metadata: MessageMetadata {
                correlation_id: None,
                causation_id: Some(outgoing.caused_by),
            },
            message: outgoing.message.clone(),
        })
        .collect()
}

fn key() -> TimerKey {
    TimerKey::named(TenantId::default(), "secret")
}

/// A call that is running from the beginning.
async fn submitted() -> Option<(InSchema, PostgresCallStore)> {
    let schema = InSchema::new(SchemaSet::Shared).await?;
    let store = schema.store.calls().unwrap();
    let details = CallDetails {
        key: key(),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        command_id: id(1),
        name: CallName::new("a call").unwrap(),
        tags: Tags::default(),
        submitted_at: at(1_000),
        due_at: at(1_000),
        request: request(),
    };
    let step = details.accept(id(9), Duration::from_secs(30));
    let new = NewCall {
        outbox: envelopes(&step, 1_000),
        call: step.call,
        id_was_given: true,
        idempotency_key: None,
        fingerprint: Fingerprint([0; 32]),
        listeners: Listeners::Modules,
    };
    assert!(store.submit(vec![new]).await.unwrap()[0].is_ok());
    Some((schema, store))
}

async fn claim(store: &PostgresCallStore, now: i64) -> Vec<OutboxRow> {
    let claimed = OutboxPort::claim(store, at(now), 100, Duration::from_secs(30)).await;
    claimed.unwrap().rows
}

async fn stored(schema: &InSchema, table: &str) -> String {
    let client = schema.outsider.client();
    let rows = format!("SELECT t::text FROM {table} t");
    let rows = client.query_typed(&rows, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect()
}

async fn finish(store: &PostgresCallStore) {
    let found = store.find(vec![key()]).await.unwrap().remove(0).unwrap();
    let ServiceCall::Running(running) = found.call else {
        panic!("it runs");
    };
    let outcome = Outcome::Failed(ErrorMeta::new(ErrorKind::Timeout, "too late"));
    let step = running.finish(outcome, at(5_000), id(3));
    let change = CallChange {
        outbox: envelopes(&step, 5_000),
        call: step.call,
        expected_version: found.version,
        listeners: Listeners::Modules,
    };
    assert!(store.change(vec![change]).await.unwrap()[0].is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_claimed_has_the_request_of_its_call() {
    let Some((schema, store)) = submitted().await else {
        return;
    };
    assert!(!stored(&schema, "outbox").await.contains(CANARY));
    assert!(stored(&schema, "service_calls").await.contains(CANARY));
    for now in [2_000, 60_000] {
        let claimed = claim(&store, now).await;
        assert_eq!(claimed.len(), 1);
        let Message::StartExecution(command) = &claimed[0].envelope.as_ref().unwrap().message
        else {
            panic!("it is the command");
        };
        assert_eq!(command.request_spec, request());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_call_has_ended_is_published_to_nobody_and_no_secret_is_left() {
    let Some((schema, store)) = submitted().await else {
        return;
    };
    assert_eq!(claim(&store, 2_000).await.len(), 1);
    finish(&store).await;
    assert_eq!(claim(&store, 60_000).await, []);
    assert_eq!(store.count(100).await.unwrap(), 0);
    for table in [
        "outbox",
        "service_calls",
        "submissions",
        "http_execution_log",
    ] {
        assert!(!stored(&schema, table).await.contains(CANARY), "{table}");
    }
}
