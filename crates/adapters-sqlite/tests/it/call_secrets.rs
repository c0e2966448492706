//! The request of a call is stored with the call and its attempt, and the command for it without.

use std::time::Duration;

use punctual_adapters_sqlite::{SchemaSet, SqliteCallStore};
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_domain::{Message, MessageEnvelope};
use punctual_ports::{CallChange, OutboxPort, OutboxRow, ServiceCallPersistencePort};

use crate::calls::{CANARY, envelopes, found, id, key, outcome, request, start, submit};
use crate::scratch::rows;
use crate::store::{OnFile, at};

/// A call that is started; what is said of it is not published.
async fn started() -> (OnFile, SqliteCallStore) {
    let file = OnFile::new(SchemaSet::Shared);
    let store = file.store.calls().unwrap();
    let stored = submit(&store, 1).await;
    store.change(vec![start(&stored, id(9))]).await.unwrap();
    (file, store)
}

async fn claim(store: &SqliteCallStore, now: i64) -> Vec<OutboxRow> {
    let claimed = OutboxPort::claim(store, at(now), 100, Duration::from_secs(30)).await;
    claimed.unwrap().rows
}

fn command(rows: &[OutboxRow]) -> Option<(&OutboxRow, &MessageEnvelope)> {
    let readable = rows
        .iter()
        .filter_map(|row| Some((row, row.envelope.as_ref().ok()?)));
    let mut commands = readable.filter(|(_, it)| matches!(it.message, Message::StartExecution(_)));
    commands.next()
}

fn outbox(file: &OnFile) -> String {
    rows(&file.outsider(), "SELECT event_payload FROM outbox").join("\n")
}

async fn finish(store: &SqliteCallStore) {
    let stored = found(store, 1).await;
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
}

#[tokio::test]
async fn a_command_that_is_read_back_has_the_request_of_its_call() {
    let (mut file, _) = started().await;
    assert!(!outbox(&file).contains(CANARY));
    file.crash_and_reopen();
    let store = file.store.calls().unwrap();
    for now in [6_000, 60_000] {
        let claimed = claim(&store, now).await;
        assert_eq!(claimed.len(), 5);
        let (_, command) = command(&claimed).unwrap();
        let Message::StartExecution(command) = &command.message else {
            panic!("it is the command");
        };
        assert_eq!(command.request_spec, request());
    }
}

#[tokio::test]
async fn a_command_that_is_read_back_when_its_call_has_ended_is_published_to_nobody() {
    let (mut file, _) = started().await;
    file.crash_and_reopen();
    let store = file.store.calls().unwrap();
    let claimed = claim(&store, 6_000).await;
    assert!(command(&claimed).is_some());
    finish(&store).await;
    file.crash_and_reopen();
    let store = file.store.calls().unwrap();
    let claimed = claim(&store, 6_000).await;
    assert!(command(&claimed).is_none());
    assert_eq!(store.count(100).await.unwrap(), claimed.len());
    let about = store.about(key(1), 100).await.unwrap();
    let published = about.iter().filter(|it| it.published_at.is_some());
    let types: Vec<_> = published
        .map(|it| it.envelope.message.type_name())
        .collect();
    assert_eq!(types, ["StartExecution"]);
    // The same if its claim has ended.
    assert!(command(&claim(&store, 60_000).await).is_none());
}

#[tokio::test]
async fn a_command_of_the_version_before_is_redacted_when_it_is_marked() {
    let (mut file, store) = started().await;
    let claimed = claim(&store, 6_000).await;
    let (row, command_of_it) = command(&claimed).unwrap();
    let position = row.position;
    let payload = String::from_utf8(command_of_it.to_json().unwrap()).unwrap();
    assert!(payload.contains(CANARY));
    let sql = "UPDATE outbox SET event_payload = ?1 WHERE id = ?2";
    file.outsider()
        .execute(sql, (payload, position.number))
        .unwrap();
    file.crash_and_reopen();
    let store = file.store.calls().unwrap();
    let read = claim(&store, 6_000).await;
    assert_eq!(read, claimed);
    assert!(outbox(&file).contains(CANARY));
    let all = read.iter().map(|row| row.position).collect();
    let marked = store.mark_published(all, at(7_000)).await.unwrap();
    assert!(marked.iter().all(Result::is_ok));
    assert_eq!(store.count(100).await.unwrap(), 0);
    assert!(!outbox(&file).contains(CANARY));
}
