//! Finding timers and paging through them.

use punctual_domain::{
    CorrelationId, ReachedTimer, ScheduledTimer, TenantId, TimerEntry, TimerKey, TimerState,
    Timestamp,
};
use punctual_ports::{
    Backlog, FiredCursor, FiredPage, PageCursor, PortError, TimerPage, TimerPageQuery,
};
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::PostgresTimerStore;
use super::rows::{column, entry, reached, timer};
use crate::lane::{BEGIN_READ, Lane, Parameter, transaction};
use crate::port_errors::Failure;
use crate::sql::Statements;
use crate::values::{Instant, sql_limit};

/// A parameter that lives as long as its statement.
pub(crate) type Owned = (Box<dyn ToSql + Sync + Send>, Type);

pub(crate) fn text(value: &str) -> Owned {
    (Box::new(value.to_owned()), Type::TEXT)
}

pub(crate) fn at(value: Timestamp) -> Owned {
    (Box::new(Instant(value)), Type::TIMESTAMPTZ)
}

pub(crate) fn number(value: i64) -> Owned {
    (Box::new(value), Type::INT8)
}

impl PostgresTimerStore {
    /// Runs one statement that only reads, and converts its rows.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        statement: fn(&Statements) -> &String,
        params: Vec<Owned>,
        convert: fn(&Row) -> Result<T, Failure>,
    ) -> Result<Vec<T>, PortError> {
        let lane = self.reader();
        self.query(lane, operation, BEGIN_READ, statement, params, convert)
            .await
    }

    /// Runs one statement in a transaction of its own, and converts its rows.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        lane: &Lane,
        operation: &'static str,
        begin: &'static str,
        statement: fn(&Statements) -> &String,
        params: Vec<Owned>,
        convert: fn(&Row) -> Result<T, Failure>,
    ) -> Result<Vec<T>, PortError> {
        let (store, params) = (self.clone(), Arc::new(params));
        lane.run(operation, move |session| {
            let (store, params) = (store.clone(), Arc::clone(&params));
            Box::pin(async move {
                let params = params.iter().map(|(value, kind)| -> Parameter<'_> {
                    (value.as_ref() as &(dyn ToSql + Sync), kind.clone())
                });
                let statements = [(statement(&store.inner.sql).as_str(), params.collect())];
                let rows = transaction(&session, begin, &statements).await?;
                rows.iter().flatten().map(convert).collect()
            })
        })
        .await
    }

    /// One of the connections for reading, if possible one that is free.
    fn reader(&self) -> &Lane {
        let [first, second] = &self.inner.reads;
        if first.is_idle() { first } else { second }
    }

    pub(super) async fn find_one(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError> {
        let params = vec![
            text(key.tenant_id.as_str()),
            (Box::new(key.service_call_id.as_uuid()), Type::UUID),
        ];
        let found = self.read("find a timer", |sql| &sql.find, params, entry);
        Ok(found.await?.pop())
    }

    pub(super) async fn find_overdue(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ScheduledTimer>, PortError> {
        let params = vec![text(tenant_id.as_str()), at(now), number(sql_limit(limit))];
        self.read("find due timers", |sql| &sql.find_due, params, timer)
            .await
    }

    pub(super) async fn trace(
        &self,
        correlation_id: CorrelationId,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerEntry>, PortError> {
        let tenant = after.as_ref().map_or("", |key| key.tenant_id.as_str());
        let call = after.as_ref().map(|key| key.service_call_id.as_uuid());
        let params = vec![
            (Box::new(correlation_id.as_uuid()) as _, Type::UUID),
            text(tenant),
            (Box::new(call.unwrap_or_default()), Type::UUID),
            number(sql_limit(limit)),
        ];
        let statement: fn(&Statements) -> &String = |sql| &sql.find_by_correlation;
        self.read("trace timers", statement, params, entry).await
    }

    pub(super) async fn page_of(&self, query: TimerPageQuery) -> Result<TimerPage, PortError> {
        let operation = "list timers";
        let (due_at, id) = match &query.after {
            None => (Timestamp::MIN, i64::MIN),
            Some(cursor) => cursor
                .due::<i64>()
                .ok_or_else(|| PageCursor::rejection(operation))?,
        };
        let statement: fn(&Statements) -> &String = match query.state {
            None => |sql| &sql.page_all,
            Some(TimerState::Scheduled) => |sql| &sql.page_scheduled,
            Some(TimerState::Reached) => |sql| &sql.page_reached,
        };
        let params = vec![
            text(query.tenant_id.as_str()),
            at(due_at),
            number(id),
            number(sql_limit(query.limit.saturating_add(1))),
        ];
        let read = |row: &Row| Ok((column::<i64>(row, "id")?, entry(row)?));
        let mut rows = self.read(operation, statement, params, read).await?;
        let more = rows.len() > query.limit;
        rows.truncate(query.limit);
        let last = rows.last().filter(|_| more);
        let next =
            last.map(|(id, entry)| PageCursor::after_due(entry.timer().registration.due_at, id));
        let timers = rows.into_iter().map(|(_, entry)| entry).collect();
        Ok(TimerPage { timers, next })
    }

    pub(super) async fn count(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError> {
        let params = vec![at(now), number(sql_limit(limit))];
        let read = |row: &Row| {
            let count = |name| column::<i64>(row, name).map(|it| usize::try_from(it).unwrap_or(0));
            Ok(Backlog {
                pending: count("pending")?,
                overdue: count("overdue")?,
            })
        };
        let counted = self.read("count timers", |sql| &sql.backlog, params, read);
        Ok(counted.await?.pop().unwrap_or_default())
    }

    pub(super) async fn fired(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> Result<FiredPage, PortError> {
        let from = after.as_ref().map_or(since, |it| it.reached_at.max(since));
        // A cursor before the beginning passes nothing over.
        let after = after.filter(|it| it.reached_at >= since);
        let tenant = after.as_ref().map_or("", |it| it.key.tenant_id.as_str());
        let call = after.as_ref().map(|it| it.key.service_call_id.as_uuid());
        let params = vec![
            at(from),
            (
                Box::new(after.as_ref().map(|it| Instant(it.reached_at))) as _,
                Type::TIMESTAMPTZ,
            ),
            text(tenant),
            (Box::new(call.unwrap_or_default()), Type::UUID),
            number(sql_limit(limit.saturating_add(1))),
        ];
        let read = self.read("find fired timers", |sql| &sql.fired_since, params, reached);
        let mut timers: Vec<ReachedTimer> = read.await?;
        let more = timers.len() > limit;
        timers.truncate(limit);
        let next = timers.last().filter(|_| more).map(FiredCursor::of);
        Ok(FiredPage { timers, next })
    }
}
