//! Query plans of the statements of calls, on a million of them, with as many messages, most of them published,
//! and a hundred thousand attempts that wait for one host.

use punctual_adapters_postgres::tokio_postgres::types::Type;
use punctual_adapters_postgres::{
    BEGIN_DURABLE, BEGIN_QUICK, BEGIN_READ, CallStatements, SchemaSet,
};
use uuid::Uuid;

use super::{
    BATCH, BEGINNING, Expected, Parameter, Planner, call, due, lease, number, numbers,
    servers_clock, text, texts, time, times, uuid, uuids,
};
use crate::scratch::Scratch;

/// Half of the calls are one tenant's. Their indexes are made at the end, since that is faster.
const LOAD: &str = "
SET session_replication_role = replica;
SET maintenance_work_mem = '256MB';
CREATE TEMP TABLE kept AS
    SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
    FROM pg_index i JOIN pg_class c ON c.oid = indexrelid
    WHERE relname LIKE 'idx\\_%' AND (relname LIKE '%submissions%' OR relname LIKE '%http%');
DO $$ DECLARE it record; BEGIN
    FOR it IN SELECT * FROM kept LOOP EXECUTE 'DROP INDEX ' || it.name; END LOOP;
END $$;
CREATE TEMP TABLE n AS
    SELECT i, CASE WHEN i < 500000 THEN 'big' ELSE 'tenant-' || to_char(i / 1000, 'FM0000') END AS tenant,
        ('00000000-0000-7000-8000-' || to_char(i, 'FM000000000000'))::uuid AS id,
        to_timestamp(1700000000 + (i::bigint * 7919) % 1000000) AS due
    FROM generate_series(0, 999999) i;

INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at, finished_at,
    request_spec, correlation_id, command_id, version, next_check_at)
SELECT tenant, id, 'a', CASE i % 10 WHEN 0 THEN 'Scheduled' WHEN 1 THEN 'Running' ELSE 'Succeeded' END,
    due, due, CASE WHEN i % 10 > 1 THEN due END, '{}',
    ('00000000-0000-7000-9000-' || to_char(i / 3, 'FM000000000000'))::uuid, id, 1,
    CASE WHEN i % 10 <= 1 THEN due END FROM n;
INSERT INTO service_call_tags (tenant_id, service_call_id, tag, due_at)
SELECT tenant, id, tag, due FROM n, (VALUES ('even', 2), ('third', 3), ('rare', 10000)) t (tag, every)
WHERE i < 500000 AND i % every = 0;
INSERT INTO timers (tenant_id, service_call_id, correlation_id, due_at, registered_at)
SELECT tenant, id, id, due, due FROM n WHERE i % 10 = 0;
INSERT INTO submissions (tenant_id, service_call_id, idempotency_key, body_sha256, correlation_id, submitted_at,
    gone_at)
SELECT tenant, id, CASE WHEN i % 2 = 0 THEN 'key-' || i END, '', id, due, CASE WHEN i % 50 = 0 THEN due END FROM n;
INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, published_at)
SELECT tenant, id, 'StartExecution', '{}', due, CASE WHEN i % 500 <> 1 THEN due END FROM n;
INSERT INTO outbox_claims (message_id, tenant_id, aggregate_id, instance_id, lease_until)
SELECT id, tenant_id, aggregate_id, gen_random_uuid(), now() + interval '1 hour' FROM outbox
WHERE published_at IS NULL AND id % 3 = 0;
INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at, request_url,
    request_method, request_headers, correlation_id, state, timeout_ms, host, request_spec, claimed_by, lease_until)
SELECT CASE WHEN i = 100 THEN 'alone' ELSE tenant END, id, id, due, '', 'GET', '{}', id,
    CASE WHEN i % 5 = 0 THEN 'Waiting' WHEN i % 1000 = 1 THEN 'Attempted' ELSE 'Finished' END, 1,
    CASE WHEN i = 100 THEN 'there:443' ELSE 'here:443' END, '{}', gen_random_uuid(), now() + interval '1 hour'
FROM n WHERE i < 500000;

DO $$ DECLARE it record; BEGIN
    FOR it IN SELECT * FROM kept LOOP EXECUTE it.definition; END LOOP;
END $$;
ANALYZE;
";

/// Autovacuum would change what is under test.
const UNATTENDED: &str = "
ALTER TABLE service_calls SET (autovacuum_enabled = off);
ALTER TABLE service_call_tags SET (autovacuum_enabled = off);
ALTER TABLE submissions SET (autovacuum_enabled = off);
ALTER TABLE outbox SET (autovacuum_enabled = off);
ALTER TABLE outbox_claims SET (autovacuum_enabled = off);
ALTER TABLE http_execution_log SET (autovacuum_enabled = off);
";

/// What the planner believes of tables that a vacuum found empty, although they have filled up since.
const EMPTY_TO_THE_PLANNER: &str = "
UPDATE pg_class SET reltuples = 0
WHERE oid IN (SELECT indexrelid FROM pg_index JOIN pg_class c ON c.oid = indrelid
        WHERE c.relname IN ('service_calls', 'service_call_tags', 'submissions', 'outbox', 'outbox_claims',
            'http_execution_log'))
    OR relname IN ('service_calls', 'service_call_tags', 'submissions', 'outbox', 'outbox_claims',
        'http_execution_log');
";

/// After an upgrade of the server, or a restore.
const WITHOUT_STATISTICS: &str = "
DELETE FROM pg_statistic
WHERE starelid IN ('service_calls'::regclass, 'service_call_tags'::regclass, 'submissions'::regclass,
    'outbox'::regclass, 'outbox_claims'::regclass, 'http_execution_log'::regclass);
";

const CALL: &str = "service_calls_pkey";
const DUE: &str = "idx_service_calls_due_at";
const STATUS: &str = "idx_service_calls_status";
const TAGS: &str = "service_call_tags_pkey";
const TAG: &str = "idx_service_call_tags_tag";
const TAG_DUE: &str = "idx_service_call_tags_due_at";
const TAKEN: &str = "submissions_pkey";
const TAKEN_KEY: &str = "idx_submissions_idempotency_key";
const MESSAGE: &str = "outbox_pkey";
const ABOUT: &str = "idx_outbox_aggregate_id";
const UNPUBLISHED: &str = "idx_outbox_unpublished";
const CLAIM: &str = "outbox_claims_pkey";
const CLAIM_OF_CALL: &str = "idx_outbox_claims_aggregate_id";
const ATTEMPT: &str = "http_execution_log_pkey";
const WAITING: &str = "idx_http_execution_log_waiting";
const TIMER: &str = "timers_tenant_id_service_call_id_key";
const PARENT: [&str; 3] = [CALL, MESSAGE, ABOUT];

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_calls_finds_its_rows_through_an_index() {
    let Some(scratch) = Scratch::migrated(SchemaSet::Shared).await else {
        return;
    };
    scratch.execute(UNATTENDED);
    scratch.execute(LOAD);
    let planner = Planner::connect(&scratch).await;
    let statements = CallStatements::of("public");
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

/// The calls of a batch: far from each other, of the tenant that has many and of others.
pub(super) fn batch() -> impl Iterator<Item = u64> {
    (0..BATCH as u64).map(|it| it * 7_001 % 1_000_000)
}

fn tenant(number: u64) -> String {
    if number < 500_000 {
        "big".to_owned()
    } else {
        format!("tenant-{:04}", number / 1_000)
    }
}

fn places() -> Parameter {
    numbers(0..i64::try_from(BATCH).unwrap())
}

pub(super) fn keys() -> Vec<Parameter> {
    vec![texts(batch().map(tenant)), uuids(batch().map(call))]
}

fn ids() -> Parameter {
    uuids(batch().map(call))
}

fn placed_keys() -> Vec<Parameter> {
    let mut params = vec![places()];
    params.extend(keys());
    params
}

fn same_texts(it: &str) -> Parameter {
    texts(batch().map(|_| it.to_owned()))
}

fn same_numbers(it: i64) -> Parameter {
    numbers(batch().map(|_| it))
}

fn dues() -> Parameter {
    times(batch().map(due))
}

fn messages() -> Vec<Parameter> {
    let mut params = placed_keys();
    params.extend([same_texts("a"), same_texts("{}"), dues(), dues()]);
    params
}

/// The columns of calls that change.
fn columns() -> Vec<Parameter> {
    let mut params = keys();
    params.extend([
        same_texts("Running"),
        same_texts("{}"),
        dues(),
        dues(),
        dues(),
    ]);
    params.extend([
        same_texts("{}"),
        ids(),
        ids(),
        same_numbers(1),
        dues(),
        dues(),
    ]);
    params.push(same_numbers(1));
    params
}

pub(super) fn with(mut params: Vec<Parameter>, more: Vec<Parameter>) -> Vec<Parameter> {
    params.extend(more);
    params
}

/// From the latest due on, of the tenant that has many.
fn page(limit: i64) -> Vec<Parameter> {
    let end = BEGINNING + 900_000;
    vec![
        text("big"),
        time(BEGINNING),
        time(end),
        uuid(Uuid::nil()),
        number(limit),
    ]
}

fn some_tags() -> Vec<Parameter> {
    vec![
        texts(["even", "third"].map(str::to_owned).into_iter()),
        text("Succeeded"),
    ]
}

fn tenants(params: &[&str]) -> Vec<Parameter> {
    let mut all = vec![
        text(params[0]),
        texts(std::iter::once("b".to_owned())),
        number(600),
    ];
    all.extend(params[1..].iter().map(|it| text(it)));
    all
}

fn in_turn() -> Vec<Parameter> {
    let of = |it: &[&str]| {
        texts(
            it.iter()
                .map(|it| (*it).to_owned())
                .collect::<Vec<_>>()
                .into_iter(),
        )
    };
    vec![
        of(&["alone", "big"]),
        of(&["", "here:443"]),
        of(&["elsewhere:443"]),
        of(&["big"]),
        of(&["nowhere:443"]),
        number(100),
        number(100),
        number(100),
        number(100),
    ]
}

pub(super) fn old() -> Vec<Parameter> {
    vec![time(BEGINNING + 500_000), number(100)]
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn expected() -> Vec<Expected> {
    let line = |name, begin, indexes, pages, params| Expected {
        name,
        begin,
        params,
        indexes,
        rows: 30_000,
        pages,
    };
    let claims = || with(vec![places(), same_numbers(0)], with(keys(), vec![ids()]));
    let all_columns = || with(vec![places(), same_numbers(1)], columns());
    let me = || uuid(Uuid::max());
    vec![
        line(
            "take",
            BEGIN_DURABLE,
            &[],
            6_000,
            with(keys(), vec![same_texts("k"), blobs(), ids(), dues()]),
        ),
        line(
            "taken",
            BEGIN_DURABLE,
            &[TAKEN, TAKEN_KEY],
            3_000,
            with(placed_keys(), vec![same_texts("key-2")]),
        ),
        line("clock", BEGIN_DURABLE, &[], 0, vec![servers_clock()]),
        line(
            "insert_calls",
            BEGIN_DURABLE,
            &[],
            9_000,
            with(
                new_columns(),
                vec![same_texts("a"), dues(), dues(), ids(), ids()],
            ),
        ),
        line(
            "insert_tags",
            BEGIN_DURABLE,
            &[],
            6_000,
            with(keys(), vec![same_texts("new"), dues()]),
        ),
        line(
            "append",
            BEGIN_DURABLE,
            &[MESSAGE, ABOUT],
            6_000,
            messages(),
        ),
        line(
            "change",
            BEGIN_DURABLE,
            &PARENT,
            20_000,
            with(messages(), all_columns()),
        ),
        line(
            "delete",
            BEGIN_DURABLE,
            &[CALL, MESSAGE, ABOUT, TAKEN, TIMER],
            20_000,
            with(
                messages(),
                with(vec![places(), same_numbers(1)], with(keys(), vec![dues()])),
            ),
        ),
        line(
            "purge_calls",
            BEGIN_DURABLE,
            &["idx_service_calls_finished_at", CALL, TAKEN],
            20_000,
            with(old(), vec![time(BEGINNING)]),
        ),
        line(
            "purge_submissions",
            BEGIN_DURABLE,
            &["idx_submissions_gone_at", TAKEN],
            6_000,
            old(),
        ),
        line("find", BEGIN_READ, &[CALL, TAGS], 3_000, placed_keys()),
        line("was_submitted", BEGIN_READ, &[TAKEN], 2_000, placed_keys()),
        line("page", BEGIN_READ, &[DUE, TAGS], 3_000, page(100)),
        line(
            "page_of_status",
            BEGIN_READ,
            &[STATUS, TAGS],
            3_000,
            with(page(100), vec![text("Running")]),
        ),
        line(
            "list_lengths",
            BEGIN_READ,
            &[TAG_DUE, STATUS],
            9_000,
            with(page(2_600), some_tags()),
        ),
        line(
            "page_of_tags",
            BEGIN_READ,
            &[TAG_DUE, TAGS, TAG, CALL],
            60_000,
            with(
                page(100),
                with(some_tags(), vec![text("even"), number(2_600)]),
            ),
        ),
        line(
            "page_of_tags_by_status",
            BEGIN_READ,
            &[STATUS, TAGS, TAG, CALL],
            60_000,
            with(page(100), with(some_tags(), vec![number(2_600)])),
        ),
        line(
            "find_by_correlation",
            BEGIN_READ,
            &["idx_service_calls_correlation_id", TAGS],
            100,
            vec![
                uuid("00000000-0000-7000-9000-000000000123".parse().unwrap()),
                text(""),
                uuid(Uuid::nil()),
                number(100),
            ],
        ),
        line(
            "find_stuck",
            BEGIN_READ,
            &["idx_service_calls_next_check_at", TAGS],
            2_000,
            [old(), vec![time(BEGINNING + 500_000)]]
                .into_iter()
                .flatten()
                .collect(),
        ),
        line(
            "next_check",
            BEGIN_READ,
            &["idx_service_calls_next_check_at"],
            20,
            vec![time(BEGINNING + 500_000), time(BEGINNING + 500_000)],
        ),
        line(
            "await_turn",
            BEGIN_QUICK,
            &[],
            0,
            vec![(Box::new(1_i32), Type::INT4), text("public")],
        ),
        line(
            "claim_messages",
            BEGIN_QUICK,
            &[UNPUBLISHED, CLAIM_OF_CALL, CALL],
            9_000,
            vec![servers_clock(), number(500), me(), lease()],
        ),
        line(
            "next_claim_end",
            BEGIN_QUICK,
            &["idx_outbox_claims_lease_until"],
            20,
            vec![servers_clock()],
        ),
        line(
            "park_messages",
            BEGIN_QUICK,
            &[CLAIM],
            2_000,
            vec![
                servers_clock(),
                me(),
                numbers(1..100),
                (Box::new(vec![1.0_f64; 99]), Type::FLOAT8_ARRAY),
            ],
        ),
        line(
            "mark_messages",
            BEGIN_QUICK,
            &[MESSAGE],
            6_000,
            vec![numbers((0..100).map(|it| it * 500 + 2)), time(BEGINNING)],
        ),
        line(
            "end_message_claims",
            BEGIN_QUICK,
            &[CLAIM],
            2_000,
            vec![numbers((0..100).map(|it| it * 500 + 2))],
        ),
        line(
            "dead_letter_message",
            BEGIN_DURABLE,
            &[MESSAGE],
            100,
            dead_letter(),
        ),
        line(
            "count_messages",
            BEGIN_READ,
            &[UNPUBLISHED],
            3_000,
            vec![number(100_000)],
        ),
        line(
            "about",
            BEGIN_READ,
            &[ABOUT],
            20,
            vec![text("big"), uuid(call(7)), number(100)],
        ),
        line(
            "purge_messages",
            BEGIN_DURABLE,
            &["idx_outbox_published_at", MESSAGE],
            6_000,
            old(),
        ),
        line("accept", BEGIN_DURABLE, &[CALL], 9_000, accept()),
        line(
            "attempts_of",
            BEGIN_DURABLE,
            &[ATTEMPT],
            2_000,
            placed_keys(),
        ),
        line(
            "tenants_after",
            BEGIN_DURABLE,
            &[WAITING],
            100,
            tenants(&[""]),
        ),
        line(
            "tenants_up_to",
            BEGIN_DURABLE,
            &[WAITING],
            100,
            tenants(&["", "big"]),
        ),
        line(
            "in_turn",
            BEGIN_DURABLE,
            &[WAITING, ATTEMPT],
            3_000,
            in_turn(),
        ),
        line(
            "begin",
            BEGIN_DURABLE,
            &[ATTEMPT, MESSAGE, ABOUT],
            9_000,
            with(
                messages(),
                with(
                    vec![me(), servers_clock(), lease(), places()],
                    with(keys(), vec![ids(), dues()]),
                ),
            ),
        ),
        line(
            "finish",
            BEGIN_DURABLE,
            &[ATTEMPT, MESSAGE, ABOUT],
            9_000,
            with(
                messages(),
                with(
                    claims(),
                    vec![
                        dues(),
                        same_texts("{}"),
                        same_texts("1"),
                        same_texts("{}"),
                        same_texts("a"),
                        same_texts("a"),
                    ],
                ),
            ),
        ),
        line(
            "renew",
            BEGIN_QUICK,
            &[ATTEMPT],
            6_000,
            with(
                claims(),
                vec![dues(), (Box::new(vec![1.0_f64; BATCH]), Type::FLOAT8_ARRAY)],
            ),
        ),
        line(
            "take_over",
            BEGIN_DURABLE,
            &["idx_http_execution_log_open", ATTEMPT],
            6_000,
            with(
                vec![me(), servers_clock(), lease(), number(100)],
                with(keys(), vec![ids()]),
            ),
        ),
        line(
            "count_attempts",
            BEGIN_READ,
            &[WAITING],
            // Each of them is read from the table as well, unless vacuum came by before.
            11_000,
            vec![number(10_000)],
        ),
        line(
            "entries",
            BEGIN_READ,
            &[ATTEMPT],
            20,
            vec![text("big"), uuid(call(7)), number(100)],
        ),
    ]
}

fn blobs() -> Parameter {
    (Box::new(vec![vec![0_u8; 32]; BATCH]), Type::BYTEA_ARRAY)
}

/// Keys that no call has.
fn new_keys() -> Vec<Parameter> {
    vec![
        same_texts("big"),
        uuids(batch().map(|it| call(it + 2_000_000))),
    ]
}

fn new_columns() -> Vec<Parameter> {
    let mut params = columns();
    params.splice(..2, new_keys());
    params
}

fn dead_letter() -> Vec<Parameter> {
    let one = |it: &str| texts(std::iter::once(it.to_owned()));
    vec![
        number(2),
        time(BEGINNING),
        one("a"),
        one("outbox"),
        one("big"),
        (Box::new(vec![vec![0_u8]]), Type::BYTEA_ARRAY),
        one("a"),
        times(std::iter::once(BEGINNING)),
    ]
}

pub(super) fn accept() -> Vec<Parameter> {
    let mut params = vec![
        texts(batch().map(|it| tenant(it + 500_000))),
        uuids(batch().map(|it| call(it + 500_000))),
    ];
    params.extend([
        ids(),
        dues(),
        ids(),
        same_numbers(1),
        same_texts("h"),
        same_texts("{}"),
    ]);
    params.extend([
        same_texts("u"),
        same_texts("GET"),
        same_texts("{}"),
        same_texts("b"),
    ]);
    params
}
