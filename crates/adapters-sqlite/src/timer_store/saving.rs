//! Scheduling: inserts first, since most timers are new, and reads an existing row only on conflict.

use punctual_domain::{Existing, Registration, TimerData, TimerKey, Timestamp};
use punctual_ports::{SaveOutcome, SaveTimer};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{by_key, parsed, parsed_or_null};
use crate::claims::RowId;
use crate::port_errors::is_missing_parent;
use crate::sql;
use crate::writer::Transaction;

/// Stores one schedule within the writer's transaction.
pub(super) fn save(
    transaction: &mut Transaction<'_>,
    timer: &SaveTimer,
    now: Timestamp,
) -> rusqlite::Result<SaveOutcome> {
    let may_be_deleted = transaction.has_tombstones()?;
    let saved = save_on(transaction.connection, timer, now, may_be_deleted)?;
    if let Some(row) = saved.changed {
        transaction.changes(row);
    }
    Ok(saved.outcome)
}

/// The outcome of a schedule, and the existing row that it has changed.
pub(crate) struct Saved {
    pub(crate) outcome: SaveOutcome,
    pub(crate) changed: Option<RowId>,
}

impl From<SaveOutcome> for Saved {
    fn from(outcome: SaveOutcome) -> Self {
        let changed = None;
        Self { outcome, changed }
    }
}

/// Stores one schedule on a connection that has the write lock.
pub(crate) fn save_on(
    connection: &Connection,
    timer: &SaveTimer,
    now: Timestamp,
    may_be_deleted: bool,
) -> rusqlite::Result<Saved> {
    let tombstone = if may_be_deleted {
        tombstone(connection, &timer.key)?
    } else {
        None
    };
    // The decision for a new key; if the key exists, the insert does nothing.
    let decision = timer
        .origin
        .decide(Existing::absent(tombstone), timer.due_at, now);
    if let Some(registered_at) = decision.registered_at() {
        match insert(connection, timer, registered_at) {
            Ok(true) => {
                if tombstone.is_some() {
                    remove_tombstone(connection, &timer.key)?;
                }
                return Ok(SaveOutcome::Created.into());
            }
            Ok(false) => {}
            Err(error) if is_missing_parent(&error) => return Ok(SaveOutcome::NoParent.into()),
            Err(error) => return Err(error),
        }
    }
    match existing(connection, &timer.key)? {
        Some(found) => change(connection, timer, &found, now),
        None => Ok(SaveOutcome::Stale.into()),
    }
}

fn insert(
    connection: &Connection,
    timer: &SaveTimer,
    registered_at: Timestamp,
) -> rusqlite::Result<bool> {
    let inserted = connection.prepare_cached(sql::INSERT)?.execute(params![
        timer.key.tenant_id.as_str(),
        timer.key.service_call_id.to_string(),
        timer.correlation_id.to_string(),
        timer.due_at.to_string(),
        registered_at.to_string(),
        timer.data.as_ref().map(TimerData::as_json),
    ])?;
    Ok(inserted == 1)
}

/// Reschedules an existing row, if the rules say so.
fn change(
    connection: &Connection,
    timer: &SaveTimer,
    found: &Found,
    now: Timestamp,
) -> rusqlite::Result<Saved> {
    let decision = timer.origin.decide(found.existing(), timer.due_at, now);
    let Some(registered_at) = decision.registered_at() else {
        return Ok(SaveOutcome::from(decision).into());
    };
    connection
        .prepare_cached(sql::RESCHEDULE)?
        .execute(params![
            found.row_id,
            timer.correlation_id.to_string(),
            timer.due_at.to_string(),
            registered_at.to_string(),
            timer.data.as_ref().map(TimerData::as_json),
        ])?;
    Ok(Saved {
        outcome: decision.into(),
        changed: Some(found.row_id),
    })
}

/// The stored row of a key.
pub(super) struct Found {
    pub(super) row_id: RowId,
    pub(super) registration: Registration,
    pub(super) reached_at: Option<Timestamp>,
    pub(super) ready_at: Timestamp,
}

impl Found {
    pub(super) const fn existing(&self) -> Existing {
        Existing::timer(self.registration, self.reached_at.is_some())
    }
}

pub(super) fn existing(connection: &Connection, key: &TimerKey) -> rusqlite::Result<Option<Found>> {
    connection
        .prepare_cached(sql::EXISTING)?
        .query_row(by_key(key), |row| {
            Ok(Found {
                row_id: row.get(0)?,
                registration: Registration {
                    registered_at: parsed(row, 1)?,
                    due_at: parsed(row, 2)?,
                },
                reached_at: parsed_or_null(row, 3)?,
                ready_at: parsed(row, 4)?,
            })
        })
        .optional()
}

fn tombstone(connection: &Connection, key: &TimerKey) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .prepare_cached(sql::TOMBSTONE)?
        .query_row(by_key(key), |row| parsed(row, 0))
        .optional()
}

fn remove_tombstone(connection: &Connection, key: &TimerKey) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::REMOVE_TOMBSTONE)?
        .execute(by_key(key))
        .map(drop)
}
