//! Lists of a tenant's calls, page by page.
//!
//! Each thing that is asked for, a status or a tag, is a list of its own in the order of the page,
//! kept by an index. One list is read as it is. Of several, the calls are wanted that are on all of
//! them: whoever is furthest back says where the others go on, so that the work is bounded by the
//! shortest list and not by the longest.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{CallPage, CallPageQuery, PageCursor, PortError};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::reading::find_one;
use super::rows::{read_call, readable};
use crate::call_sql;

/// So many steps are made for one page at most, besides those that its calls need. Lists that keep
/// missing each other would take long, and the next page goes on where this one ended.
const MOST_STEPS: usize = 2_500;
/// Comes after every due time.
const END: &str = "~";

/// A place in the list, as text: what comes before it in the order of due times and ids is behind it in
/// the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    due_at: String,
    call: String,
}

impl Place {
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

    /// The place just before this one, so that this one itself is behind it.
    fn included(mut self) -> Self {
        self.call.push_str(END);
        self
    }

    /// `None` for what another program has written in a form of its own.
    fn cursor(&self) -> Option<PageCursor> {
        let due_at: Timestamp = self.due_at.parse().ok()?;
        Some(PageCursor(format!("{}.{}", due_at.as_millis(), self.call)))
    }

    pub(super) fn of_cursor(cursor: &PageCursor) -> Result<Self, PortError> {
        let parse = || {
            let (due_at, call) = cursor.0.split_once('.')?;
            let due_at = Timestamp::from_millis(due_at.parse().ok()?).ok()?;
            let id: ServiceCallId = call.strip_suffix(END).unwrap_or(call).parse().ok()?;
            let place = Self {
                due_at: due_at.to_string(),
                call: id.to_string(),
            };
            Some(if call.ends_with(END) {
                place.included()
            } else {
                place
            })
        };
        parse().ok_or_else(|| PageCursor::rejection("list service calls"))
    }
}

/// What every list is read with.
struct Bounds<'a> {
    tenant_id: &'a TenantId,
    from: String,
}

pub(super) fn page(
    connection: &Connection,
    query: &CallPageQuery,
    after: Option<Place>,
) -> rusqlite::Result<CallPage> {
    // One snapshot: a call that changes its status meanwhile would be found by half.
    let connection = connection.unchecked_transaction()?;
    let bounds = Bounds {
        tenant_id: &query.tenant_id,
        from: query.from.map_or(String::new(), |from| from.to_string()),
    };
    let begin = Place {
        due_at: query.to.map_or(END.to_owned(), |to| to.to_string()),
        call: String::new(),
    };
    let begin = after.map_or(begin.clone(), |after| after.min(begin));
    if query.tags.is_empty() {
        return one_list(&connection, query, &bounds, &begin);
    }
    several_lists(&connection, query, &bounds, begin)
}

fn one_list(
    connection: &Connection,
    query: &CallPageQuery,
    bounds: &Bounds<'_>,
    begin: &Place,
) -> rusqlite::Result<CallPage> {
    let tenant = bounds.tenant_id.as_str();
    let (mut statement, mut rows);
    if let Some(status) = query.status {
        statement = connection.prepare_cached(call_sql::PAGE_OF_STATUS)?;
        let status = status.as_str();
        rows = statement.query(params![
            tenant,
            bounds.from,
            begin.due_at,
            begin.call,
            status
        ])?;
    } else {
        statement = connection.prepare_cached(call_sql::PAGE)?;
        rows = statement.query(params![tenant, bounds.from, begin.due_at, begin.call])?;
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

/// A page of the calls, one more than which says that there is another.
fn cut(mut calls: Vec<ServiceCall>, limit: usize) -> CallPage {
    let more = calls.len() > limit;
    calls.truncate(limit);
    let last = calls.last().filter(|_| more);
    let next = last.and_then(|last| Place::of(last).cursor());
    CallPage { calls, next }
}

/// The calls of one tag, or of one status, from the latest due on.
struct List<'a> {
    statement: CachedStatement<'a>,
    of: String,
}

impl List<'_> {
    /// The first one behind a place.
    fn behind(&mut self, bounds: &Bounds<'_>, place: &Place) -> rusqlite::Result<Option<Place>> {
        let tenant = bounds.tenant_id.as_str();
        let bounds = params![tenant, bounds.from, place.due_at, place.call, self.of];
        self.statement.query_row(bounds, Place::read).optional()
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
    begin: Place,
) -> rusqlite::Result<CallPage> {
    let mut lists = lists(connection, query)?;
    let mut calls = Vec::new();
    let (mut behind, mut agreeing, mut turn) = (begin, 0, 0);
    let needed = query.limit.saturating_add(1).saturating_mul(lists.len());
    for _ in 0..needed.saturating_add(MOST_STEPS) {
        let Some(found) = lists[turn].behind(bounds, &behind)? else {
            return Ok(cut(calls, query.limit));
        };
        let candidate = found.clone().included();
        agreeing = if agreeing > 0 && candidate == behind {
            agreeing + 1
        } else {
            1
        };
        behind = candidate;
        turn = (turn + 1) % lists.len();
        if agreeing < lists.len() {
            continue;
        }
        agreeing = 0;
        if let Ok(call) = found.call.parse() {
            let key = TimerKey::new(query.tenant_id.clone(), call);
            let stored = readable("service call", find_one(connection, &key))?.flatten();
            calls.extend(stored.map(|stored| stored.call));
        }
        if calls.len() > query.limit {
            return Ok(cut(calls, query.limit));
        }
        behind = found;
    }
    let next = behind.cursor();
    Ok(CallPage { calls, next })
}
