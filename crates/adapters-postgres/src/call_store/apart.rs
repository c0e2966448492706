//! Attempts whose calls are in another database: what was deleted there, and what is old here.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{DeletedCall, PortError};
use tokio_postgres::types::Type;

use super::Calls;
use super::changing::count;
use super::grouping::{Committed, Write};
use crate::execution_sql::ExecutionStatements;
use crate::lane::{BEGIN_DURABLE, Parameter, Session, Statement, transaction};
use crate::port_errors::Failure;
use crate::timer_store::rows::Keys;
use crate::values::{Instant, sql_limit};

/// Of deletions beside acceptances, among the locks that programs give numbers to.
pub(super) const DELETIONS: i32 = 0x5045_0003;

impl Write for DeletedCall {
    type Outcome = ();
    const OPERATION: &'static str = "delete the attempts of deleted calls";

    fn key(&self) -> &TimerKey {
        &self.key
    }

    fn bytes(&self) -> usize {
        256
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            if let Some(sql) = &calls.apart {
                delete(calls, sql, session, begin, group).await?;
            }
            Ok(group.iter().map(|_| Ok(())).collect())
        })
    }
}

async fn delete(
    calls: &Calls,
    sql: &ExecutionStatements,
    session: &Session,
    begin: &'static str,
    group: &[DeletedCall],
) -> Result<(), Failure> {
    let keys: Keys = group.iter().map(Write::key).collect();
    let deleted: Vec<_> = group.iter().map(|it| Instant(it.deleted_at)).collect();
    let mut params: Vec<Parameter<'_>> = keys.params();
    params.push((&deleted, Type::TIMESTAMPTZ_ARRAY));
    let statements: [Statement<'_>; 2] = [
        (&calls.sql.await_turn, calls.turn_params(&DELETIONS)),
        (&sql.delete, params),
    ];
    transaction(session, begin, &statements).await.map(drop)
}

/// Removes attempts that finished before an instant, and tombstones of calls that were deleted before it.
pub(super) async fn purge(
    calls: &Arc<Calls>,
    before: Timestamp,
    limit: usize,
) -> Result<usize, PortError> {
    let purging = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&purging);
        Box::pin(async move {
            let (before, mut removed) = (Instant(before), 0);
            let statements = calls.apart.iter();
            let statements =
                statements.flat_map(|sql| [&sql.purge_attempts, &sql.purge_tombstones]);
            for text in statements {
                let left = sql_limit(limit.saturating_sub(removed));
                let params: Vec<Parameter<'_>> =
                    vec![(&before, Type::TIMESTAMPTZ), (&left, Type::INT8)];
                removed += count(&session, BEGIN_DURABLE, text, params).await?;
            }
            Ok(removed)
        })
    };
    calls.writer().run("remove old attempts", work).await
}
