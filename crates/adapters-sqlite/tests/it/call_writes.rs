//! What calls cost in statements.

use std::sync::Mutex;

use punctual_adapters_sqlite::{OnStatement, SchemaSet, SqliteCallStore, Synchronous};
use punctual_ports::ServiceCallPersistencePort;
use rusqlite::trace::TraceEvent;

use crate::calls::{id, key, start, submit};
use crate::store::OnFile;

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
