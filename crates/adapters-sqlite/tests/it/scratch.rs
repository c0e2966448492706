//! Files to test on: where they live, how they are made, and everything that is in them.

use std::path::{Path, PathBuf};

use punctual_adapters_sqlite::{SchemaSet, migrate};
use punctual_domain::Timestamp;
use punctual_migrations::{Dialect, SQLITE_HISTORY};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::store::folder;

/// A temporary folder with a database file; removed when dropped.
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// In memory where that is possible.
    pub(crate) fn new() -> Self {
        Self { folder: folder() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("a.db")
    }

    /// A file that has been through every migration of the set.
    pub(crate) fn migrated(set: SchemaSet) -> Self {
        let scratch = Self::new();
        migrate(&scratch.path(), set, now()).unwrap();
        scratch
    }

    /// A file that has been through the first migrations of the set only.
    pub(crate) fn migrated_halfway(set: SchemaSet, count: usize) -> Self {
        let scratch = Self::new();
        let connection = scratch.open();
        connection.execute_batch(SQLITE_HISTORY).unwrap();
        for migration in &set.migrations(Dialect::Sqlite)[..count] {
            connection.execute_batch(migration.sql).unwrap();
            connection
                .execute(
                    "INSERT INTO punctual_migrations VALUES (?1, ?2, ?3, ?4, ?5, '0.0.1')",
                    params![
                        migration.version,
                        migration.name,
                        migration.checksum,
                        set.name(),
                        "2025-11-14T00:00:00.000Z"
                    ],
                )
                .unwrap();
        }
        drop(connection);
        scratch
    }

    pub(crate) fn open(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Runs statements with foreign keys off.
    pub(crate) fn execute(&self, sql: &str) {
        let connection = self.open();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// The rows of a query, each as its values with bars between.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.open(), sql)
    }

    /// The schema and every row of every table.
    pub(crate) fn contents(&self) -> Vec<String> {
        let mut contents = self.rows("SELECT * FROM sqlite_schema ORDER BY type, name");
        for table in self.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        {
            contents.push(format!("rows of {table}"));
            contents.extend(self.rows(&format!("SELECT * FROM \"{table}\"")));
        }
        contents
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-12-24T18:00:00Z".parse().unwrap()
}

/// The rows of a query, each as its values with bars between.
pub(crate) fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let width = statement.column_count();
    statement
        .query_map([], |row| {
            let values: Vec<String> = (0..width)
                .map(|column| match row.get_unwrap(column) {
                    Value::Null => "NULL".to_owned(),
                    Value::Integer(number) => number.to_string(),
                    Value::Real(number) => number.to_string(),
                    Value::Text(text) => text,
                    Value::Blob(bytes) => format!("{bytes:?}"),
                })
                .collect();
            Ok(values.join("|"))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
}
