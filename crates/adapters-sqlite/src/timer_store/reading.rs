//! Finding timers and paging through them.

use std::collections::BTreeMap;

use punctual_domain::{
    CorrelationId, ScheduledTimer, TenantId, TimerEntry, TimerKey, TimerState, Timestamp,
};
use punctual_ports::{Backlog, PageCursor, PortError, TimerPage, TimerPageQuery};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{TimerRow, sql_limit};
use crate::claims::RowId;
use crate::sql;

pub(super) fn find(
    connection: &Connection,
    key: &TimerKey,
) -> rusqlite::Result<Option<TimerEntry>> {
    let call = key.service_call_id.to_string();
    let row = connection
        .prepare_cached(sql::FIND)?
        .query_row(params![key.tenant_id.as_str(), call], TimerRow::read)
        .optional()?;
    Ok(row.map(TimerRow::entry))
}

pub(super) fn find_due(
    connection: &Connection,
    tenant_id: &TenantId,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<ScheduledTimer>> {
    let mut statement = connection.prepare_cached(sql::FIND_DUE)?;
    let rows = statement.query_map(
        params![tenant_id.as_str(), now.to_string(), sql_limit(limit)],
        TimerRow::read,
    )?;
    rows.map(|row| row.map(|row| row.timer)).collect()
}

/// The index does not order a request's timers. At most `limit` of them are kept in memory.
pub(super) fn find_by_correlation(
    connection: &Connection,
    correlation_id: CorrelationId,
    after: Option<&TimerKey>,
    limit: usize,
) -> rusqlite::Result<Vec<TimerEntry>> {
    let mut statement = connection.prepare_cached(sql::FIND_BY_CORRELATION)?;
    let rows = statement.query_map(params![correlation_id.to_string()], TimerRow::read)?;
    let mut first = BTreeMap::new();
    for row in rows {
        let row = row?;
        if after.is_none_or(|after| row.timer.key > *after) {
            first.insert(row.timer.key.clone(), row);
        }
        if first.len() > limit {
            first.pop_last();
        }
    }
    Ok(first.into_values().map(TimerRow::entry).collect())
}

/// The position of a page's last row: its due time and rowid.
pub(super) type Position = (Timestamp, RowId);

const fn position(row: &TimerRow) -> Position {
    (row.timer.registration.due_at, row.row_id)
}

pub(super) fn page(
    connection: &Connection,
    query: &TimerPageQuery,
    after: Option<Position>,
) -> rusqlite::Result<TimerPage> {
    let wanted = query.limit.saturating_add(1);
    let mut rows = Vec::new();
    // One snapshot: otherwise a timer that is reached meanwhile is listed twice, or not at all.
    let connection = connection.unchecked_transaction()?;
    // An index orders the timers of one state, none those of both.
    for (state, statement) in [
        (TimerState::Scheduled, sql::PAGE_SCHEDULED),
        (TimerState::Reached, sql::PAGE_REACHED),
    ] {
        if query.state.is_none_or(|wanted| wanted == state) {
            let (due_at, row_id) = after.unwrap_or((Timestamp::MIN, RowId::MIN));
            let mut statement = connection.prepare_cached(statement)?;
            let found = statement.query_map(
                params![
                    query.tenant_id.as_str(),
                    due_at.to_string(),
                    row_id,
                    sql_limit(wanted)
                ],
                TimerRow::read,
            )?;
            for row in found {
                rows.push(row?);
            }
        }
    }
    rows.sort_unstable_by_key(position);
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    let last = rows.last().filter(|_| more);
    let next = last.map(|row| PageCursor::after_due(position(row).0, row.row_id));
    let timers = rows.into_iter().map(TimerRow::entry).collect();
    Ok(TimerPage { timers, next })
}

pub(super) fn read_cursor(cursor: &PageCursor) -> Result<Position, PortError> {
    let position = cursor.due();
    position.ok_or_else(|| PageCursor::rejection("list timers"))
}

/// Pending and overdue timers, counted up to `limit`.
pub(super) fn backlog(
    connection: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Backlog> {
    let counted = |count: i64| usize::try_from(count).unwrap_or_default().min(limit);
    let mut pending = connection.prepare_cached(sql::PENDING)?;
    let pending = pending.query_row([], |row| row.get(0))?;
    let mut overdue = connection.prepare_cached(sql::OVERDUE)?;
    let overdue = overdue.query_row(params![now.to_string()], |row| row.get(0))?;
    Ok(Backlog {
        pending: counted(pending),
        overdue: counted(overdue),
    })
}
