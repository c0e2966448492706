//! Changing, deleting and purging calls.

use punctual_domain::Timestamp;
use punctual_domain::service_call::ServiceCall;
use punctual_ports::{CallChange, CallDeletion, ChangeOutcome};
use rusqlite::{OptionalExtension, params};

use super::outbox;
use super::rows::Columns;
use crate::claims::RowId;
use crate::timer_store::rows::{parsed, sql_limit};
use crate::writer::Transaction;
use crate::{call_sql, sql};

/// Changes one call, if it is still as it was seen.
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
                outbox::append(transaction, &change.outbox)?;
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
            seen(change.seen),
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

/// A version as SQLite has it; there is none beyond its greatest.
fn seen(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

/// Deletes one call that is scheduled, with all that belongs to it.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    deletion: &CallDeletion,
    has_timers: bool,
) -> rusqlite::Result<ChangeOutcome> {
    let key = &deletion.key;
    let (tenant, call) = (key.tenant_id.as_str(), key.service_call_id.to_string());
    let timer = timer_of(transaction, tenant, &call)?;
    let deleted = transaction.all_or_nothing(|transaction| {
        let connection = transaction.connection;
        // Its tags, its timer and its attempt go with it.
        let submitted_at: Option<Timestamp> = connection
            .prepare_cached(call_sql::DELETE_CALL)?
            .query_row(params![tenant, call, seen(deletion.seen)], |row| {
                parsed(row, 0)
            })
            .optional()?;
        let Some(submitted_at) = submitted_at else {
            return Ok(false);
        };
        gone(transaction, tenant, &call, deletion.deleted_at)?;
        if has_timers {
            // A schedule is sent when its call is submitted, by a clock that may have been set back
            // since.
            let known = timer.as_ref().and_then(|timer| timer.registered_at);
            let registered_at = known.map_or(submitted_at, |it| it.max(submitted_at));
            let deleted_at = deletion.deleted_at.max(registered_at).to_string();
            connection
                .prepare_cached(sql::ADD_TOMBSTONE)?
                .execute(params![tenant, call, deleted_at])?;
        }
        outbox::append(transaction, &deletion.outbox)?;
        Ok(true)
    })?;
    if deleted {
        transaction.call_ended();
        if has_timers {
            transaction.tombstone_added();
        }
        if let Some(timer) = timer {
            transaction.changes(timer.place);
        }
    }
    Ok(outcome(deleted))
}

struct Timer {
    place: RowId,
    /// `None` if another program wrote it in a form of its own.
    registered_at: Option<Timestamp>,
}

/// The timer of a call, which goes with it: whoever has it in hand has it no more then.
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
                place: row.get(0)?,
                registered_at: parsed(row, 1).ok(),
            })
        })
        .optional()
}

/// The call of a submission is gone; its id and key stay taken.
fn gone(
    transaction: &Transaction<'_>,
    tenant: &str,
    call: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = transaction.connection.prepare_cached(call_sql::GONE)?;
    statement
        .execute(params![tenant, call, at.to_string()])
        .map(drop)
}

/// Removes calls that finished before an instant, and what is remembered of those gone before it.
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
            gone(transaction, tenant, call, now)?;
        }
        let left = limit.saturating_sub(old.len());
        let forgotten = transaction
            .connection
            .prepare_cached(call_sql::PURGE_SUBMISSIONS)?
            .execute(params![before.to_string(), sql_limit(left)])?;
        Ok(old.len() + forgotten)
    })?;
    for timer in timers {
        transaction.changes(timer.place);
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
