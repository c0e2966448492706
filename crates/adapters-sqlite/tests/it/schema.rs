//! The tables are those of the original specification, and what was added to them is listed here.
//!
//! The specification's statements are written into a second database, and both are described from
//! SQLite's own catalogue: column by column, check by check, index by index.

use std::collections::BTreeMap;

use punctual_adapters_sqlite::SchemaSet;
use punctual_migrations::{Dialect, Migration};
use rusqlite::Connection;

use crate::scratch::{Scratch, rows};

/// The original specification's statements, word for word where it has them; of the outbox it gives
/// columns and index.
const SPECIFIED: &str = "
CREATE TABLE service_calls (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    request_spec TEXT NOT NULL,
    outcome_meta TEXT,
    PRIMARY KEY (tenant_id, service_call_id),
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
) STRICT;

CREATE TABLE service_call_tags (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id, tag),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
) STRICT;

CREATE INDEX idx_service_call_tags_tag
ON service_call_tags(tenant_id, tag, service_call_id);

CREATE TABLE timer_schedules (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    reached_at TEXT,
    state TEXT NOT NULL DEFAULT 'Scheduled',
    PRIMARY KEY (tenant_id, service_call_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (state IN ('Scheduled', 'Reached'))
) STRICT;

CREATE INDEX idx_timer_schedules_due_at
ON timer_schedules(tenant_id, state, due_at);

CREATE INDEX idx_timer_schedules_correlation_id
ON timer_schedules(correlation_id);

CREATE TABLE http_execution_log (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    request_url TEXT NOT NULL,
    request_method TEXT NOT NULL,
    request_headers TEXT NOT NULL,
    request_body TEXT,
    response_status TEXT,
    response_headers TEXT,
    response_body TEXT,
    error_message TEXT,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH'))
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    event_payload TEXT NOT NULL,
    created_at TEXT NOT NULL,
    published_at TEXT
) STRICT;

CREATE INDEX idx_outbox_unpublished
ON outbox(published_at, created_at)
WHERE published_at IS NULL;
";

/// What we add: columns (docs/decisions/0009), indexes (0005), and a table of our own. Those that the
/// timers-only set has too are compared with it.
const ADDED: &str = "
ALTER TABLE timer_schedules ADD COLUMN data TEXT;
ALTER TABLE timer_schedules ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE timer_schedules ADD COLUMN retry_at TEXT;
ALTER TABLE timer_schedules ADD COLUMN last_error TEXT;

CREATE INDEX idx_timer_schedules_ready
ON timer_schedules(coalesce(retry_at, due_at))
WHERE state = 'Scheduled';

CREATE INDEX idx_timer_schedules_tenant_ready
ON timer_schedules(tenant_id, coalesce(retry_at, due_at))
WHERE state = 'Scheduled';

CREATE INDEX idx_timer_schedules_reached_at
ON timer_schedules(reached_at)
WHERE state = 'Reached';

CREATE INDEX idx_service_calls_due_at
ON service_calls(tenant_id, due_at, service_call_id);

CREATE INDEX idx_service_calls_status
ON service_calls(tenant_id, status, due_at, service_call_id);

CREATE INDEX idx_service_calls_correlation_id
ON service_calls(correlation_id);

CREATE INDEX idx_service_calls_next_check_at
ON service_calls(next_check_at)
WHERE next_check_at IS NOT NULL;

CREATE INDEX idx_service_calls_finished_at
ON service_calls(finished_at)
WHERE finished_at IS NOT NULL;

CREATE INDEX idx_service_call_tags_due_at
ON service_call_tags(tenant_id, tag, due_at, service_call_id);

CREATE INDEX idx_http_execution_log_waiting
ON http_execution_log(tenant_id, host, started_at)
WHERE state = 'Waiting';

CREATE INDEX idx_http_execution_log_open
ON http_execution_log(started_at)
WHERE state = 'Attempted';

CREATE INDEX idx_outbox_aggregate_id
ON outbox(tenant_id, aggregate_id);

CREATE INDEX idx_outbox_published_at
ON outbox(published_at)
WHERE published_at IS NOT NULL;

CREATE TABLE submissions (
    tenant_id TEXT NOT NULL,
    idempotency_key TEXT,
    service_call_id TEXT NOT NULL,
    body_sha256 BLOB NOT NULL,
    correlation_id TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    gone_at TEXT,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;

CREATE UNIQUE INDEX idx_submissions_idempotency_key
ON submissions(tenant_id, idempotency_key)
WHERE idempotency_key IS NOT NULL;

CREATE INDEX idx_submissions_gone_at
ON submissions(gone_at)
WHERE gone_at IS NOT NULL;
";

/// The columns that we add to tables of service calls, each behind the one before.
const ADDED_COLUMNS: &[(&str, &str)] = &[
    ("service_calls", "correlation_id|TEXT|1|NULL|0|0"),
    ("service_calls", "command_id|TEXT|1|NULL|0|0"),
    ("service_calls", "version|INTEGER|1|NULL|0|0"),
    ("service_calls", "next_check_at|TEXT|0|NULL|0|0"),
    ("service_calls", "execution_id|TEXT|0|NULL|0|0"),
    ("service_calls", "caused_by|TEXT|0|NULL|0|0"),
    ("service_calls", "timeout_ms|INTEGER|0|NULL|0|0"),
    ("service_calls", "attempt_began_at|TEXT|0|NULL|0|0"),
    ("service_calls", "dispatched_at|TEXT|0|NULL|0|0"),
    ("service_calls", "dispatch_count|INTEGER|0|NULL|0|0"),
    ("service_call_tags", "due_at|TEXT|1|NULL|0|0"),
    ("http_execution_log", "correlation_id|TEXT|1|NULL|0|0"),
    ("http_execution_log", "state|TEXT|1|NULL|0|0"),
    ("http_execution_log", "timeout_ms|INTEGER|1|NULL|0|0"),
    ("http_execution_log", "host|TEXT|1|NULL|0|0"),
    ("http_execution_log", "request_spec|TEXT|0|NULL|0|0"),
    ("http_execution_log", "outcome_meta|TEXT|0|NULL|0|0"),
];

/// A table as SQLite's catalogue has it. Maps, so that a difference is shown under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    /// Whether it is STRICT and WITHOUT ROWID.
    kind: Vec<String>,
    /// In order: name, type, NOT NULL, default, place in the primary key, hidden.
    columns: Vec<String>,
    checks: Vec<String>,
    autoincrement: bool,
    /// In order of columns: parent, from, to, on update, on delete, match.
    foreign_keys: Vec<String>,
    indexes: BTreeMap<String, Index>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Index {
    /// Unique, origin, partial.
    kind: Vec<String>,
    /// In order: column, descending, collation, whether it is part of the key.
    columns: Vec<String>,
    /// The indexed expressions and the condition, as they were written.
    wording: String,
}

fn describe(connection: &Connection) -> BTreeMap<String, Table> {
    let names = rows(
        connection,
        "SELECT name FROM sqlite_schema
         WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'punctual_migrations'",
    );
    names
        .into_iter()
        .map(|name| {
            let table = table(connection, &name);
            (name, table)
        })
        .collect()
}

fn table(connection: &Connection, name: &str) -> Table {
    let wording = wording(connection, name);
    let indexes = rows(
        connection,
        &format!("SELECT name FROM pragma_index_list('{name}')"),
    );
    Table {
        kind: rows(
            connection,
            &format!("SELECT strict, wr FROM pragma_table_list('{name}')"),
        ),
        columns: rows(
            connection,
            &format!(
                "SELECT name, type, \"notnull\", dflt_value, pk, hidden
                 FROM pragma_table_xinfo('{name}') ORDER BY cid"
            ),
        ),
        checks: checks(&wording),
        autoincrement: wording.contains("autoincrement"),
        foreign_keys: rows(
            connection,
            &format!(
                "SELECT \"table\", \"from\", \"to\", on_update, on_delete, \"match\"
                 FROM pragma_foreign_key_list('{name}') ORDER BY id, seq"
            ),
        ),
        indexes: indexes
            .into_iter()
            .map(|index| (index.clone(), describe_index(connection, name, &index)))
            .collect(),
    }
}

fn describe_index(connection: &Connection, table: &str, name: &str) -> Index {
    let wording = wording(connection, name);
    Index {
        kind: rows(
            connection,
            &format!(
                "SELECT \"unique\", origin, partial
                 FROM pragma_index_list('{table}') WHERE name = '{name}'"
            ),
        ),
        columns: rows(
            connection,
            &format!(
                "SELECT name, \"desc\", coll, key
                 FROM pragma_index_xinfo('{name}') ORDER BY seqno"
            ),
        ),
        // What comes after the table's name: `(…) where …`.
        wording: wording
            .split_once(" on ")
            .map_or(String::new(), |(_, rest)| rest.to_owned()),
    }
}

/// The statement that made it: without comments, quotes and needless space, in lower case. Empty
/// for an index that SQLite made by itself.
fn wording(connection: &Connection, name: &str) -> String {
    let sql = rows(
        connection,
        &format!("SELECT sql FROM sqlite_schema WHERE name = '{name}'"),
    );
    let words: Vec<String> = sql[0]
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default())
        .flat_map(str::split_whitespace)
        .map(|word| word.replace('"', "").to_lowercase())
        .collect();
    words.join(" ")
}

/// Every CHECK of a table's statement, in order.
fn checks(wording: &str) -> Vec<String> {
    wording
        .match_indices("check (")
        .map(|(start, opening)| {
            let condition = &wording[start + opening.len()..];
            let mut depth = 1;
            let end = condition.find(|c| {
                depth += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                depth == 0
            });
            condition[..end.unwrap()].to_owned()
        })
        .collect()
}

fn database(statements: &[&str]) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for sql in statements {
        connection.execute_batch(sql).unwrap();
    }
    connection
}

/// Statements that add the columns. NOT NULL needs a default there, which the tables do not have: it
/// is taken away again from the description.
fn add_columns() -> String {
    let add = |(table, column): &(&str, &str)| {
        let parts: Vec<&str> = column.split('|').collect();
        format!("ALTER TABLE {table} ADD COLUMN {} {};", parts[0], parts[1])
    };
    ADDED_COLUMNS.iter().map(add).collect()
}

/// The specification's tables with everything that we add.
fn expected() -> BTreeMap<String, Table> {
    let mut tables = describe(&database(&[SPECIFIED, &add_columns(), ADDED]));
    for (table, column) in ADDED_COLUMNS {
        let columns = &mut tables.get_mut(*table).unwrap().columns;
        let name = column.split('|').next().unwrap();
        let added = columns
            .iter_mut()
            .find(|it| it.split('|').next() == Some(name));
        (*column).clone_into(added.unwrap());
    }
    let states = "state in ('waiting', 'attempted', 'finished')".to_owned();
    let log = tables.get_mut("http_execution_log").unwrap();
    log.checks.push(states);
    let mut timers_only = describe(&Scratch::migrated(SchemaSet::TimersOnly).open());
    timers_only.remove("timer_schedules");
    tables.extend(timers_only);
    tables
}

#[test]
fn the_shared_tables_are_the_specified_ones_with_the_listed_additions() {
    let scratch = Scratch::migrated(SchemaSet::Shared);
    let actual = describe(&scratch.open());
    assert_eq!(actual, expected());
    // The comparison sees what it is meant to see.
    let timers = &actual["timer_schedules"];
    assert_eq!(timers.kind, ["1|0"]);
    assert_eq!(timers.columns.len(), 11);
    assert_eq!(timers.checks, ["state in ('scheduled', 'reached')"]);
    assert_eq!(timers.foreign_keys.len(), 2);
    assert_eq!(timers.indexes.len(), 6);
    assert_eq!(actual["service_calls"].columns.len(), 20);
    assert_eq!(actual["http_execution_log"].checks.len(), 2);
    assert!(actual["outbox"].autoincrement && actual["dead_letters"].autoincrement);
    let own = ["tombstones", "dead_letters", "bus_positions"];
    let columns = own.map(|table| actual[table].columns.len());
    assert_eq!(columns, [3, 7, 6]);
    let indexes = own.map(|table| actual[table].indexes.len());
    assert_eq!(indexes, [2, 1, 1]);
    assert_eq!(
        actual["outbox"].indexes["idx_outbox_unpublished"].wording,
        "outbox(published_at, created_at) where published_at is null"
    );
}

#[test]
fn nothing_that_was_specified_is_changed_by_the_additions() {
    let specified = describe(&database(&[SPECIFIED]));
    let actual = describe(&Scratch::migrated(SchemaSet::Shared).open());
    let mut found = 0;
    for (name, before) in &specified {
        let now = &actual[name];
        assert_eq!(
            (&now.kind, now.autoincrement),
            (&before.kind, before.autoincrement)
        );
        assert_eq!(now.foreign_keys, before.foreign_keys, "{name}");
        assert!(now.columns.starts_with(&before.columns), "{name}");
        assert!(now.checks.starts_with(&before.checks), "{name}");
        for (index, described) in &before.indexes {
            assert_eq!(&now.indexes[index], described, "{index}");
            found += 1;
        }
    }
    assert_eq!((specified.len(), found), (5, 8));
}

#[test]
fn the_timers_only_tables_are_the_shared_ones_without_the_foreign_key() {
    let mut shared = describe(&Scratch::migrated(SchemaSet::Shared).open());
    let timers_only = describe(&Scratch::migrated(SchemaSet::TimersOnly).open());
    shared.retain(|name, _| timers_only.contains_key(name));
    let foreign_key = &mut shared.get_mut("timer_schedules").unwrap().foreign_keys;
    assert_eq!(
        std::mem::take(foreign_key),
        [
            "service_calls|tenant_id|tenant_id|NO ACTION|CASCADE|NONE",
            "service_calls|service_call_id|service_call_id|NO ACTION|CASCADE|NONE"
        ]
    );
    assert_eq!(timers_only, shared);
    assert_eq!(
        timers_only.keys().collect::<Vec<_>>(),
        [
            "bus_positions",
            "database_id",
            "dead_letters",
            "timer_schedules",
            "tombstones"
        ]
    );
}

#[test]
fn the_execution_only_tables_are_the_shared_ones_but_for_what_takes_the_place_of_calls() {
    let mut shared = describe(&Scratch::migrated(SchemaSet::Shared).open());
    let execution_only = describe(&Scratch::migrated(SchemaSet::ExecutionOnly).open());
    shared.retain(|name, _| execution_only.contains_key(name));
    let log = shared.get_mut("http_execution_log").unwrap();
    assert_eq!(std::mem::take(&mut log.foreign_keys).len(), 2);
    let own = &execution_only["http_execution_log"].indexes;
    let finished_at = "idx_http_execution_log_finished_at";
    let added = log
        .indexes
        .insert(finished_at.to_owned(), own[finished_at].clone());
    assert_eq!(added, None);
    assert_eq!(execution_only, shared);
    assert_eq!(
        execution_only.keys().collect::<Vec<_>>(),
        [
            "bus_positions",
            "database_id",
            "dead_letters",
            "http_execution_log",
            "outbox",
            "tombstones"
        ]
    );
}

#[test]
fn the_migrations_create_exactly_what_their_texts_say() {
    for set in SchemaSet::ALL {
        let mut claimed: Vec<&str> = set
            .migrations(Dialect::Sqlite)
            .iter()
            .flat_map(Migration::creates)
            .collect();
        // They are renamed to the tables that they replace.
        claimed.retain(|name| !name.ends_with("_new"));
        // It went with the table that migration 0010 has made anew, with its other indexes.
        claimed.retain(|name| *name != "idx_service_calls_look_at");
        claimed.push("punctual_migrations");
        claimed.sort_unstable();
        claimed.dedup();
        let found = Scratch::migrated(set)
            .rows("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name");
        assert_eq!(found, claimed);
    }
}

#[test]
fn each_index_says_in_the_file_itself_why_it_exists() {
    for set in SchemaSet::ALL {
        let unexplained = Scratch::migrated(set).rows(
            "SELECT name FROM sqlite_schema
             WHERE type = 'index' AND sql IS NOT NULL AND sql NOT LIKE '%-- %'",
        );
        assert_eq!(unexplained, Vec::<String>::new());
    }
}

#[test]
fn each_question_is_answered_through_its_index() {
    for set in SchemaSet::ALL.into_iter().filter(|it| it.has_timers()) {
        let scratch = Scratch::migrated(set);
        for (question, plan) in [
            (
                "SELECT * FROM timer_schedules
                 WHERE tenant_id = 'x' AND state = 'Scheduled' AND due_at <= 'x'
                 ORDER BY due_at ASC LIMIT 100",
                "SEARCH timer_schedules USING INDEX idx_timer_schedules_due_at \
                 (tenant_id=? AND state=? AND due_at<?)",
            ),
            (
                "SELECT * FROM timer_schedules WHERE correlation_id = 'x'",
                "SEARCH timer_schedules USING INDEX idx_timer_schedules_correlation_id \
                 (correlation_id=?)",
            ),
            (
                "SELECT * FROM timer_schedules
                 WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= 'x'
                 ORDER BY coalesce(retry_at, due_at) LIMIT 100",
                "SEARCH timer_schedules USING INDEX idx_timer_schedules_ready (<expr><?)",
            ),
            (
                "SELECT * FROM timer_schedules WHERE tenant_id = 'x' AND state = 'Scheduled' AND
                 coalesce(retry_at, due_at) <= 'x' ORDER BY coalesce(retry_at, due_at) LIMIT 1",
                "SEARCH timer_schedules USING INDEX idx_timer_schedules_tenant_ready \
                 (tenant_id=? AND <expr><?)",
            ),
            (
                "SELECT * FROM timer_schedules
                 WHERE state = 'Reached' AND reached_at < 'x'
                 ORDER BY reached_at LIMIT 100",
                "SEARCH timer_schedules USING INDEX idx_timer_schedules_reached_at (reached_at<?)",
            ),
            (
                "SELECT * FROM tombstones WHERE deleted_at < 'x' ORDER BY deleted_at LIMIT 100",
                "SEARCH tombstones USING INDEX idx_tombstones_deleted_at (deleted_at<?)",
            ),
        ] {
            let found = scratch.rows(&format!("EXPLAIN QUERY PLAN {question}"));
            let steps: Vec<&str> = found
                .iter()
                .map(|step| step.rsplit('|').next().unwrap())
                .collect();
            assert_eq!(steps, [plan], "{question}");
        }
    }
}

const TIMER: &str = "INSERT INTO timer_schedules
    (tenant_id, service_call_id, correlation_id, due_at, registered_at)
    VALUES ('a', '1', 'c', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')";

#[test]
fn deleting_a_service_call_deletes_its_timer_and_no_other() {
    let scratch = Scratch::migrated(SchemaSet::Shared);
    let connection = scratch.open();
    assert!(connection.execute(TIMER, []).is_err(), "it has no parent");
    connection
        .execute_batch(&format!(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at,
                 due_at, request_spec, correlation_id, command_id, version)
             VALUES ('a', '1', 'n', 'Failed', '', '', '', '', '', 1),
                 ('b', '1', 'n', 'Failed', '', '', '', '', '', 1); {TIMER};
             INSERT INTO timer_schedules SELECT 'b', service_call_id, correlation_id, due_at,
                 registered_at, reached_at, state, data, attempts, retry_at, last_error
                 FROM timer_schedules;
             DELETE FROM service_calls WHERE tenant_id = 'a';"
        ))
        .unwrap();
    let left = rows(&connection, "SELECT tenant_id, state FROM timer_schedules");
    assert_eq!(left, ["b|Scheduled"]);
}

#[test]
fn a_state_or_a_type_that_is_not_allowed_is_refused() {
    let scratch = Scratch::migrated(SchemaSet::TimersOnly);
    let connection = scratch.open();
    connection.execute(TIMER, []).unwrap();
    for (change, reason) in [
        ("state = 'Canceled'", "CHECK constraint failed"),
        ("state = NULL", "NOT NULL constraint failed"),
        ("due_at = x'00'", "cannot store BLOB value in TEXT column"),
        (
            "attempts = 'many'",
            "cannot store TEXT value in INTEGER column",
        ),
    ] {
        let error = connection
            .execute(&format!("UPDATE timer_schedules SET {change}"), [])
            .unwrap_err();
        assert!(error.to_string().contains(reason), "{change}: {error}");
    }
}
