//! Files in the states from which the unit tests of migrating begin, and a way to compare files.

use std::path::Path;

use punctual_domain::Timestamp;
use punctual_migrations::{Dialect, Migration, SchemaSet};
use rusqlite::{Connection, types::Value};
use tempfile::TempDir;

use super::apply::apply;
use super::history::History;
use super::log_mode::use_write_ahead_log;

/// A state from which a run begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scenario {
    /// No file at all.
    Fresh(SchemaSet),
    /// A file that knows only the stub tables, with rows in each and an embedder's rows that refer
    /// to a timer.
    Stubs,
}

impl Scenario {
    pub(super) const ALL: [Self; 4] = [
        Self::Fresh(SchemaSet::Shared),
        Self::Fresh(SchemaSet::TimersOnly),
        Self::Fresh(SchemaSet::ExecutionOnly),
        Self::Stubs,
    ];

    pub(super) fn set(self) -> SchemaSet {
        match self {
            Self::Fresh(set) => set,
            Self::Stubs => SchemaSet::Shared,
        }
    }

    /// Writes the file.
    pub(super) fn begin(self, path: &Path) {
        if let Self::Stubs = self {
            write_stubs(path);
        }
    }
}

fn write_stubs(path: &Path) {
    let mut connection = Connection::open(path).unwrap();
    use_write_ahead_log(&mut connection, path).unwrap();
    let first: &Migration = &SchemaSet::Shared.migrations(Dialect::Sqlite)[0];
    let history = History::read(&connection, path).unwrap();
    apply(&connection, SchemaSet::Shared, &history, &[first], now()).unwrap();
    connection
        .execute_batch(
            "INSERT INTO service_calls VALUES ('a', '1'), ('a', '2'), ('b', '1');
             INSERT INTO timer_schedules VALUES ('a', '1'), ('b', '1');
             INSERT INTO http_execution_log VALUES ('a', '1', 'x'), ('a', '2', 'y');
             INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at)
             VALUES ('a', '1', 'ServiceCallSubmitted', '{}', '2026-01-01T00:00:00.000Z');
             CREATE TABLE theirs (
                 tenant TEXT,
                 call TEXT,
                 FOREIGN KEY (tenant, call) REFERENCES timer_schedules(tenant_id, service_call_id)
                     ON DELETE CASCADE
             );
             INSERT INTO theirs VALUES ('a', '1'), ('b', '1');",
        )
        .unwrap();
}

pub(super) fn now() -> Timestamp {
    "2026-12-24T18:00:00Z".parse().unwrap()
}

/// A folder that lives in memory where that is possible.
pub(super) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Everything in a file: the schema and every row of every table. Empty if there is no file.
pub(super) fn contents(path: &Path) -> Vec<String> {
    if !path.exists() {
        return Vec::new();
    }
    let connection = Connection::open(path).unwrap();
    let mut contents = rows(
        &connection,
        "SELECT * FROM sqlite_schema ORDER BY type, name",
    );
    let tables = rows(
        &connection,
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
    );
    for table in tables {
        let table = table.trim_matches(['[', ']', '"']);
        contents.push(format!("rows of {table}"));
        contents.extend(rows(&connection, &format!("SELECT * FROM {table}")));
    }
    contents
}

fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let width = statement.column_count();
    statement
        .query_map([], |row| {
            let values: Vec<String> = (0..width)
                .map(|column| match row.get_unwrap(column) {
                    Value::Text(text) => text,
                    other => format!("{other:?}"),
                })
                .collect();
            Ok(values.join("|"))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
}
