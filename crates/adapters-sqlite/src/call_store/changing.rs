//! Changing, deleting and purging calls.

use punctual_domain::Timestamp;
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::ServiceCall;
use punctual_ports::{CallChange, CallDeletion, ChangeOutcome};
use rusqlite::{OptionalExtension, params};

use super::outbox;
use super::rows::Columns;
use crate::claims::RowId;
use crate::timer_store::rows::{by_key, parsed, sql_limit};
use crate::writer::Transaction;
use crate::{call_sql, sql};

/// Changes one call, if its version has not changed.
pub(super) fn change(
    transaction: &mut Transaction<'_>,
    change: &CallChange,
) -> rusqlite::Result<ChangeOutcome> {
    let outcome = if change.outbox.is_empty() {
        write(transaction, change)?
    } else {
        transaction.all_or_nothing(|transaction| {
            let outcome = write(transaction, change)?;
            if outcome == ChangeOutcome::Changed {
                outbox::append(transaction, &change.outbox, change.listeners)?;
            }
            Ok(outcome)
        })?
    };
    let has_ended = matches!(change.call, ServiceCall::Finished(_));
    if has_ended && outcome == ChangeOutcome::Changed {
        transaction.call_ended();
    }
    Ok(outcome)
}

fn write(transaction: &Transaction<'_>, change: &CallChange) -> rusqlite::Result<ChangeOutcome> {
    let key = &change.call.details().key;
    let columns = Columns::of(&change.call)?;
    let changed = transaction
        .connection
        .prepare_cached(call_sql::CHANGE_CALL)?
        .execute(params![
            key.tenant_id.as_str(),
            key.service_call_id.to_string(),
            columns.status,
            columns.request_spec,
            columns.next_check_at,
            columns.started_at,
            columns.finished_at,
            columns.outcome_meta,
            columns.execution_id,
            columns.caused_by,
            columns.timeout_ms,
            columns.attempt_began_at,
            columns.dispatched_at,
            columns.dispatch_count,
            sql_version(change.expected_version),
        ])?;
    Ok(outcome(changed == 1))
}

const fn outcome(changed: bool) -> ChangeOutcome {
    if changed {
        ChangeOutcome::Changed
    } else {
        ChangeOutcome::Outdated
    }
}

/// A version as an SQLite integer; -1, which no row has, if it is too great.
fn sql_version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

/// Deletes one scheduled call, with its tags, timer and attempt.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    deletion: &CallDeletion,
    has_timers: bool,
) -> rusqlite::Result<ChangeOutcome> {
    let (tenant, call) = by_key(&deletion.key);
    let timer = timer_of(transaction, tenant, &call)?;
    let deleted = transaction.all_or_nothing(|transaction| {
        let connection = transaction.connection;
        // Cascades to its tags, timer and attempt.
        let submitted_at: Option<Timestamp> = connection
            .prepare_cached(call_sql::DELETE_CALL)?
            .query_row(
                params![tenant, call, sql_version(deletion.expected_version)],
                |row| parsed(row, 0),
            )
            .optional()?;
        let Some(submitted_at) = submitted_at else {
            return Ok(false);
        };
        mark_deleted(transaction, tenant, &call, deletion.deleted_at)?;
        if has_timers {
            // The clock may have been set back since the call was submitted.
            let known = timer.as_ref().and_then(|timer| timer.registered_at);
            let registered_at = known.map_or(submitted_at, |it| it.max(submitted_at));
            let deleted_at = deletion.deleted_at.max(registered_at).to_string();
            connection
                .prepare_cached(sql::ADD_TOMBSTONE)?
                .execute(params![tenant, call, deleted_at])?;
        }
        outbox::append(transaction, &deletion.outbox, Listeners::Anyone)?;
        Ok(true)
    })?;
    if deleted {
        transaction.call_ended();
        if has_timers {
            transaction.tombstone_added();
        }
        if let Some(timer) = timer {
            transaction.changes(timer.row_id);
        }
    }
    Ok(outcome(deleted))
}

struct Timer {
    row_id: RowId,
    /// `None` if another program wrote it in another form.
    registered_at: Option<Timestamp>,
}

/// The timer of a call. Deleting it ends its lease.
fn timer_of(
    transaction: &Transaction<'_>,
    tenant: &str,
    call: &str,
) -> rusqlite::Result<Option<Timer>> {
    transaction
        .connection
        .prepare_cached(call_sql::TIMER_OF_CALL)?
        .query_row(params![tenant, call], |row| {
            Ok(Timer {
                row_id: row.get(0)?,
                registered_at: parsed(row, 1).ok(),
            })
        })
        .optional()
}

/// Records that the call of a submission was deleted; its id and key stay taken.
fn mark_deleted(
    transaction: &Transaction<'_>,
    tenant: &str,
    call: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = transaction
        .connection
        .prepare_cached(call_sql::MARK_CALL_DELETED)?;
    statement
        .execute(params![tenant, call, at.to_string()])
        .map(drop)
}

/// Removes calls that finished before an instant, and submissions whose calls were deleted before it.
pub(super) fn purge(
    transaction: &mut Transaction<'_>,
    before: Timestamp,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let mut timers = Vec::new();
    let purged = transaction.all_or_nothing(|transaction| {
        let old = old_calls(transaction, before, limit)?;
        for (row, tenant, call) in &old {
            timers.extend(timer_of(transaction, tenant, call)?);
            let connection = transaction.connection;
            connection
                .prepare_cached(call_sql::REMOVE_CALL)?
                .execute(params![row])?;
            mark_deleted(transaction, tenant, call, now)?;
        }
        let left = limit.saturating_sub(old.len());
        let forgotten = transaction
            .connection
            .prepare_cached(call_sql::PURGE_SUBMISSIONS)?
            .execute(params![before.to_string(), sql_limit(left)])?;
        Ok(old.len() + forgotten)
    })?;
    for timer in timers {
        transaction.changes(timer.row_id);
    }
    Ok(purged)
}

fn old_calls(
    transaction: &Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<(RowId, String, String)>> {
    let mut statement = transaction.connection.prepare_cached(call_sql::OLD_CALLS)?;
    let rows = statement.query_map(params![before.to_string(), sql_limit(limit)], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    rows.collect()
}
