//! Finding calls by key, by request, and stuck ones.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, TimerKey, Timestamp};
use punctual_ports::{PortError, StoredCall, StuckCalls};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Calls;
use super::changing::changed;
use super::rows::{PlacedKeys, in_places, read_call, readable};
use crate::lane::{BEGIN_READ, Parameter, Session, Statement, transaction};
use crate::port_errors::Failure;
use crate::timer_store::rows::instant;
use crate::values::{Instant, sql_limit};

/// Runs statements that read, in one transaction.
pub(super) async fn rows(
    session: &Session,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, Failure> {
    transaction(session, BEGIN_READ, statements).await
}

/// The calls of rows that can be read.
pub(super) fn calls_of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<ServiceCall> {
    let calls = rows.into_iter();
    let calls = calls.filter_map(|row| readable("service call", read_call(row)));
    calls.map(|stored| stored.call).collect()
}

pub(super) async fn find(
    calls: &Arc<Calls>,
    keys: Vec<TimerKey>,
) -> Result<Vec<Option<StoredCall>>, PortError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let (reading, keys) = (Arc::clone(calls), Arc::new(keys));
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, keys) = (Arc::clone(&reading), Arc::clone(&keys));
        Box::pin(async move {
            let keys: PlacedKeys = keys.iter().collect();
            let statement: [Statement<'_>; 1] = [(&calls.sql.find, keys.params())];
            let found = rows(&session, &statement).await?;
            let found = found.first().map_or(&[][..], Vec::as_slice);
            in_places(found, keys.len())
        })
    };
    calls.finds.run("find service calls", work).await
}

pub(super) async fn was_submitted(
    calls: &Arc<Calls>,
    keys: Vec<TimerKey>,
) -> Result<Vec<bool>, PortError> {
    let (reading, keys) = (Arc::clone(calls), Arc::new(keys));
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, keys) = (Arc::clone(&reading), Arc::clone(&keys));
        Box::pin(async move {
            let keys: PlacedKeys = keys.iter().collect();
            let text = &calls.sql.was_submitted;
            let known = changed(&session, BEGIN_READ, text, keys.params()).await?;
            Ok((0..keys.len())
                .map(|place| known.contains(&place))
                .collect())
        })
    };
    calls.finds.run("find submissions", work).await
}

pub(super) async fn find_by_correlation(
    calls: &Arc<Calls>,
    correlation_id: CorrelationId,
    after: Option<TimerKey>,
    limit: usize,
) -> Result<Vec<ServiceCall>, PortError> {
    let reading = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, after) = (Arc::clone(&reading), after.clone());
        Box::pin(async move {
            let correlation_id = correlation_id.as_uuid();
            let tenant = after.as_ref().map_or("", |key| key.tenant_id.as_str());
            let call = after.as_ref().map(|key| key.service_call_id.as_uuid());
            let (call, limit) = (call.unwrap_or_default(), sql_limit(limit));
            let params: Vec<Parameter<'_>> = vec![
                (&correlation_id, Type::UUID),
                (&tenant, Type::TEXT),
                (&call, Type::UUID),
                (&limit, Type::INT8),
            ];
            let statement: [Statement<'_>; 1] = [(&calls.sql.find_by_correlation, params)];
            Ok(calls_of(rows(&session, &statement).await?.iter().flatten()))
        })
    };
    calls.reader().run("trace service calls", work).await
}

pub(super) async fn find_stuck(
    calls: &Arc<Calls>,
    now: Timestamp,
    limit: usize,
) -> Result<StuckCalls, PortError> {
    let reading = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&reading);
        Box::pin(async move {
            let (limit, given) = (sql_limit(limit), calls.time.given(now));
            let at = Instant(now);
            let (at, clock) = (
                || (&at as _, Type::TIMESTAMPTZ),
                || (&given as _, Type::TIMESTAMPTZ),
            );
            let statements: [Statement<'_>; 3] = [
                (&calls.sql.clock, vec![clock()]),
                (
                    &calls.sql.find_stuck,
                    vec![at(), (&limit, Type::INT8), clock()],
                ),
                (&calls.sql.next_check, vec![at(), clock()]),
            ];
            let answers = rows(&session, &statements).await?;
            let [clock, stuck, next] = answers.as_slice() else {
                return Err(Failure::Unreadable("an answer is missing".to_owned()));
            };
            let clock = clock.first().map(|row| instant(row, "clock"));
            let stuck = stuck.iter();
            let stuck = stuck.filter_map(|row| readable("service call", read_call(row)));
            let next = next.first().map(|row| instant(row, "next_check_at"));
            Ok(StuckCalls {
                as_of: clock.transpose()?.map_or(now, |clock| clock.min(now)),
                calls: stuck.collect(),
                next: next.transpose()?,
            })
        })
    };
    calls.finds.run("find stuck service calls", work).await
}
