//! Changing, deleting and purging calls.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use punctual_domain::messages::Listeners;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{CallChange, CallDeletion, ChangeOutcome, PortError};
use tokio_postgres::types::Type;

use super::Calls;
use super::grouping::{Committed, Write};
use super::outbox::Messages;
use super::rows::{Columns, place, places};
use crate::lane::{BEGIN_DURABLE, Parameter, Session, Statement, transaction};
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column};
use crate::values::{Instant, sql_limit};

/// A version as a `bigint`; -1, which no row has, if it is too great.
fn sql_version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

/// The places that a statement returns.
pub(super) async fn changed(
    session: &Session,
    begin: &str,
    text: &str,
    params: Vec<Parameter<'_>>,
) -> Result<HashSet<usize>, Failure> {
    let statement: [Statement<'_>; 1] = [(text, params)];
    let rows = transaction(session, begin, &statement).await?;
    rows.iter().flatten().map(place).collect()
}

/// The outcome of each of a batch: one for the places that were changed, another for the others.
pub(super) fn outcomes<T: Copy>(
    count: usize,
    changed: &HashSet<usize>,
    (applied, other): (T, T),
) -> Vec<Result<T, PortError>> {
    let outcome = |place| {
        Ok(if changed.contains(&place) {
            applied
        } else {
            other
        })
    };
    (0..count).map(outcome).collect()
}

const OUTCOMES: (ChangeOutcome, ChangeOutcome) = (ChangeOutcome::Changed, ChangeOutcome::Outdated);

impl Write for CallChange {
    type Outcome = ChangeOutcome;
    const OPERATION: &'static str = "change service calls";

    fn key(&self) -> &TimerKey {
        &self.call.details().key
    }

    fn bytes(&self) -> usize {
        let body = self.call.details().request.body.as_ref();
        body.map_or(0, |body| body.as_str().len()) + 1_024 * (1 + self.outbox.len())
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            let (mut columns, mut messages) = (Columns::default(), Messages::default());
            for (place, change) in group.iter().enumerate() {
                columns.add(&change.call)?;
                messages.add(place, &change.outbox, change.listeners)?;
            }
            let places = places(group.len());
            let versions = group.iter().map(|it| sql_version(it.expected_version));
            let versions: Vec<i64> = versions.collect();
            let mut params = messages.params();
            params.push((&places, Type::INT8_ARRAY));
            params.push((&versions, Type::INT8_ARRAY));
            params.extend(columns.params());
            let changed = changed(session, begin, &calls.sql.change, params).await?;
            Ok(outcomes(group.len(), &changed, OUTCOMES))
        })
    }
}

impl Write for CallDeletion {
    type Outcome = ChangeOutcome;
    const OPERATION: &'static str = "delete service calls";

    fn key(&self) -> &TimerKey {
        &self.key
    }

    fn bytes(&self) -> usize {
        1_024 * (1 + self.outbox.len())
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            let mut messages = Messages::default();
            for (place, deletion) in group.iter().enumerate() {
                messages.add(place, &deletion.outbox, Listeners::Anyone)?;
            }
            let (keys, places): (Keys, _) = (
                group.iter().map(|it| &it.key).collect(),
                places(group.len()),
            );
            let versions = group.iter().map(|it| sql_version(it.expected_version));
            let versions: Vec<i64> = versions.collect();
            let deleted: Vec<_> = group.iter().map(|it| Instant(it.deleted_at)).collect();
            let mut params = messages.params();
            params.push((&places, Type::INT8_ARRAY));
            params.push((&versions, Type::INT8_ARRAY));
            params.extend(keys.params());
            params.push((&deleted, Type::TIMESTAMPTZ_ARRAY));
            let changed = changed(session, begin, &calls.sql.delete, params).await?;
            Ok(outcomes(group.len(), &changed, OUTCOMES))
        })
    }
}

/// Removes calls that finished before an instant, and submissions whose calls were gone before it.
pub(super) async fn purge(
    calls: &Arc<Calls>,
    before: Timestamp,
    now: Timestamp,
    limit: usize,
) -> Result<usize, PortError> {
    let purging = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&purging);
        Box::pin(async move {
            let (before, now) = (Instant(before), Instant(now));
            let mut removed = 0;
            for (text, has_now) in [
                (&calls.sql.purge_calls, true),
                (&calls.sql.purge_submissions, false),
            ] {
                let left = sql_limit(limit.saturating_sub(removed));
                let mut params: Vec<Parameter<'_>> =
                    vec![(&before, Type::TIMESTAMPTZ), (&left, Type::INT8)];
                if has_now {
                    params.push((&now, Type::TIMESTAMPTZ));
                }
                removed += count(&session, BEGIN_DURABLE, text, params).await?;
            }
            Ok(removed)
        })
    };
    calls.writer().run("remove old service calls", work).await
}

/// The number that a statement returns.
pub(super) async fn count(
    session: &Session,
    begin: &str,
    text: &str,
    params: Vec<Parameter<'_>>,
) -> Result<usize, Failure> {
    let statement: [Statement<'_>; 1] = [(text, params)];
    let rows = transaction(session, begin, &statement).await?;
    let count = rows.iter().flatten().next();
    let count = count.map_or(Ok(0), |row| column::<i64>(row, "count"))?;
    Ok(usize::try_from(count).unwrap_or_default())
}
