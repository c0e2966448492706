//! Calls on a file beyond the contract: roles, secrets left in rows, and rows of other programs.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_adapters_sqlite::{
    OpenError, Role, SchemaSet, SqliteCallStore, SqliteSettings, SqliteTimerStore,
};
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::call::{Outgoing, Start};
use punctual_domain::service_call::{
    CallDetails, CallName, CallStep, Outcome, RequestSpec, ResponseMeta, ServiceCall, Tags,
};
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, ServiceCallId, TenantId, TimerKey,
    Timestamp,
};
use punctual_ports::{
    AcceptOutcome, CallChange, CallDeletion, CallPageQuery, ChangeOutcome, ClaimedExecution,
    Execution, ExecutionKey, ExecutionLogPort, ExecutionOutcome, Fingerprint, FinishExecution,
    NewCall, OutboxPort, OutboxRow, PortErrorKind, ServiceCallPersistencePort, StoredCall,
    SubmitOutcome, TimerQueuePort, WaitingQuery,
};
use uuid::Uuid;

use crate::scratch::rows;
use crate::store::{OnFile, at, folder};

pub(crate) const CANARY: &str = "canary-4711";

pub(crate) fn key(n: u128) -> TimerKey {
    TimerKey::new(
        TenantId::default(),
        ServiceCallId::from_uuid(Uuid::from_u128(n)),
    )
}

pub(crate) fn id(n: u128) -> EnvelopeId {
    EnvelopeId::from_uuid(Uuid::from_u128(n))
}

pub(crate) fn request() -> RequestSpec {
    serde_json::from_str(&format!(
        r#"{{"method":"POST","url":"https://example.com/?token={CANARY}",
            "headers":{{"Authorization":"Bearer {CANARY}"}},"body":"say {CANARY}"}}"#
    ))
    .unwrap()
}

pub(crate) fn details(n: u128) -> CallDetails {
    CallDetails {
        key: key(n),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        command_id: id(1),
        name: CallName::new("a call").unwrap(),
        tags: Tags::default(),
        submitted_at: at(1_000),
        due_at: at(5_000),
        request: request(),
    }
}

pub(crate) fn envelopes(outgoing: Vec<Outgoing>, now: Timestamp) -> Vec<MessageEnvelope> {
    let envelope = |outgoing: Outgoing| MessageEnvelope {
        id: outgoing.id.unwrap_or(id(77)),
        timestamp: now,
        metadata: MessageMetadata::default(),
        message: outgoing.message,
    };
    outgoing.into_iter().map(envelope).collect()
}

pub(crate) fn new_call(n: u128) -> NewCall {
    let CallStep { call, outgoing } = details(n).schedule();
    NewCall {
        call,
        id_was_given: true,
        idempotency_key: None,
        fingerprint: Fingerprint([1; 32]),
        outbox: envelopes(outgoing, at(1_000)),
        listeners: Listeners::Anyone,
    }
}

pub(crate) async fn submit(store: &SqliteCallStore, n: u128) -> StoredCall {
    let answers = store.submit(vec![new_call(n)]).await.unwrap();
    let accepted = matches!(answers[..], [Ok(SubmitOutcome::Accepted(_))]);
    assert!(accepted, "{answers:?}");
    found(store, n).await
}

pub(crate) async fn found(store: &SqliteCallStore, n: u128) -> StoredCall {
    let found = ServiceCallPersistencePort::find(store, vec![key(n)]).await;
    found.unwrap().remove(0).unwrap()
}

/// The change that starts a call.
pub(crate) fn start(stored: &StoredCall, execution_id: EnvelopeId) -> CallChange {
    let ServiceCall::Scheduled(call) = stored.call.clone() else {
        panic!("it is scheduled");
    };
    let start = Start {
        reached_at: at(5_000),
        now: at(5_000),
        execution_id,
        caused_by: id(2),
        timeout: Duration::from_secs(30),
    };
    let CallStep { call, outgoing } = call.start(start).unwrap();
    CallChange {
        call,
        expected_version: stored.version,
        outbox: envelopes(outgoing, at(5_000)),
        listeners: Listeners::Anyone,
    }
}

pub(crate) fn outcome() -> Outcome {
    Outcome::Succeeded(ResponseMeta {
        status: 200,
        headers: Vec::new(),
        body_snippet: Some("ok".to_owned()),
        truncated: false,
        latency_ms: 1,
    })
}

fn shared() -> (OnFile, SqliteCallStore) {
    let file = OnFile::new(SchemaSet::Shared);
    let calls = file.store.calls().unwrap();
    (file, calls)
}

fn everything() -> WaitingQuery {
    WaitingQuery {
        limit: 100,
        per_tenant: 100,
        per_host: 100,
        without_tenants: Vec::new(),
        without_hosts: Vec::new(),
        without: BTreeSet::new(),
        after_tenant: None,
        after_host: None,
    }
}

#[tokio::test]
async fn a_file_of_timers_alone_has_no_calls() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let refused = file.store.calls().err().unwrap();
    assert!(matches!(refused, OpenError::WrongSet { .. }), "{refused}");
}

#[tokio::test]
async fn calls_are_conducted_by_one_process_with_or_without_their_timers() {
    let folder = folder();
    let settings = SqliteSettings::service_calls(folder.path().join("calls.db"));
    let alone = SqliteSettings {
        role: Role::Calls,
        ..settings.clone()
    };
    let open = |settings| SqliteTimerStore::open(settings, Timestamp::MIN);
    let first = open(&settings).unwrap();
    for second in [&settings, &alone] {
        let refused = open(second).err().unwrap();
        assert!(matches!(refused, OpenError::RoleTaken { .. }), "{refused}");
    }
    first.close().await;
    let first = open(&alone).unwrap();
    let refused = open(&settings).err().unwrap().to_string();
    assert!(refused.starts_with("the service calls of "), "{refused}");
    let claimed = first.claim_due(at(0), 10, Duration::from_secs(1)).await;
    assert_eq!(claimed.unwrap_err().kind(), PortErrorKind::Rejected);
    first.close().await;
    open(&settings).unwrap().close().await;
}

#[tokio::test]
async fn if_one_role_is_taken_none_of_the_others_is() {
    let folder = folder();
    let settings = SqliteSettings::service_calls(folder.path().join("calls.db"));
    let calls = SqliteSettings {
        role: Role::Calls,
        ..settings.clone()
    };
    let conducts = SqliteCallStore::open(&calls, Timestamp::MIN).unwrap();
    assert!(SqliteTimerStore::open(&settings, Timestamp::MIN).is_err());
    // The timer role was taken first, and released.
    conducts.close().await;
    SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
}

#[tokio::test]
async fn without_timers_on_the_file_no_tombstone_is_added() {
    let folder = folder();
    for (role, remembered) in [(Role::Calls, "0"), (Role::Timer, "1")] {
        let path = folder.path().join(format!("{remembered}.db"));
        let mut settings = SqliteSettings::service_calls(&path);
        settings.role = role;
        let store = SqliteCallStore::open(&settings, Timestamp::MIN).unwrap();
        let stored = submit(&store, 1).await;
        let deletion = CallDeletion {
            key: key(1),
            expected_version: stored.version,
            deleted_at: at(2_000),
            outbox: Vec::new(),
        };
        let deleted = ServiceCallPersistencePort::delete(&store, vec![deletion]).await;
        assert_eq!(
            *deleted.unwrap()[0].as_ref().unwrap(),
            ChangeOutcome::Changed
        );
        let outsider = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(
            rows(&outsider, "SELECT count(*) FROM tombstones"),
            [remembered]
        );
    }
}

/// Every row of every table.
fn contents(file: &OnFile) -> String {
    let outsider = file.outsider();
    let tables = rows(
        &outsider,
        "SELECT name FROM sqlite_schema WHERE type = 'table'",
    );
    let all = tables.iter().flat_map(|table| {
        let all = format!("SELECT * FROM \"{table}\"");
        rows(&outsider, &all)
    });
    all.collect::<Vec<_>>().join("\n")
}

/// What is to be published. It stays so: the claim ends at once.
pub(crate) async fn unpublished(store: &SqliteCallStore, limit: usize) -> Vec<OutboxRow> {
    let claimed = OutboxPort::claim(store, at(0), limit, Duration::ZERO);
    claimed.await.unwrap().rows
}

/// Starts every attempt that waits.
async fn claim_attempts(store: &SqliteCallStore) -> Vec<ClaimedExecution> {
    let lease = Duration::from_secs(30);
    let mut start = |_: &Execution| Some(Vec::new());
    let claimed = ExecutionLogPort::claim(store, everything(), at(5_002), lease, &mut start);
    let claimed = claimed.await.unwrap().into_iter();
    claimed.map(Result::unwrap).collect()
}

#[tokio::test]
async fn once_a_call_is_finished_no_row_has_its_secrets() {
    let (file, store) = shared();
    let stored = submit(&store, 1).await;
    let change = start(&stored, id(9));
    store.change(vec![change]).await.unwrap();
    let execution = Execution {
        key: ExecutionKey {
            call: key(1),
            execution_id: id(9),
        },
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        request: request(),
        timeout: Duration::from_secs(30),
        accepted_at: at(5_001),
    };
    let accepted = store.accept(vec![execution.clone()]).await.unwrap();
    assert_eq!(*accepted[0].as_ref().unwrap(), AcceptOutcome::Accepted);
    assert!(contents(&file).contains(CANARY));
    let claimed = claim_attempts(&store).await;
    let finish = FinishExecution {
        claim: claimed[0].reference(),
        finished_at: at(5_003),
        outcome: outcome(),
        outbox: Vec::new(),
    };
    let ended = store.finish(vec![finish]).await.unwrap();
    assert_eq!(*ended[0].as_ref().unwrap(), ExecutionOutcome::Applied);
    let stored = found(&store, 1).await;
    let ServiceCall::Running(running) = stored.call else {
        panic!("it runs");
    };
    let CallStep { call, outgoing } = running.finish(outcome(), at(5_004), id(3));
    let change = CallChange {
        call,
        expected_version: stored.version,
        outbox: envelopes(outgoing, at(5_004)),
        listeners: Listeners::Anyone,
    };
    store.change(vec![change]).await.unwrap();
    let contents = contents(&file);
    assert!(!contents.contains(CANARY), "{contents}");
    assert!(contents.contains("StartExecution") && contents.contains("[redacted]"));
}

#[tokio::test]
async fn an_unreadable_message_is_returned_as_it_is_and_can_be_dead_lettered() {
    let (file, store) = shared();
    submit(&store, 1).await;
    let outsider = file.outsider();
    outsider
        .execute_batch(
            "UPDATE outbox SET event_payload = 'not json' WHERE id = 1;
             UPDATE outbox SET event_type = 'StartExecution', event_payload = 'canary' WHERE id = 2;
             INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at)
             VALUES ('t', 'a', 'e', '{}', '!'), ('t', 'a', 'e', '{}', '!');",
        )
        .unwrap();
    // Two have no readable time, and so no position.
    assert_eq!(unpublished(&store, 1).await.len(), 1);
    let waiting = unpublished(&store, 10).await;
    let unreadable = waiting[0].envelope.clone().unwrap_err();
    assert_eq!(unreadable.payload, b"not json");
    assert!(waiting[2].envelope.is_ok());
    assert_eq!(store.about(key(1), 10).await.unwrap().len(), 1);
    let positions = waiting.iter().map(|row| row.position).collect();
    store.mark_published(positions, at(6_000)).await.unwrap();
    assert_eq!(unpublished(&store, 10).await, []);
    // What is secret in it is unknown.
    let left = rows(&outsider, "SELECT event_payload FROM outbox WHERE id = 2");
    assert_eq!(left, ["{}"]);
}

#[tokio::test]
async fn unreadable_rows_block_no_others() {
    let (file, store) = shared();
    for n in 1..=3 {
        let stored = submit(&store, n).await;
        let change = start(&stored, id(100 + n));
        store.change(vec![change]).await.unwrap();
        let execution = Execution {
            key: ExecutionKey {
                call: key(n),
                execution_id: id(100 + n),
            },
            correlation_id: CorrelationId::from_uuid(Uuid::nil()),
            request: request(),
            timeout: Duration::from_secs(30),
            accepted_at: at(5_001),
        };
        store.accept(vec![execution]).await.unwrap();
    }
    let one = key(1).service_call_id;
    file.outsider()
        .execute_batch(&format!(
            "UPDATE service_calls SET request_spec = '?' WHERE service_call_id = '{one}';
             UPDATE http_execution_log SET request_spec = '?' WHERE service_call_id = '{one}';"
        ))
        .unwrap();
    let found = ServiceCallPersistencePort::find(&store, [1, 2].map(key).to_vec()).await;
    let found = found.unwrap();
    assert!(found[0].is_none() && found[1].is_some());
    let stuck = store.find_stuck(at(99_000_000), 2).await.unwrap();
    assert_eq!(stuck.calls.len(), 2);
    let query = CallPageQuery {
        tenant_id: TenantId::default(),
        status: None,
        tags: Vec::new(),
        from: None,
        to: None,
        limit: 2,
        after: None,
    };
    let page = ServiceCallPersistencePort::page(&store, query)
        .await
        .unwrap();
    assert_eq!((page.calls.len(), page.next), (2, None));
    let correlation_id = CorrelationId::from_uuid(Uuid::nil());
    let traced =
        ServiceCallPersistencePort::find_by_correlation(&store, correlation_id, None, 10).await;
    assert_eq!(traced.unwrap().len(), 2);
    assert_eq!(claim_attempts(&store).await.len(), 2);
}

#[tokio::test]
async fn an_item_that_the_host_refuses_is_undone_by_itself() {
    let (file, store) = shared();
    let (one, two) = (submit(&store, 1).await, submit(&store, 2).await);
    let refused = key(1).service_call_id;
    file.outsider()
        .execute_batch(&format!(
            "CREATE TRIGGER theirs BEFORE INSERT ON outbox
             WHEN new.aggregate_id = '{refused}' AND new.event_type = 'StartExecution'
             BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        ))
        .unwrap();
    let before = store.count(100).await.unwrap();
    let changes = vec![start(&one, id(8)), start(&two, id(9))];
    let answers = store.change(changes).await.unwrap();
    assert_eq!(
        answers[0].as_ref().unwrap_err().kind(),
        PortErrorKind::Rejected
    );
    assert_eq!(*answers[1].as_ref().unwrap(), ChangeOutcome::Changed);
    assert_eq!(found(&store, 1).await, one, "neither changed nor published");
    assert_eq!(store.count(100).await.unwrap(), before + 2);
}

#[tokio::test]
async fn a_message_comes_after_those_of_other_programs() {
    let (file, store) = shared();
    submit(&store, 1).await;
    file.outsider()
        .execute(
            "INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at)
             VALUES ('t', 'a', 'e', '{}', '2040-01-01T00:00:00.000Z')",
            [],
        )
        .unwrap();
    submit(&store, 2).await;
    let waiting = unpublished(&store, 100).await;
    assert_eq!(waiting.len(), 7);
    assert!(waiting.is_sorted_by(|a, b| a.position < b.position));
    assert!(
        waiting[3].envelope.is_err(),
        "the foreign message is in between"
    );
}

#[tokio::test]
async fn a_full_file_refuses_new_calls_and_finishes_the_accepted_ones() {
    let mut file = OnFile::new(SchemaSet::Shared);
    let store = file.store.calls().unwrap();
    let stored = submit(&store, 1).await;
    let scheduled = submit(&store, 2).await;
    store.change(vec![start(&stored, id(9))]).await.unwrap();
    file.settings.max_file_bytes = Some(1);
    file.crash_and_reopen();
    let store = file.store.calls().unwrap();
    let full = |error: punctual_ports::PortError| {
        assert_eq!(error.kind(), PortErrorKind::StorageFull);
    };
    full(store.submit(vec![new_call(3)]).await.unwrap_err());
    let began = store.change(vec![start(&scheduled, id(8))]).await.unwrap();
    assert_eq!(*began[0].as_ref().unwrap(), ChangeOutcome::Changed);
    let stored = found(&store, 1).await;
    let ServiceCall::Running(running) = stored.call else {
        panic!("it runs");
    };
    let CallStep { call, outgoing } = running.finish(outcome(), at(5_004), id(3));
    let change = CallChange {
        call,
        expected_version: stored.version,
        outbox: envelopes(outgoing, at(5_004)),
        listeners: Listeners::Anyone,
    };
    let changed = store.change(vec![change]).await.unwrap();
    assert_eq!(*changed[0].as_ref().unwrap(), ChangeOutcome::Changed);
    let waiting = unpublished(&store, 100).await;
    let positions = waiting.iter().map(|row| row.position).collect();
    let marked = store.mark_published(positions, at(6_000)).await.unwrap();
    assert!(marked.iter().all(Result::is_ok));
}
