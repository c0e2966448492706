//! Query plans of the statements that attempts alone need, on two hundred thousand of them, with as many
//! messages and tombstones. The others are those of calls.

use punctual_adapters_postgres::tokio_postgres::types::Type;
use punctual_adapters_postgres::{BEGIN_DURABLE, BEGIN_QUICK, ExecutionStatements, SchemaSet};
use uuid::Uuid;

use super::calls::{accept, batch, keys, old, with};
use super::{Expected, Planner, due, lease, number, servers_clock, text, times, uuid};
use crate::scratch::Scratch;

const LOAD: &str = "
CREATE TEMP TABLE n AS
    SELECT i, CASE WHEN i < 100000 THEN 'big' ELSE 'tenant-' || to_char(i / 1000, 'FM0000') END AS tenant,
        ('00000000-0000-7000-8000-' || to_char(i * 5, 'FM000000000000'))::uuid AS id,
        to_timestamp(1700000000 + (i::bigint * 7919) % 1000000) AS due
    FROM generate_series(0, 199999) i;
INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, published_at)
SELECT tenant, id, 'ExecutionStarted', '{}', due, CASE WHEN i % 500 <> 1 THEN due END FROM n;
INSERT INTO outbox_claims (message_id, tenant_id, aggregate_id, instance_id, lease_until)
SELECT id, tenant_id, aggregate_id, gen_random_uuid(), now() + interval '1 hour' FROM outbox
WHERE published_at IS NULL AND id % 3 = 0;
INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at, finished_at, request_url,
    request_method, request_headers, correlation_id, state, timeout_ms, host)
SELECT tenant, id, id, due, CASE WHEN i % 10 > 1 THEN due END, '', 'GET', '{}', id,
    CASE WHEN i % 10 = 0 THEN 'Waiting' WHEN i % 10 = 1 THEN 'Attempted' ELSE 'Finished' END, 1, 'here:443'
FROM n;
INSERT INTO tombstones SELECT tenant, ('00000000-0000-7000-9000-' || to_char(i, 'FM000000000000'))::uuid, due
FROM n;
ANALYZE;
";

const UNATTENDED: &str = "
ALTER TABLE outbox SET (autovacuum_enabled = off);
ALTER TABLE outbox_claims SET (autovacuum_enabled = off);
ALTER TABLE http_execution_log SET (autovacuum_enabled = off);
ALTER TABLE tombstones SET (autovacuum_enabled = off);
";

/// What the planner believes of tables that a vacuum found empty, although they have filled up since.
const EMPTY_TO_THE_PLANNER: &str = "
UPDATE pg_class SET reltuples = 0
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i');
";

/// After an upgrade of the server, or a restore.
const WITHOUT_STATISTICS: &str = "
DELETE FROM pg_statistic
WHERE starelid IN ('outbox'::regclass, 'outbox_claims'::regclass, 'http_execution_log'::regclass,
    'tombstones'::regclass);
";

const ATTEMPT: &str = "http_execution_log_pkey";
const TOMBSTONE: &str = "tombstones_pkey";
const ABOUT: &str = "idx_outbox_aggregate_id";

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_attempts_alone_finds_its_rows_through_an_index() {
    let Some(scratch) = Scratch::migrated(SchemaSet::ExecutionOnly).await else {
        return;
    };
    scratch.execute(UNATTENDED);
    scratch.execute(LOAD);
    let planner = Planner::connect(&scratch).await;
    let statements = ExecutionStatements::of("public");
    let check = async |when: &str| {
        let statements = statements.all();
        planner.check_all(when, &statements, expected(), 0).await;
    };
    check("as it is").await;
    scratch.execute(EMPTY_TO_THE_PLANNER);
    check("on tables that seem empty").await;
    scratch.execute(WITHOUT_STATISTICS);
    check("on unknown tables that seem empty").await;
}

fn expected() -> Vec<Expected> {
    let line = |name, begin, indexes, pages, params| Expected {
        name,
        begin,
        params,
        indexes,
        rows: 5_000,
        pages,
    };
    vec![
        line("accept", BEGIN_DURABLE, &[TOMBSTONE], 9_000, accept()),
        line(
            "await_deletions",
            BEGIN_DURABLE,
            &[],
            20,
            vec![(Box::new(7_i32), Type::INT4), text("public")],
        ),
        line(
            "claim_messages",
            BEGIN_QUICK,
            &["idx_outbox_unpublished", "idx_outbox_claims_aggregate_id"],
            9_000,
            vec![servers_clock(), number(100), uuid(Uuid::nil()), lease()],
        ),
        line(
            "delete",
            BEGIN_DURABLE,
            &[ATTEMPT],
            9_000,
            with(keys(), vec![times(batch().map(due))]),
        ),
        line(
            "purge_attempts",
            BEGIN_DURABLE,
            &["idx_http_execution_log_finished_at", ABOUT, ATTEMPT],
            9_000,
            old(),
        ),
        line(
            "purge_tombstones",
            BEGIN_DURABLE,
            &["idx_tombstones_deleted_at", TOMBSTONE],
            9_000,
            old(),
        ),
    ]
}
