//! Query plans of the statements of timers, on a hundred thousand of them: each uses an index, none scans
//! a table or sorts, before and after the host has run ANALYZE.

use std::collections::BTreeMap;

use punctual_adapters_sqlite::{SchemaSet, sql};
use rusqlite::Connection;

use crate::store::OnFile;

const DUE: &str = "idx_timer_schedules_due_at (tenant_id=? AND state=? AND due_at";
const READY: &str = "idx_timer_schedules_ready (<expr>";
const TENANT_READY: &str = "idx_timer_schedules_tenant_ready";
const KEY: &str = "sqlite_autoindex_timer_schedules_1 (tenant_id=? AND service_call_id=?)";
const ROW: &str = "INTEGER PRIMARY KEY (rowid=?)";
const TOMBSTONE: &str = "sqlite_autoindex_tombstones_1 (tenant_id";

/// What each plan has to name. An insert has no plan.
const EXPECTED: &[(&str, &[&str])] = &[
    ("INSERT", &[]),
    ("EXISTING", &[KEY]),
    ("RESCHEDULE", &[ROW]),
    ("TOMBSTONE", &[TOMBSTONE]),
    ("ADD_TOMBSTONE", &[]),
    ("HAS_TOMBSTONES", &[TOMBSTONE]),
    ("REMOVE_TOMBSTONE", &[TOMBSTONE]),
    ("MARK_ROW", &[ROW]),
    ("RETRY_ROW", &[ROW]),
    ("MARK_BY_ROWID", &[ROW]),
    ("RETRY_BY_ROWID", &[ROW]),
    ("DELETE_ROW", &[ROW]),
    ("FIND", &[KEY]),
    ("FIND_ROW", &[ROW]),
    ("FIND_DUE", &[DUE]),
    (
        "FIND_BY_CORRELATION",
        &["idx_timer_schedules_correlation_id (correlation_id=?)"],
    ),
    ("PAGE_SCHEDULED", &[DUE]),
    ("PAGE_REACHED", &[DUE]),
    (
        "FIRED_SINCE",
        &["idx_timer_schedules_reached_at (reached_at>?)"],
    ),
    ("PENDING", &[READY]),
    ("OVERDUE", &[READY]),
    ("READY", &[READY]),
    ("NEWEST_READY", &[READY]),
    ("NEXT_READY", &[READY]),
    ("NEXT_TENANT", &[TENANT_READY, "(tenant_id>?)"]),
    (
        "READY_OF_TENANT",
        &[TENANT_READY, "(tenant_id=? AND <expr>"],
    ),
    ("TENANT_OF", &[ROW]),
    (
        "PURGE_REACHED",
        &["idx_timer_schedules_reached_at (reached_at<?)", ROW],
    ),
    (
        "PURGE_TOMBSTONES",
        &["idx_tombstones_deleted_at (deleted_at<?)", ROW],
    ),
    ("RECORD_DEAD_LETTER", &[]),
    ("LIST_DEAD_LETTERS", &["INTEGER PRIMARY KEY (rowid>?)"]),
    ("REMOVE_DEAD_LETTER", &[ROW]),
    (
        "LOAD_POSITION",
        &["sqlite_autoindex_bus_positions_1 (stream=?)"],
    ),
    ("SAVE_POSITION", &[]),
    ("KEEP_ID", &[]),
    ("DATABASE_ID", &[ROW]),
];

#[test]
fn every_statement_finds_its_rows_through_an_index() {
    for set in [SchemaSet::TimersOnly, SchemaSet::Shared] {
        let database = OnFile::new(set);
        let connection = database.outsider();
        fill(&connection, set);
        check_plans(&connection, "as it is");
        connection.execute_batch("ANALYZE").unwrap();
        check_plans(&connection, "after ANALYZE");
    }
}

fn check_plans(connection: &Connection, when: &str) {
    let expected: BTreeMap<_, _> = EXPECTED.iter().copied().collect();
    assert_eq!(
        expected.len(),
        sql::ALL.len(),
        "one line for each statement"
    );
    for (name, statement) in sql::ALL {
        let plan = plan(connection, statement);
        for forbidden in ["SCAN", "TEMP B-TREE"] {
            assert!(!plan.contains(forbidden), "{name} {when}:\n{plan}");
        }
        for part in expected[name] {
            assert!(plan.contains(part), "{name} {when} without {part}:\n{plan}");
        }
    }
}

/// The plan does not say "covering", because the state is no column of that index; but what the
/// program reads tells.
#[test]
fn what_is_ready_is_read_from_the_index_alone() {
    let database = OnFile::new(SchemaSet::TimersOnly);
    let connection = database.outsider();
    for statement in [
        sql::READY,
        sql::NEWEST_READY,
        sql::NEXT_READY,
        sql::NEXT_TENANT,
        sql::READY_OF_TENANT,
    ] {
        let mut program = connection.prepare(&format!("EXPLAIN {statement}")).unwrap();
        let parameters = vec!["2026-01-01T00:00:00.000Z"; program.parameter_count()];
        let steps = program.query_map(rusqlite::params_from_iter(parameters), |row| {
            Ok((row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        });
        let columns: Vec<i64> = steps
            .unwrap()
            .map(Result::unwrap)
            .filter_map(|(step, cursor)| (step == "Column").then_some(cursor))
            .collect();
        // The table is the program's first cursor.
        assert!(!columns.is_empty() && !columns.contains(&0), "{statement}");
    }
}

pub(crate) fn plan(connection: &Connection, statement: &str) -> String {
    let explain = format!("EXPLAIN QUERY PLAN {statement}");
    let mut statement = connection.prepare(&explain).unwrap();
    let parameters = vec!["2026-01-01T00:00:00.000Z"; statement.parameter_count()];
    let lines = statement
        .query_map(rusqlite::params_from_iter(parameters), |row| {
            row.get::<_, String>(3)
        })
        .unwrap();
    lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
}

/// A hundred tenants with a thousand timers each, nine of ten scheduled, some put off.
fn fill(connection: &Connection, set: SchemaSet) {
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)";
    let key = "printf('tenant-%03d', i % 100), printf('00000000-0000-7000-8000-%012d', i)";
    if set == SchemaSet::Shared {
        let parents = format!(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, \
                 due_at, request_spec, correlation_id, command_id, version) \
             {numbers} SELECT {key}, 'a', 'Failed', '', '', '{{}}', '', '', 1 FROM n"
        );
        connection.execute(&parents, []).unwrap();
    }
    let due = "strftime('%Y-%m-%dT%H:%M:%fZ', 1700000000 + (i * 7919) % 100000, 'unixepoch')";
    let timers = format!(
        "INSERT INTO timer_schedules (tenant_id, service_call_id, correlation_id, due_at, \
             registered_at, reached_at, state, retry_at) \
         {numbers} SELECT {key}, printf('00000000-0000-7000-9000-%012d', i / 3), {due}, {due}, \
             iif(i % 10 = 0, {due}, NULL), iif(i % 10 = 0, 'Reached', 'Scheduled'), \
             iif(i % 50 = 1, {due}, NULL) \
         FROM n"
    );
    assert_eq!(connection.execute(&timers, []).unwrap(), 100_000);
    let tombstones =
        format!("INSERT INTO tombstones {numbers} SELECT {key}, {due} FROM n WHERE i % 100 = 0");
    connection.execute(&tombstones, []).unwrap();
}
