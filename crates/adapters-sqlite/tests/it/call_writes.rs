//! What calls cost in statements, and what is published without being read.

use std::sync::Mutex;
use std::time::Duration;

use punctual_adapters_sqlite::{OnStatement, SchemaSet, SqliteCallStore, Synchronous};
use punctual_domain::messages::Listeners;
use punctual_ports::{
    NewCall, OutboxOutcome, OutboxPort, OutboxPosition, OutboxRow, ServiceCallPersistencePort,
};
use rusqlite::trace::TraceEvent;

use crate::calls::{id, key, new_call, start, submit};
use crate::scratch::rows;
use crate::store::{OnFile, at};

const LEASE: Duration = Duration::from_secs(30);

type Statements = Mutex<Vec<String>>;

/// Statements on all connections of a file, recorded for one test.
macro_rules! recorded {
    () => {{
        static STATEMENTS: Statements = Mutex::new(Vec::new());
        fn record(event: TraceEvent<'_>) {
            if let TraceEvent::Stmt(_, sql) = event {
                STATEMENTS.lock().unwrap().push(sql.to_owned());
            }
        }
        (OnStatement(record), &STATEMENTS)
    }};
}

fn calls((on_statement, _): (OnStatement, &Statements)) -> (OnFile, SqliteCallStore) {
    let file = OnFile::with(|settings| {
        settings.set = SchemaSet::Shared;
        settings.synchronous = Synchronous::Normal;
        settings.on_statement = Some(on_statement);
    });
    let store = file.store.calls().unwrap();
    (file, store)
}

/// How many of the statements since the last time have this text.
fn count(statements: &Statements, text: &str) -> usize {
    let statements = std::mem::take(&mut *statements.lock().unwrap());
    statements.iter().filter(|it| it.contains(text)).count()
}

async fn claim(store: &SqliteCallStore, now: i64, limit: usize) -> Vec<OutboxRow> {
    let claimed = OutboxPort::claim(store, at(now), limit, LEASE).await;
    claimed.unwrap().rows
}

/// Everything that waits, in batches.
async fn claim_all(store: &SqliteCallStore, now: i64) -> Vec<OutboxRow> {
    let mut all = Vec::new();
    loop {
        let batch = OutboxPort::claim(store, at(now), 500, LEASE).await.unwrap();
        let is_last = batch.rows.len() < 500 && batch.next_at != Some(at(now));
        all.extend(batch.rows);
        if is_last {
            return all;
        }
    }
}

/// A store whose publisher has nothing left to read.
async fn publishing(store: &SqliteCallStore, first: u128) {
    submit(store, first).await;
    assert_eq!(claim_all(store, 1_000).await.len(), 3);
}

#[tokio::test]
async fn units_cost_savepoints_only_where_one_of_the_group_fails_halfway() {
    let recorded = recorded!();
    let (file, store) = calls(recorded);
    let (one, two) = (submit(&store, 1).await, submit(&store, 2).await);
    assert_eq!(count(recorded.1, "SAVEPOINT"), 0);
    refuse_the_start(&file, 1);
    let changes = vec![start(&one, id(8)), start(&two, id(9))];
    let answers = store.change(changes).await.unwrap();
    assert!(answers[0].is_err() && answers[1].is_ok());
    assert_eq!(count(recorded.1, "SAVEPOINT"), 2);
}

/// Lets the host refuse the command that starts a call, after the call was changed.
fn refuse_the_start(file: &OnFile, n: u128) {
    let refused = key(n).service_call_id;
    file.outsider()
        .execute_batch(&format!(
            "CREATE TRIGGER theirs BEFORE INSERT ON outbox
             WHEN new.aggregate_id = '{refused}' AND new.event_type = 'StartExecution'
             BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        ))
        .unwrap();
}

#[tokio::test]
async fn what_this_process_commits_is_claimed_without_being_read() {
    let recorded = recorded!();
    let (_file, store) = calls(recorded);
    publishing(&store, 1).await;
    count(recorded.1, "");
    let stored = submit(&store, 2).await;
    store.change(vec![start(&stored, id(9))]).await.unwrap();
    let new = [
        claim(&store, 1_000, 2).await,
        claim(&store, 1_000, 100).await,
    ]
    .concat();
    assert_eq!(count(recorded.1, "FROM outbox"), 0);
    assert_eq!(new.len(), 5);
    // An empty queue says nothing about other programs.
    assert_eq!(claim(&store, 1_000, 100).await, []);
    assert!(count(recorded.1, "FROM outbox") > 0);
    let read = claim(&store, 40_000, 100).await;
    assert_eq!(read[3..], new, "they are what a reader finds");
}

#[tokio::test]
async fn what_is_appended_as_published_does_not_come_between() {
    let recorded = recorded!();
    let (_file, store) = calls(recorded);
    publishing(&store, 1).await;
    count(recorded.1, "");
    let told_to_nobody = [2, 3].map(|n| NewCall {
        listeners: Listeners::Modules,
        ..new_call(n)
    });
    store.submit(told_to_nobody.to_vec()).await.unwrap();
    assert_eq!(
        count(recorded.1, "SAVEPOINT"),
        0,
        "nobody else has appended"
    );
    let claimed = claim(&store, 1_000, 100).await;
    assert_eq!(count(recorded.1, "FROM outbox"), 0);
    assert_eq!(claimed.len(), 2, "the command to the timer, of each");
}

#[tokio::test]
async fn a_unit_that_was_undone_hands_over_nothing() {
    let (file, store) = calls(recorded!());
    let (one, two) = (submit(&store, 1).await, submit(&store, 2).await);
    claim_all(&store, 1_000).await;
    submit(&store, 3).await;
    refuse_the_start(&file, 1);
    let changes = vec![start(&two, id(9)), start(&one, id(8))];
    store.change(changes).await.unwrap();
    let claimed = claim_all(&store, 1_000).await;
    assert_eq!(claimed.len(), 5);
    let numbers: Vec<i64> = claimed.iter().map(|row| row.position.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    let stored = rows(&file.outsider(), "SELECT id FROM outbox WHERE id > 6");
    assert_eq!(
        stored,
        numbers.iter().map(i64::to_string).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn messages_of_other_programs_are_claimed_between_those_of_this_process() {
    let (file, store) = calls(recorded!());
    publishing(&store, 1).await;
    submit(&store, 2).await;
    let append = |created_at: &str| {
        let sql =
            "INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at)
             VALUES ('t', 'a', 'e', '{}', ?1)";
        file.outsider().execute(sql, [created_at]).unwrap();
    };
    append("2040-01-01T00:00:00.000Z");
    submit(&store, 3).await;
    let claimed = claim_all(&store, 1_000).await;
    assert_eq!(claimed.len(), 7);
    assert!(claimed.is_sorted_by(|a, b| a.position < b.position));
    assert!(claimed[3].envelope.is_err(), "theirs is in between");
    append("2040-01-01T00:00:00.000Z");
    assert_eq!(claim(&store, 1_000, 100).await.len(), 1);
}

#[tokio::test]
async fn what_the_queue_cannot_hold_is_read() {
    let (_file, store) = calls(recorded!());
    publishing(&store, 1).await;
    for numbers in [2..1_000, 1_000..2_000] {
        let batch = numbers.map(new_call).collect();
        assert!(store.submit(batch).await.unwrap().iter().all(Result::is_ok));
    }
    let claimed = claim_all(&store, 1_000).await;
    assert_eq!(claimed.len(), 1_998 * 3);
    assert!(claimed.is_sorted_by(|a, b| a.position < b.position));
    assert_eq!(claim_all(&store, 1_000).await, []);
}

#[tokio::test]
async fn a_message_that_is_marked_before_anybody_claims_it_is_not_claimed() {
    let (_file, store) = calls(recorded!());
    publishing(&store, 1).await;
    submit(&store, 2).await;
    let created_at = at(1_000);
    let position = |number| OutboxPosition { created_at, number };
    let marked = store.mark_published(vec![position(5)], at(2_000)).await;
    assert_eq!(*marked.unwrap()[0].as_ref().unwrap(), OutboxOutcome::Marked);
    let claimed = claim(&store, 2_000, 100).await;
    let positions: Vec<_> = claimed.iter().map(|row| row.position).collect();
    assert_eq!(positions, [position(4), position(6)]);
}

#[tokio::test]
async fn a_batch_is_marked_with_one_statement() {
    let recorded = recorded!();
    let (file, store) = calls(recorded);
    publishing(&store, 1).await;
    let stored = submit(&store, 2).await;
    store.change(vec![start(&stored, id(9))]).await.unwrap();
    let rows = claim_all(&store, 1_000).await;
    assert_eq!(rows.len(), 5);
    count(recorded.1, "");
    let mark = |rows: &[OutboxRow]| {
        let batch = rows.iter().map(|row| row.position).collect();
        store.mark_published(batch, at(2_000))
    };
    let one = mark(&rows[1..2]).await.unwrap();
    assert_eq!(*one[0].as_ref().unwrap(), OutboxOutcome::Marked);
    assert_eq!(count(recorded.1, "UPDATE outbox"), 1);
    // Another program has refused one; the others do not fail for that.
    let theirs = format!(
        "CREATE TRIGGER theirs BEFORE UPDATE ON outbox WHEN new.id = {}
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        rows[2].position.number
    );
    file.outsider().execute_batch(&theirs).unwrap();
    let answers = mark(&rows).await.unwrap();
    let answers: Vec<_> = answers.into_iter().map(Result::ok).collect();
    let (marked, done) = (
        Some(OutboxOutcome::Marked),
        Some(OutboxOutcome::AlreadyDone),
    );
    assert_eq!(answers, [marked, done, None, marked, marked]);
    file.outsider()
        .execute_batch("DROP TRIGGER theirs")
        .unwrap();
    count(recorded.1, "");
    let rest = mark(&rows).await.unwrap();
    let rest: Vec<_> = rest.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        rest.iter()
            .filter(|it| **it == OutboxOutcome::Marked)
            .count(),
        1
    );
}
