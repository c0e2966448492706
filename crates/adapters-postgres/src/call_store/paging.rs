//! Pages of a tenant's calls.
//!
//! An index lists the calls of each status and of each tag in the order of the page. A single list is
//! read as it is. Of several, the shortest is read, and its calls are searched for in the others; a page ends
//! early rather than to read much of it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use punctual_domain::service_call::{CallStatus, ServiceCall, Tag};
use punctual_domain::{ServiceCallId, Timestamp};
use punctual_ports::{CallPage, CallPageQuery, PageCursor, PortError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Calls;
use super::reading::{calls_of, rows};
use crate::lane::{Parameter, Session, Statement};
use crate::port_errors::Failure;
use crate::timer_store::rows::{column, instant_or_null};
use crate::values::{Instant, sql_limit};

/// Maximum number of calls of a list that are read for one page, besides as many as it has room for. The next
/// page continues where this one ended.
const MAX_WALKED: usize = 2_500;

/// A position in the list, which is in descending order of due time and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListPosition {
    due_at: Timestamp,
    call: Uuid,
}

impl ListPosition {
    /// Before the first call that is due before an instant.
    const fn before(due_at: Timestamp) -> Self {
        Self {
            due_at,
            call: Uuid::nil(),
        }
    }

    /// Before all calls.
    const START: Self = Self {
        due_at: Timestamp::MAX,
        call: Uuid::max(),
    };

    fn of(call: &ServiceCall) -> Self {
        let details = call.details();
        Self {
            due_at: details.due_at,
            call: details.key.service_call_id.as_uuid(),
        }
    }

    fn cursor(self) -> PageCursor {
        PageCursor::after_due(self.due_at, ServiceCallId::from_uuid(self.call))
    }

    pub(super) fn of_cursor(cursor: &PageCursor) -> Result<Self, PortError> {
        let position = cursor.due::<ServiceCallId>();
        let (due_at, call) = position.ok_or_else(|| PageCursor::rejection("list service calls"))?;
        Ok(Self {
            due_at,
            call: call.as_uuid(),
        })
    }
}

/// What is to be read, as parameters: the tenant, where the list begins and ends, and how much of it.
struct Query {
    tenant: String,
    from: Instant,
    start_due: Instant,
    start_call: Uuid,
    limit: i64,
    tags: Vec<String>,
    status: Option<&'static str>,
    walk: i64,
}

impl Query {
    fn of(query: &CallPageQuery, after: Option<ListPosition>) -> Self {
        let start = query.to.map_or(ListPosition::START, ListPosition::before);
        let start = after.map_or(start, |after| after.min(start));
        let limit = query.limit.saturating_add(1);
        Self {
            tenant: query.tenant_id.as_str().to_owned(),
            from: Instant(query.from.unwrap_or(Timestamp::MIN)),
            start_due: Instant(start.due_at),
            start_call: start.call,
            limit: sql_limit(limit),
            tags: query
                .tags
                .iter()
                .map(Tag::as_str)
                .map(str::to_owned)
                .collect(),
            status: query.status.map(CallStatus::as_str),
            walk: sql_limit(limit.saturating_add(MAX_WALKED)),
        }
    }

    fn params<'a>(&'a self, limit: &'a i64) -> Vec<Parameter<'a>> {
        vec![
            (&self.tenant, Type::TEXT),
            (&self.from, Type::TIMESTAMPTZ),
            (&self.start_due, Type::TIMESTAMPTZ),
            (&self.start_call, Type::UUID),
            (limit, Type::INT8),
        ]
    }

    /// The same with what calls have to have.
    fn list_params<'a>(&'a self, limit: &'a i64) -> Vec<Parameter<'a>> {
        let mut params = self.params(limit);
        params.push((&self.tags, Type::TEXT_ARRAY));
        params.push((&self.status, Type::TEXT));
        params
    }
}

pub(super) async fn page(
    calls: &Arc<Calls>,
    query: CallPageQuery,
    after: Option<ListPosition>,
) -> Result<CallPage, PortError> {
    let reading = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&reading);
        let (limit, query) = (query.limit, Query::of(&query, after));
        Box::pin(async move {
            if query.tags.is_empty() {
                one_list(&calls, &session, &query, limit).await
            } else {
                several_lists(&calls, &session, &query, limit).await
            }
        })
    };
    calls.reader().run("list service calls", work).await
}

async fn one_list(
    calls: &Calls,
    session: &Session,
    query: &Query,
    limit: usize,
) -> Result<CallPage, Failure> {
    let mut params = query.params(&query.limit);
    let text = match &query.status {
        Some(status) => {
            params.push((status, Type::TEXT));
            &calls.sql.page_of_status
        }
        None => &calls.sql.page,
    };
    let statement: [Statement<'_>; 1] = [(text, params)];
    let found = rows(session, &statement).await?;
    Ok(cut(calls_of(found.iter().flatten()), limit))
}

/// Cuts off the call beyond the limit, which means that there is another page.
fn cut(mut calls: Vec<ServiceCall>, limit: usize) -> CallPage {
    let more = calls.len() > limit;
    calls.truncate(limit);
    let last = calls.last().filter(|_| more);
    let next = last.map(|last| ListPosition::of(last).cursor());
    CallPage { calls, next }
}

async fn several_lists(
    calls: &Calls,
    session: &Session,
    query: &Query,
    limit: usize,
) -> Result<CallPage, Failure> {
    let lengths: [Statement<'_>; 1] = [(&calls.sql.list_lengths, query.list_params(&query.walk))];
    let lengths = rows(session, &lengths).await?;
    let read = |row: &Row| -> Result<(i64, Option<String>), Failure> {
        Ok((column(row, "length")?, column(row, "tag")?))
    };
    let lengths: Result<Vec<_>, Failure> = lengths.iter().flatten().map(read).collect();
    let shortest = lengths?.into_iter().min_by_key(|(length, _)| *length);
    let driver = shortest.and_then(|(_, tag)| tag);
    let mut params = query.list_params(&query.limit);
    let text = match &driver {
        Some(tag) => {
            params.push((tag, Type::TEXT));
            &calls.sql.page_of_tags
        }
        None => &calls.sql.page_of_tags_by_status,
    };
    params.push((&query.walk, Type::INT8));
    let statement: [Statement<'_>; 1] = [(text, params)];
    let answers = rows(session, &statement).await?;
    let found: Vec<&Row> = answers.iter().flatten().collect();
    let has_call = |row: &&&Row| matches!(column::<Option<&str>>(row, "tenant_id"), Ok(Some(_)));
    let page = cut(calls_of(found.iter().filter(has_call).copied()), limit);
    let Some(first) = found.first().filter(|_| page.next.is_none()) else {
        return Ok(page);
    };
    if column::<i64>(first, "walked")? < query.walk {
        return Ok(page);
    }
    let (due_at, call) = (
        instant_or_null(first, "end_due_at")?,
        column::<Option<Uuid>>(first, "end_call")?,
    );
    let end = due_at.zip(call);
    Ok(CallPage {
        next: end.map(|(due_at, call)| ListPosition { due_at, call }.cursor()),
        ..page
    })
}
