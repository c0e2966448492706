//! Finding timers and paging through them.

use std::cmp::Ordering;
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

/// A row ordered by due time, as a page lists both states.
struct ByDue(TimerRow);

impl ByDue {
    const fn position(&self) -> Position {
        (self.0.timer.registration.due_at, self.0.row_id)
    }
}

impl Ord for ByDue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}
impl PartialOrd for ByDue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for ByDue {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}
impl Eq for ByDue {}

/// The position of a page's last row: its due time and rowid.
pub(super) type Position = (Timestamp, RowId);

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
                |row| TimerRow::read(row).map(ByDue),
            )?;
            for row in found {
                rows.push(row?);
            }
        }
    }
    rows.sort_unstable();
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|row| write_cursor(row.position()));
    let timers = rows.into_iter().map(|ByDue(row)| row.entry()).collect();
    Ok(TimerPage { timers, next })
}

fn write_cursor((due_at, row): Position) -> PageCursor {
    PageCursor(format!("{}.{row}", due_at.as_millis()))
}

pub(super) fn read_cursor(cursor: &PageCursor) -> Result<Position, PortError> {
    let parse = || {
        let (due_at, row) = cursor.0.split_once('.')?;
        let due_at = Timestamp::from_millis(due_at.parse().ok()?).ok()?;
        Some((due_at, row.parse().ok()?))
    };
    parse().ok_or_else(|| PageCursor::rejection("list timers"))
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
