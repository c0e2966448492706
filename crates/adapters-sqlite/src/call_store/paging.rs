//! Pages of a tenant's calls.
//!
//! An index lists the calls of each status and of each tag in the order of the page. A single list is
//! read as it is. Several lists are intersected: the list that is furthest back says where the others
//! continue, so that the work is bounded by the shortest list.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{ServiceCallId, TenantId, TimerKey};
use punctual_ports::{CallPage, CallPageQuery, PageCursor, PortError};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::reading::find;
use super::rows::{read_call, readable};
use crate::call_sql;

/// Maximum number of steps for one page, besides those that its calls need. Lists with few common calls
/// would take long; the next page continues where this one ended.
const MAX_STEPS: usize = 2_500;
/// Sorts after every due time.
const END: &str = "~";

/// A position in the list, as text. The list is in descending order of due time and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListPosition {
    due_at: String,
    call: String,
}

impl ListPosition {
    fn of(call: &ServiceCall) -> Self {
        let details = call.details();
        Self {
            due_at: details.due_at.to_string(),
            call: details.key.service_call_id.to_string(),
        }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            due_at: row.get(0)?,
            call: row.get(1)?,
        })
    }

    /// The position just before this one, so that a bound includes this one.
    fn included(mut self) -> Self {
        self.call.push_str(END);
        self
    }

    /// `None` if another program wrote the due time in another form.
    fn cursor(&self) -> Option<PageCursor> {
        let due_at = self.due_at.parse().ok()?;
        Some(PageCursor::after_due(due_at, &self.call))
    }

    pub(super) fn of_cursor(cursor: &PageCursor) -> Result<Self, PortError> {
        let parse = || {
            let (due_at, call) = cursor.due::<String>()?;
            let id: ServiceCallId = call.strip_suffix(END).unwrap_or(&call).parse().ok()?;
            let position = Self {
                due_at: due_at.to_string(),
                call: id.to_string(),
            };
            Some(if call.ends_with(END) {
                position.included()
            } else {
                position
            })
        };
        parse().ok_or_else(|| PageCursor::rejection("list service calls"))
    }
}

/// The bounds of every list.
struct Bounds<'a> {
    tenant_id: &'a TenantId,
    from: String,
}

pub(super) fn page(
    connection: &Connection,
    query: &CallPageQuery,
    after: Option<ListPosition>,
) -> rusqlite::Result<CallPage> {
    // One snapshot: otherwise a call whose status changes meanwhile is on some lists only.
    let connection = connection.unchecked_transaction()?;
    let bounds = Bounds {
        tenant_id: &query.tenant_id,
        from: query.from.map_or(String::new(), |from| from.to_string()),
    };
    let start = ListPosition {
        due_at: query.to.map_or(END.to_owned(), |to| to.to_string()),
        call: String::new(),
    };
    let start = after.map_or(start.clone(), |after| after.min(start));
    if query.tags.is_empty() {
        return one_list(&connection, query, &bounds, &start);
    }
    several_lists(&connection, query, &bounds, start)
}

fn one_list(
    connection: &Connection,
    query: &CallPageQuery,
    bounds: &Bounds<'_>,
    start: &ListPosition,
) -> rusqlite::Result<CallPage> {
    let tenant = bounds.tenant_id.as_str();
    let (mut statement, mut rows);
    if let Some(status) = query.status {
        statement = connection.prepare_cached(call_sql::PAGE_OF_STATUS)?;
        let status = status.as_str();
        rows = statement.query(params![
            tenant,
            bounds.from,
            start.due_at,
            start.call,
            status
        ])?;
    } else {
        statement = connection.prepare_cached(call_sql::PAGE)?;
        rows = statement.query(params![tenant, bounds.from, start.due_at, start.call])?;
    }
    let mut calls = Vec::new();
    while calls.len() <= query.limit
        && let Some(row) = rows.next()?
    {
        let stored = readable("service call", read_call(row))?;
        calls.extend(stored.map(|stored| stored.call));
    }
    Ok(cut(calls, query.limit))
}

/// Cuts off the call beyond the limit, which means that there is another page.
fn cut(mut calls: Vec<ServiceCall>, limit: usize) -> CallPage {
    let more = calls.len() > limit;
    calls.truncate(limit);
    let last = calls.last().filter(|_| more);
    let next = last.and_then(|last| ListPosition::of(last).cursor());
    CallPage { calls, next }
}

/// The calls of one tag, or of one status, from the latest due on.
struct List<'a> {
    statement: CachedStatement<'a>,
    of: String,
}

impl List<'_> {
    /// The first call after a position.
    fn after(
        &mut self,
        bounds: &Bounds<'_>,
        position: &ListPosition,
    ) -> rusqlite::Result<Option<ListPosition>> {
        let tenant = bounds.tenant_id.as_str();
        let bounds = params![tenant, bounds.from, position.due_at, position.call, self.of];
        self.statement
            .query_row(bounds, ListPosition::read)
            .optional()
    }
}

fn lists<'a>(connection: &'a Connection, query: &CallPageQuery) -> rusqlite::Result<Vec<List<'a>>> {
    let tags = query.tags.iter();
    let tags = tags.map(|tag| (call_sql::NEXT_OF_TAG, tag.as_str()));
    let status = query.status.iter();
    let status = status.map(|status| (call_sql::NEXT_OF_STATUS, status.as_str()));
    tags.chain(status)
        .map(|(statement, of)| {
            Ok(List {
                statement: connection.prepare_cached(statement)?,
                of: of.to_owned(),
            })
        })
        .collect()
}

fn several_lists(
    connection: &Connection,
    query: &CallPageQuery,
    bounds: &Bounds<'_>,
    start: ListPosition,
) -> rusqlite::Result<CallPage> {
    let mut lists = lists(connection, query)?;
    let mut calls = Vec::new();
    let (mut position, mut agreeing, mut turn) = (start, 0, 0);
    let needed = query.limit.saturating_add(1).saturating_mul(lists.len());
    for _ in 0..needed.saturating_add(MAX_STEPS) {
        let Some(found) = lists[turn].after(bounds, &position)? else {
            return Ok(cut(calls, query.limit));
        };
        let candidate = found.clone().included();
        agreeing = if agreeing > 0 && candidate == position {
            agreeing + 1
        } else {
            1
        };
        position = candidate;
        turn = (turn + 1) % lists.len();
        if agreeing < lists.len() {
            continue;
        }
        agreeing = 0;
        if let Ok(call) = found.call.parse() {
            let key = TimerKey::new(query.tenant_id.clone(), call);
            let stored = find(connection, std::slice::from_ref(&key))?
                .pop()
                .flatten();
            calls.extend(stored.map(|stored| stored.call));
        }
        if calls.len() > query.limit {
            return Ok(cut(calls, query.limit));
        }
        position = found;
    }
    let next = position.cursor();
    Ok(CallPage { calls, next })
}
