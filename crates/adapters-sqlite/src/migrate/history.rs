//! The table of applied migrations. SQLite's `user_version` is left to the host.

use std::path::Path;

use punctual_domain::Timestamp;
use punctual_migrations::{Applied, Dialect, Migration, SQLITE_HISTORY, SchemaSet};
use rusqlite::{Connection, Row, params};

use super::report::MigrationState;
use crate::OpenError;
use crate::open_error::open_error;
use crate::timer_store::rows::parsed;

pub(super) const TABLE: &str = "punctual_migrations";

const COLUMNS: [&str; 6] = [
    "version",
    "name",
    "checksum",
    "set_name",
    "applied_at",
    "app_version",
];

/// The applied migrations of a file.
pub(super) struct History {
    /// `None` if the file has no history table.
    rows: Option<Vec<Entry>>,
}

struct Entry {
    applied: Applied,
    at: Timestamp,
}

impl History {
    pub(super) fn read(connection: &Connection, path: &Path) -> Result<Self, OpenError> {
        let columns = columns(connection).map_err(|error| open_error(path, error))?;
        if columns.is_empty() {
            return Ok(Self { rows: None });
        }
        // A newer program may have added columns; without ours the table is foreign.
        if !COLUMNS
            .iter()
            .all(|ours| columns.iter().any(|it| it == ours))
        {
            return Err(OpenError::Foreign {
                path: path.to_owned(),
                object: format!("table {TABLE}"),
            });
        }
        let rows = rows(connection).map_err(|error| match error {
            // Only a foreign row does not convert.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..) => OpenError::Drift {
                path: path.to_owned(),
                detail: format!("a row of {TABLE} is not readable: {error}"),
            },
            other => open_error(path, other),
        })?;
        Ok(Self { rows: Some(rows) })
    }

    pub(super) fn exists(&self) -> bool {
        self.rows.is_some()
    }

    fn entries(&self) -> &[Entry] {
        self.rows.as_deref().unwrap_or_default()
    }

    /// The rows as the planner wants them.
    pub(super) fn applied(&self) -> Vec<Applied> {
        self.entries()
            .iter()
            .map(|entry| entry.applied.clone())
            .collect()
    }

    /// The set's migrations, each with the time at which it was applied.
    pub(super) fn states(&self, set: SchemaSet) -> Vec<MigrationState> {
        set.migrations(Dialect::Sqlite)
            .iter()
            .map(|migration| MigrationState {
                version: migration.version,
                name: migration.name,
                applied_at: self
                    .entries()
                    .iter()
                    .find(|entry| entry.applied.version == migration.version)
                    .map(|entry| entry.at),
            })
            .collect()
    }
}

/// Creates the empty table.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SQLITE_HISTORY)
}

/// Records an applied migration.
pub(super) fn record(
    connection: &Connection,
    set: SchemaSet,
    migration: &Migration,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO punctual_migrations (
                 version, name, checksum, set_name, applied_at, app_version
             ) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            migration.version,
            migration.name,
            migration.checksum,
            set.name(),
            now.to_string(),
            env!("CARGO_PKG_VERSION"),
        ])?;
    Ok(())
}

/// The columns of the history table; none if there is no such table.
fn columns(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare("SELECT name FROM pragma_table_info(?1)")?
        .query_map([TABLE], |row| row.get(0))?
        .collect()
}

fn rows(connection: &Connection) -> rusqlite::Result<Vec<Entry>> {
    connection
        .prepare(
            "SELECT version, name, checksum, set_name, applied_at
             FROM punctual_migrations
             ORDER BY version",
        )?
        .query_map([], entry)?
        .collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        applied: Applied {
            version: row.get(0)?,
            name: row.get(1)?,
            checksum: row.get(2)?,
            set: row.get(3)?,
        },
        at: parsed(row, 4)?,
    })
}
