//! The bare loop on PostgreSQL: plain tokio-postgres on one connection, with prepared statements and
//! nothing else, one transaction after the other.

use std::time::{Duration, Instant, SystemTime};

use punctual_adapters_postgres::tokio_postgres::{Client, Row};
use punctual_adapters_system::UuidIds;
use punctual_ports::IdPort;
use punctual_workflows::TimerRequest;
use uuid::Uuid;

use super::server::Database;
use crate::Outcome;

const INSERT: &str = "
WITH i AS (
    INSERT INTO timers (tenant_id, service_call_id, correlation_id, due_at, registered_at)
    SELECT *, now() FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::timestamptz[])
    RETURNING id, tenant_id, due_at, registered_at)
INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, tenant_id)
SELECT id, due_at, registered_at, due_at, tenant_id FROM i";

const RESCHEDULE: &str = "
WITH u AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::timestamptz[]) AS u (tenant, call, due_at)),
t AS (
    UPDATE timers t SET due_at = u.due_at, registered_at = now() FROM u
    WHERE t.tenant_id = u.tenant AND t.service_call_id = u.call
    RETURNING t.id, t.due_at, t.registered_at)
UPDATE timer_queue q
SET ready_at = t.due_at, due_at = t.due_at, registered_at = t.registered_at, attempts = 0
FROM t WHERE q.timer_id = t.id";

const SELECT_DUE: &str = "
SELECT id, tenant_id, service_call_id, correlation_id, due_at, registered_at, data, attempts
FROM timer_schedules
WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= now()
ORDER BY coalesce(retry_at, due_at) LIMIT 1000 FOR UPDATE SKIP LOCKED";

const MARK: &str = "
UPDATE timer_schedules SET state = 'Reached', reached_at = now() WHERE id = ANY($1)";

const NEXT_DUE: &str = "
SELECT ready_at FROM timer_queue WHERE ready_at > now() ORDER BY ready_at LIMIT 1";

/// A due timer, as a loop would hand it to its handler.
type Due = (
    String,
    Uuid,
    Uuid,
    SystemTime,
    SystemTime,
    Option<String>,
    i32,
);

/// One connection.
pub(crate) struct BarePostgres {
    client: Client,
}

impl BarePostgres {
    pub(crate) async fn open(database: &Database) -> Outcome<Self> {
        let client = database.connect().await?;
        Ok(Self { client })
    }

    /// Asks a number of times when the next timer of the store's queue is ready; returns how long that took.
    pub(crate) async fn poll(&self, polls: usize) -> Outcome<Duration> {
        let next_due = self.client.prepare(NEXT_DUE).await?;
        let started = Instant::now();
        for _ in 0..polls {
            let row = self.client.query_one(&next_due, &[]).await?;
            row.try_get::<_, SystemTime>(0)?;
        }
        Ok(started.elapsed())
    }

    /// Stores timers in the store's tables, `per_transaction` in each transaction.
    pub(crate) async fn insert(
        &self,
        timers: &[TimerRequest],
        per_transaction: usize,
    ) -> Outcome<()> {
        let insert = self.client.prepare(INSERT).await?;
        for chunk in timers.chunks(per_transaction) {
            let (tenants, calls, due) = columns(chunk);
            let correlations: Vec<Uuid> = chunk.iter().map(|_| UuidIds.next_id()).collect();
            self.client
                .execute(&insert, &[&tenants, &calls, &correlations, &due])
                .await?;
        }
        Ok(())
    }

    /// Gives timers other due times, `per_transaction` in each transaction.
    pub(crate) async fn reschedule(
        &self,
        timers: &[TimerRequest],
        per_transaction: usize,
    ) -> Outcome<()> {
        let update = self.client.prepare(RESCHEDULE).await?;
        for chunk in timers.chunks(per_transaction) {
            let (tenants, calls, due) = columns(chunk);
            self.client
                .execute(&update, &[&tenants, &calls, &due])
                .await?;
        }
        Ok(())
    }

    /// Selects 1 000 due timers of the one table and marks them in a transaction, until nothing is due;
    /// returns how many.
    pub(crate) async fn drain(&self) -> Outcome<usize> {
        let select = self.client.prepare(SELECT_DUE).await?;
        let mark = self.client.prepare(MARK).await?;
        let mut drained = 0;
        loop {
            self.client.batch_execute("BEGIN").await?;
            let rows = self.client.query(&select, &[]).await?;
            if rows.is_empty() {
                self.client.batch_execute("COMMIT").await?;
                return Ok(drained);
            }
            let due = rows.iter().map(due).collect::<Outcome<Vec<_>>>()?;
            let ids: Vec<i64> = due.iter().map(|(id, _)| *id).collect();
            self.client.execute(&mark, &[&ids]).await?;
            self.client.batch_execute("COMMIT").await?;
            drained += due.len();
        }
    }
}

fn due(row: &Row) -> Outcome<(i64, Due)> {
    let due = (
        row.try_get(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(6)?,
        row.try_get(7)?,
    );
    Ok((row.try_get(0)?, due))
}

fn columns(timers: &[TimerRequest]) -> (Vec<&str>, Vec<Uuid>, Vec<SystemTime>) {
    let tenants = timers.iter().map(|it| it.key.tenant_id.as_str()).collect();
    let calls = timers.iter().map(|it| it.key.service_call_id.as_uuid());
    let due = timers.iter().map(|it| SystemTime::from(it.due_at));
    (tenants, calls.collect(), due.collect())
}
