//! Refusals to migrate a file because of its tables.
//!
//! The tables of an embedder are ignored, with their contents and their references to each other.

use std::collections::BTreeSet;
use std::path::Path;

use punctual_migrations::{Dialect, Migration, SchemaSet};
use rusqlite::{Connection, OptionalExtension};

use super::history::{self, History};
use crate::OpenError;
use crate::open_error::open_error;

/// Refuses a file in which a foreign object has a name that a pending migration needs. Objects that an
/// applied one has created are ours, and a later one may recreate them.
pub(super) fn refuse_taken_names(
    connection: &Connection,
    path: &Path,
    set: SchemaSet,
    history: &History,
    pending: &[&'static Migration],
) -> Result<(), OpenError> {
    let is_pending =
        |migration: &&Migration| pending.iter().any(|it| it.version == migration.version);
    let applied = set
        .migrations(Dialect::Sqlite)
        .iter()
        .filter(|it| !is_pending(it));
    let ours: BTreeSet<_> = applied.flat_map(Migration::creates).collect();
    let needed = pending.iter().flat_map(|migration| migration.creates());
    let own = (!history.exists()).then_some(history::TABLE);
    for name in own
        .into_iter()
        .chain(needed.filter(|name| !ours.contains(name)))
    {
        let taken = object_named(connection, name).map_err(|error| open_error(path, error))?;
        if let Some(object) = taken {
            return Err(OpenError::Foreign {
                path: path.to_owned(),
                object,
            });
        }
    }
    Ok(())
}

fn object_named(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT type || ' ' || name FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE",
        )?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Refuses a file in which one of our tables is damaged: a migration would spread the damage.
pub(super) fn refuse_damaged_tables(
    connection: &Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(), OpenError> {
    let wrap = |error| open_error(path, error);
    // SQLite writes to its AUTOINCREMENT table whenever a table is created or dropped.
    let shared = [history::TABLE, "sqlite_sequence"];
    for name in our_names(set).into_iter().chain(shared) {
        if object_named(connection, name).map_err(wrap)? != Some(format!("table {name}")) {
            continue;
        }
        let mut found = Vec::new();
        connection
            .pragma(None, "quick_check", name, |row| {
                found.push(row.get::<_, String>(0)?);
                Ok(())
            })
            .map_err(wrap)?;
        if found != ["ok"] {
            return Err(OpenError::Corrupt {
                path: path.to_owned(),
                detail: found.join("; "),
            });
        }
    }
    Ok(())
}

/// Refuses a file in which rows of ours, or rows that refer to ours, refer to missing rows.
pub(super) fn refuse_dangling_rows(
    connection: &Connection,
    path: &Path,
    set: SchemaSet,
) -> Result<(), OpenError> {
    let found = dangling_rows(connection, set).map_err(|error| open_error(path, error))?;
    match found {
        None => Ok(()),
        Some((table, parent, rows)) => Err(OpenError::DanglingRows {
            path: path.to_owned(),
            table,
            parent,
            rows,
        }),
    }
}

fn dangling_rows(
    connection: &Connection,
    set: SchemaSet,
) -> rusqlite::Result<Option<(String, String, i64)>> {
    let ours = our_names(set);
    let concerns_us = |table: &str, parent: &str| {
        let is_ours = |name: &str| ours.iter().any(|it| it.eq_ignore_ascii_case(name));
        is_ours(table) || is_ours(parent)
    };
    let mut references = references(connection)?;
    references.retain(|(table, parent)| concerns_us(table, parent));
    let children: BTreeSet<String> = references.into_iter().map(|(table, _)| table).collect();
    let mut check = connection
        .prepare("SELECT parent, count(*) FROM pragma_foreign_key_check(?1) GROUP BY parent")?;
    for table in children {
        let mut rows = check.query([&table])?;
        while let Some(row) = rows.next()? {
            let parent: String = row.get(0)?;
            if concerns_us(&table, &parent) {
                return Ok(Some((table, parent, row.get(1)?)));
            }
        }
    }
    Ok(None)
}

/// Every table that refers to another, with the one it refers to.
fn references(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    connection
        .prepare(
            "SELECT DISTINCT child.name, reference.\"table\"
             FROM sqlite_schema AS child, pragma_foreign_key_list(child.name) AS reference
             WHERE child.type = 'table'",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn our_names(set: SchemaSet) -> BTreeSet<&'static str> {
    set.migrations(Dialect::Sqlite)
        .iter()
        .flat_map(Migration::creates)
        .collect()
}
