//! Query plans of the statements of calls, on twenty thousand of them: each uses an index, none scans a
//! table or sorts, before and after the host has run ANALYZE.

use std::collections::BTreeMap;

use punctual_adapters_sqlite::{SchemaSet, call_sql, execution_sql};
use rusqlite::Connection;

use crate::query_plans::plan;
use crate::store::OnFile;

const KEY: &str = "sqlite_autoindex_service_calls_1 (tenant_id=? AND service_call_id=?)";
const TAGS: &str = "sqlite_autoindex_service_call_tags_1 (tenant_id=? AND service_call_id=?)";
const ROW: &str = "INTEGER PRIMARY KEY (rowid=?)";
const TAKEN_ID: &str = "sqlite_autoindex_submissions_1 (tenant_id=? AND service_call_id=?)";
const POSITION: &str = "due_at>? AND (due_at,service_call_id)<(?,?))";
const LOG: &str = "sqlite_autoindex_http_execution_log_1 (tenant_id=? AND service_call_id=?";
const WAITING: &str = "idx_http_execution_log_waiting (tenant_id";
const UNPUBLISHED: &str = "idx_outbox_unpublished (published_at=?";

/// Twenty thousand of them, each with the key and the due time of its number.
const NUMBERS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)";
const KEY_OF_NUMBER: &str =
    "printf('tenant-%03d', i % 100), printf('00000000-0000-7000-8000-%012d', i)";
const DUE: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 1700000000 + (i * 7919) % 100000, 'unixepoch')";

/// What each plan has to name. An insert has no plan.
const EXPECTED: &[(&str, &[&str])] = &[
    ("TAKE", &[]),
    ("TAKEN_ID", &[TAKEN_ID]),
    (
        "TAKEN_KEY",
        &["idx_submissions_idempotency_key (tenant_id=? AND idempotency_key=?)"],
    ),
    ("INSERT_CALL", &[]),
    ("INSERT_TAG", &[]),
    ("CHANGE_CALL", &[KEY]),
    ("DELETE_CALL", &[KEY]),
    (
        "TIMER_OF_CALL",
        &["sqlite_autoindex_timer_schedules_1 (tenant_id=? AND service_call_id=?)"],
    ),
    ("MARK_CALL_DELETED", &[TAKEN_ID]),
    (
        "OLD_CALLS",
        &["idx_service_calls_finished_at (finished_at<?)"],
    ),
    ("REMOVE_CALL", &[ROW]),
    (
        "PURGE_SUBMISSIONS",
        &["idx_submissions_gone_at (gone_at<?)", ROW],
    ),
    ("FIND_CALLS", &[KEY, TAGS]),
    (
        "PAGE",
        &["idx_service_calls_due_at (tenant_id=? AND", POSITION, TAGS],
    ),
    (
        "PAGE_OF_STATUS",
        &[
            "idx_service_calls_status (tenant_id=? AND status=? AND",
            POSITION,
            TAGS,
        ],
    ),
    (
        "NEXT_OF_STATUS",
        &[
            "COVERING INDEX idx_service_calls_status (tenant_id=? AND status=? AND",
            POSITION,
        ],
    ),
    (
        "NEXT_OF_TAG",
        &[
            "COVERING INDEX idx_service_call_tags_due_at (tenant_id=? AND tag=? AND",
            POSITION,
        ],
    ),
    (
        "CALLS_OF_CORRELATION",
        &["idx_service_calls_correlation_id (correlation_id=?)", TAGS],
    ),
    (
        "STUCK",
        &["idx_service_calls_next_check_at (next_check_at<?)", TAGS],
    ),
    (
        "UNFINISHED",
        &["idx_service_calls_next_check_at (next_check_at>?)"],
    ),
    (
        "NEXT_CHECK",
        &["idx_service_calls_next_check_at (next_check_at>?)"],
    ),
    ("APPEND", &[]),
    ("LAST_CREATED", &[ROW]),
    (
        "UNPUBLISHED_OF_INSTANT",
        &[UNPUBLISHED, "created_at=? AND rowid>?)"],
    ),
    ("UNPUBLISHED", &[UNPUBLISHED, "created_at>?)"]),
    ("WAITING_MESSAGES", &[UNPUBLISHED]),
    ("REQUEST_TO_MAKE", &[KEY]),
    ("MARK_MESSAGES", &[ROW]),
    ("MARK_MESSAGE", &[ROW]),
    ("MESSAGE_WITH_SECRETS", &[ROW]),
    ("UNPUBLISHED_MESSAGE", &[ROW]),
    ("MARK_AND_REDACT", &[ROW]),
    (
        "ABOUT",
        &["idx_outbox_aggregate_id (tenant_id=? AND aggregate_id=?)"],
    ),
    (
        "PURGE_MESSAGES",
        &["idx_outbox_published_at (published_at<?)", ROW],
    ),
    ("ATTEMPT_OF_CALL", &[LOG]),
    ("DELETE_ATTEMPT", &[LOG]),
    ("INSERT_ATTEMPT", &[LOG]),
    ("BEGIN_ATTEMPT", &[LOG, "execution_id=?)"]),
    ("FINISH_ATTEMPT", &[LOG, "execution_id=?)"]),
    ("NEXT_TENANT", &[WAITING, "(tenant_id>?)"]),
    ("WAITING_ATTEMPTS", &[WAITING, "(tenant_id>?)"]),
    ("NEXT_HOST", &[WAITING, "(tenant_id=? AND host>?)"]),
    ("WAITING_FOR_HOST", &[WAITING, "(tenant_id=? AND host=?)"]),
    ("ATTEMPTS", &[ROW]),
    (
        "STARTED_ATTEMPTS",
        &["idx_http_execution_log_open (started_at>?)"],
    ),
    ("ENTRIES", &[LOG]),
];

#[test]
fn every_statement_of_calls_finds_its_rows_through_an_index() {
    let database = OnFile::new(SchemaSet::Shared);
    let connection = database.outsider();
    fill(&connection);
    check_plans(&connection, "as it is");
    connection.execute_batch("ANALYZE").unwrap();
    check_plans(&connection, "after ANALYZE");
}

/// Of what a file of attempts alone needs besides.
const EXPECTED_APART: &[(&str, &[&str])] = &[(
    "PURGE_ATTEMPTS",
    &[
        "idx_http_execution_log_finished_at (finished_at<?)",
        "idx_outbox_aggregate_id (tenant_id=? AND aggregate_id=?)",
        ROW,
    ],
)];

#[test]
fn every_statement_of_attempts_alone_finds_its_rows_through_an_index() {
    let database = OnFile::new(SchemaSet::ExecutionOnly);
    let connection = database.outsider();
    fill_attempts(&connection);
    let check = |when: &str| {
        check(&connection, execution_sql::ALL, EXPECTED_APART, when);
        let is_of_attempts = |name: &str| name.contains("ATTEMPT") || name.contains("MESSAGE");
        for (name, statement) in call_sql::ALL.iter().filter(|it| is_of_attempts(it.0)) {
            let plan = plan(&connection, statement);
            assert!(!plan.contains("TEMP B-TREE"), "{name} {when}:\n{plan}");
        }
    };
    check("as it is");
    connection.execute_batch("ANALYZE").unwrap();
    check("after ANALYZE");
}

fn check_plans(connection: &Connection, when: &str) {
    check(connection, call_sql::ALL, EXPECTED, when);
}

fn check(
    connection: &Connection,
    statements: &[(&str, &str)],
    expected: &[(&str, &[&str])],
    when: &str,
) {
    let expected: BTreeMap<_, _> = expected.iter().copied().collect();
    assert_eq!(
        expected.len(),
        statements.len(),
        "one line for each statement"
    );
    for (name, statement) in statements {
        let plan = plan(connection, statement);
        // These scan their parameters.
        let plan = plan
            .replace("SCAN json_each", "")
            .replace("SCAN wanted", "")
            .replace("SCAN CONSTANT ROW", "");
        for forbidden in ["SCAN", "TEMP B-TREE"] {
            assert!(!plan.contains(forbidden), "{name} {when}:\n{plan}");
        }
        for part in expected[name] {
            assert!(plan.contains(part), "{name} {when} without {part}:\n{plan}");
        }
    }
}

/// A hundred tenants with two hundred calls each, most of them finished, with tags, messages and
/// attempts.
fn fill(connection: &Connection) {
    let (numbers, key, due) = (NUMBERS, KEY_OF_NUMBER, DUE);
    let statements = [
        format!(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, \
                 due_at, finished_at, request_spec, correlation_id, command_id, version, next_check_at) \
             {numbers} SELECT {key}, 'a', iif(i % 10 = 0, 'Scheduled', 'Succeeded'), {due}, {due}, \
                 iif(i % 10 = 0, NULL, {due}), '{{}}', printf('%d', i / 3), '', 1, \
                 iif(i % 10 = 0, {due}, NULL) FROM n"
        ),
        format!(
            "INSERT INTO service_call_tags (tenant_id, service_call_id, tag, due_at) \
             {numbers} SELECT {key}, printf('tag-%d', i % 7), {due} FROM n"
        ),
        format!(
            "INSERT INTO submissions (tenant_id, service_call_id, idempotency_key, body_sha256, \
                 correlation_id, submitted_at, gone_at) \
             {numbers} SELECT {key}, iif(i % 2 = 0, printf('key-%d', i), NULL), zeroblob(32), '', \
                 {due}, iif(i % 50 = 0, {due}, NULL) FROM n"
        ),
    ];
    for statement in statements {
        assert_eq!(connection.execute(&statement, []).unwrap(), 20_000);
    }
    fill_attempts(connection);
}

/// Messages and attempts of as many calls.
fn fill_attempts(connection: &Connection) {
    let (numbers, key, due) = (NUMBERS, KEY_OF_NUMBER, DUE);
    let statements = [
        format!(
            "INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, \
                 published_at) \
             {numbers} SELECT {key}, 'a', '{{}}', {due}, iif(i % 100 = 0, NULL, {due}) FROM n"
        ),
        format!(
            "INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at, \
                 request_url, request_method, request_headers, correlation_id, state, timeout_ms, \
                 host) \
             {numbers} SELECT {key}, printf('%d', i), {due}, '', 'GET', '{{}}', '', \
                 iif(i % 10 = 0, 'Waiting', iif(i % 10 = 1, 'Attempted', 'Finished')), 1, \
                 printf('host-%d', i % 5) FROM n"
        ),
    ];
    for statement in statements {
        assert_eq!(connection.execute(&statement, []).unwrap(), 20_000);
    }
}
