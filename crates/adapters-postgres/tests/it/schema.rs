//! The tables are those of the original specification in the types of PostgreSQL, and what was added to
//! them is listed here.
//!
//! Both are described from PostgreSQL's own catalogue: column by column, constraint by constraint, index by
//! index.

use std::collections::BTreeSet;

use punctual_adapters_postgres::SchemaSet;
use punctual_migrations::{Dialect, Migration};
use punctual_test_servers::psql;

use crate::scratch::Scratch;

/// The original specification's statements, with `uuid` for ids of ours, `timestamptz(3)` for times, and the
/// order of bytes for what is compared. The keys of calls and attempts have the id in front, by which batches
/// are found; that of attempts ends there, since a call has one.
const SPECIFIED: &str = "
CREATE SCHEMA specified;
SET search_path = specified;
CREATE TABLE service_calls (
    tenant_id text COLLATE \"C\" NOT NULL,
    service_call_id uuid NOT NULL,
    name text NOT NULL,
    status text COLLATE \"C\" NOT NULL,
    submitted_at timestamptz(3) NOT NULL,
    due_at timestamptz(3) NOT NULL,
    started_at timestamptz(3),
    finished_at timestamptz(3),
    request_spec text NOT NULL,
    outcome_meta text,
    PRIMARY KEY (service_call_id, tenant_id),
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
);
CREATE TABLE service_call_tags (
    tenant_id text COLLATE \"C\" NOT NULL,
    service_call_id uuid NOT NULL,
    tag text COLLATE \"C\" NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id, tag),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
);
CREATE INDEX idx_service_call_tags_tag
ON service_call_tags(tenant_id, tag, service_call_id);
CREATE TABLE http_execution_log (
    tenant_id text COLLATE \"C\" NOT NULL,
    service_call_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    started_at timestamptz(3) NOT NULL,
    finished_at timestamptz(3),
    request_url text NOT NULL,
    request_method text COLLATE \"C\" NOT NULL,
    request_headers text NOT NULL,
    request_body text,
    response_status text,
    response_headers text,
    response_body text,
    error_message text,
    PRIMARY KEY (service_call_id, tenant_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH'))
);
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE \"C\" NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type text COLLATE \"C\" NOT NULL,
    event_payload text NOT NULL,
    created_at timestamptz(3) NOT NULL,
    published_at timestamptz(3)
);
-- The specification has published_at in front, which is null in every row of the index.
CREATE INDEX idx_outbox_unpublished
ON outbox(created_at, id)
WHERE published_at IS NULL;
";

/// Every column: type, whether it may be null, default or identity, collation.
const COLUMNS: &str = "
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN 'NOT NULL' END,
    CASE WHEN a.attidentity = 'a' THEN 'IDENTITY' ELSE pg_get_expr(d.adbin, d.adrelid) END,
    CASE WHEN a.attcollation <> t.typcollation THEN o.collname END
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
LEFT JOIN pg_collation o ON o.oid = a.attcollation
WHERE c.relnamespace = 'SCHEMA'::regnamespace AND c.relkind = 'KIND' AND a.attnum > 0
    AND NOT a.attisdropped AND c.relname <> 'punctual_migrations'
ORDER BY c.relname, a.attnum";

const CONSTRAINTS: &str = "
SET search_path = SCHEMA;
SELECT c.relname, pg_get_constraintdef(o.oid) FROM pg_constraint o
JOIN pg_class c ON c.oid = o.conrelid
WHERE c.relnamespace = 'SCHEMA'::regnamespace AND c.relname <> 'punctual_migrations'
ORDER BY 1, 2";

/// Those of constraints are not in it.
const INDEXES: &str = "
SET search_path = SCHEMA;
SELECT t.relname, replace(pg_get_indexdef(i.indexrelid), ' ON SCHEMA.', ' ON ') FROM pg_index i
JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = 'SCHEMA'::regnamespace
    AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = i.indexrelid AND o.contype <> 'f')
ORDER BY 1, 2";

/// How tables are stored: logged or not, and how they are vacuumed.
const STORAGE: &str = "
SELECT c.relname, CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED' END, array_to_string(c.reloptions, ' ')
FROM pg_class c WHERE c.relnamespace = 'SCHEMA'::regnamespace AND c.relkind = 'r'
    AND (c.relpersistence <> 'p' OR c.reloptions IS NOT NULL) ORDER BY 1";

/// The tables of timers, in both sets.
const TIMER_COLUMNS: &str = "
bus_positions|stream|text|NOT NULL||C
bus_positions|instance_id|uuid|NOT NULL||
bus_positions|made_at|text|NOT NULL||
bus_positions|last_sequence|bigint|NOT NULL||
bus_positions|last_message_id|text|NOT NULL||
bus_positions|acknowledged_at|timestamp(3) with time zone|NOT NULL||
bus_positions|covers_until|timestamp(3) with time zone|NOT NULL||
database_id|place|integer|NOT NULL||
database_id|id|uuid|NOT NULL||
dead_letters|sequence|bigint|NOT NULL|IDENTITY|
dead_letters|id|text|NOT NULL||C
dead_letters|source|text|NOT NULL||
dead_letters|tenant_id|text|||C
dead_letters|payload|bytea|NOT NULL||
dead_letters|reason|text|NOT NULL||
dead_letters|failed_at|timestamp(3) with time zone|NOT NULL||
instances|instance_id|uuid|NOT NULL||
instances|name|text|NOT NULL||
instances|version|text|NOT NULL||
instances|modules|text|NOT NULL||
instances|started_at|timestamp(3) with time zone|NOT NULL||
instances|heartbeat_at|timestamp(3) with time zone|NOT NULL||
instances|clock_offset_ms|bigint|NOT NULL||
republications|stream|text|NOT NULL||C
republications|instance_id|uuid|NOT NULL||
republications|lease_until|timestamp(3) with time zone|NOT NULL||
timer_claims|timer_id|bigint|NOT NULL||
timer_claims|token|bigint|NOT NULL||
timer_claims|instance_id|uuid|NOT NULL||
timer_claims|lease_until|timestamp(3) with time zone|NOT NULL||
timer_firings|timer_id|bigint|NOT NULL||
timer_firings|reached_at|timestamp(3) with time zone|NOT NULL||
timer_firings|attempts|integer|NOT NULL|0|
timer_firings|last_error|text|||
timer_queue|timer_id|bigint|NOT NULL||
timer_queue|ready_at|timestamp(3) with time zone|NOT NULL||
timer_queue|registered_at|timestamp(3) with time zone|NOT NULL||
timer_queue|due_at|timestamp(3) with time zone|NOT NULL||
timer_queue|attempts|integer|NOT NULL|0|
timer_queue|tenant_id|text|NOT NULL||C
timer_queue|last_error|text|||
timers|id|bigint|NOT NULL|IDENTITY|
timers|tenant_id|text|NOT NULL||C
timers|service_call_id|uuid|NOT NULL||
timers|correlation_id|uuid|NOT NULL||
timers|due_at|timestamp(3) with time zone|NOT NULL||
timers|registered_at|timestamp(3) with time zone|NOT NULL||
timers|data|text|||
timers|deleted_at|timestamp(3) with time zone|||";

const TIMER_CONSTRAINTS: &str = "
bus_positions|PRIMARY KEY (stream, instance_id)
database_id|CHECK ((place = 1))
database_id|PRIMARY KEY (place)
dead_letters|PRIMARY KEY (sequence)
dead_letters|UNIQUE (id)
instances|PRIMARY KEY (instance_id)
republications|PRIMARY KEY (stream)
timer_claims|PRIMARY KEY (timer_id)
timer_firings|PRIMARY KEY (timer_id)
timer_queue|PRIMARY KEY (timer_id)
timers|PRIMARY KEY (id)
timers|UNIQUE (tenant_id, service_call_id)";

/// What ties a timer to its call, in the shared set.
const FOREIGN_KEY: &str = "timers|FOREIGN KEY (tenant_id, service_call_id) REFERENCES \
    service_calls(tenant_id, service_call_id) ON DELETE CASCADE";

const TIMER_INDEXES: &str = "
timer_claims|CREATE INDEX idx_timer_claims_lease_until ON timer_claims USING btree (lease_until)
timer_firings|CREATE INDEX idx_timer_firings_reached_at ON timer_firings USING btree (reached_at)
timer_queue|CREATE INDEX idx_timer_queue_ready ON timer_queue USING btree (ready_at)
timer_queue|CREATE INDEX idx_timer_queue_tenant_ready ON timer_queue USING btree (tenant_id, ready_at, timer_id) WHERE (tenant_id IS NOT NULL)
timer_queue|CREATE INDEX idx_timer_queue_tenant_retried ON timer_queue USING btree (tenant_id, due_at, timer_id) WHERE (attempts > 0)
timers|CREATE INDEX idx_timers_correlation_id ON timers USING btree (correlation_id)
timers|CREATE INDEX idx_timers_deleted_at ON timers USING btree (deleted_at) WHERE (deleted_at IS NOT NULL)
timers|CREATE INDEX idx_timers_due_at ON timers USING btree (tenant_id, due_at, id)";

const TIMER_STORAGE: &str = "
instances||fillfactor=50
republications|UNLOGGED|
timer_claims|UNLOGGED|autovacuum_vacuum_scale_factor=0 autovacuum_vacuum_threshold=1000 autovacuum_vacuum_cost_delay=0
timer_queue||autovacuum_vacuum_scale_factor=0 autovacuum_vacuum_threshold=5000 autovacuum_vacuum_cost_delay=0";

/// What the view shows: the specification's columns first, in its order, then ours.
const VIEW: &str = "
timer_schedules|tenant_id|text|||C
timer_schedules|service_call_id|uuid|||
timer_schedules|correlation_id|uuid|||
timer_schedules|due_at|timestamp(3) with time zone|||
timer_schedules|registered_at|timestamp(3) with time zone|||
timer_schedules|reached_at|timestamp(3) with time zone|||
timer_schedules|state|text|||
timer_schedules|data|text|||
timer_schedules|attempts|integer|||
timer_schedules|retry_at|timestamp with time zone|||
timer_schedules|last_error|text|||";

fn lines(text: &str) -> Vec<String> {
    text.trim().lines().map(str::to_owned).collect()
}

/// The answer to a question of the catalogue about a schema.
fn ask(scratch: &Scratch, question: &str, schema: &str) -> Vec<String> {
    let question = question.replace("SCHEMA", schema).replace("KIND", "r");
    scratch.rows(&question)
}

/// Only what is about these tables.
fn about(lines: Vec<String>, tables: &BTreeSet<String>) -> Vec<String> {
    let is_about = |line: &String| tables.contains(line.split('|').next().unwrap());
    lines.into_iter().filter(is_about).collect()
}

fn tables_of(columns: &[String]) -> BTreeSet<String> {
    let table = |line: &String| line.split('|').next().unwrap().to_owned();
    columns.iter().map(table).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sets_have_the_same_tables_of_timers_and_the_shared_one_a_foreign_key() {
    for set in SchemaSet::ALL.into_iter().filter(|it| it.has_timers()) {
        let Some(scratch) = Scratch::migrated(set).await else {
            return;
        };
        let timer_tables = tables_of(&lines(TIMER_COLUMNS));
        let found = |question| about(ask(&scratch, question, "public"), &timer_tables);
        assert_eq!(found(COLUMNS), lines(TIMER_COLUMNS));
        assert_eq!(found(INDEXES), lines(TIMER_INDEXES));
        assert_eq!(found(STORAGE), lines(TIMER_STORAGE));
        let mut constraints = lines(TIMER_CONSTRAINTS);
        if set == SchemaSet::Shared {
            constraints.push(FOREIGN_KEY.to_owned());
            constraints.sort();
        } else {
            assert_eq!(tables_of(&ask(&scratch, COLUMNS, "public")), timer_tables);
        }
        assert_eq!(found(CONSTRAINTS), constraints);
        let view = COLUMNS.replace("SCHEMA", "public").replace("KIND", "v");
        assert_eq!(scratch.rows(&view), lines(VIEW));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_alone_have_the_tables_of_the_shared_set_but_for_what_takes_the_place_of_calls() {
    let (Some(shared), Some(alone)) = (
        Scratch::migrated(SchemaSet::Shared).await,
        Scratch::migrated(SchemaSet::ExecutionOnly).await,
    ) else {
        return;
    };
    let tables = tables_of(&ask(&alone, COLUMNS, "public"));
    let mut own = Vec::new();
    for question in [COLUMNS, CONSTRAINTS, INDEXES, STORAGE] {
        let mut shared = about(ask(&shared, question, "public"), &tables);
        shared.retain(|line| !line.contains("FOREIGN KEY"));
        let alone = ask(&alone, question, "public");
        assert!(shared.iter().all(|line| alone.contains(line)), "{shared:?}");
        own.extend(alone.into_iter().filter(|line| !shared.contains(line)));
    }
    assert_eq!(
        own,
        [
            "tombstones|tenant_id|text|NOT NULL||C",
            "tombstones|service_call_id|uuid|NOT NULL||",
            "tombstones|deleted_at|timestamp(3) with time zone|NOT NULL||",
            "tombstones|PRIMARY KEY (service_call_id, tenant_id)",
            "http_execution_log|CREATE INDEX idx_http_execution_log_finished_at ON http_execution_log USING btree (finished_at) WHERE (state = 'Finished'::text)",
            "tombstones|CREATE INDEX idx_tombstones_deleted_at ON tombstones USING btree (deleted_at)",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_specified_is_missing_or_changed() {
    let Some(scratch) = Scratch::migrated(SchemaSet::Shared).await else {
        return;
    };
    scratch.execute(SPECIFIED);
    let specified = ask(&scratch, COLUMNS, "specified");
    let tables = tables_of(&specified);
    assert_eq!(tables.len(), 4);
    let actual = about(ask(&scratch, COLUMNS, "public"), &tables);
    for table in &tables {
        let of_table = |lines: &[String]| -> Vec<String> {
            about(lines.to_vec(), &BTreeSet::from([table.clone()]))
        };
        let (before, now) = (of_table(&specified), of_table(&actual));
        // The tags have one of their own in the middle of what is added.
        assert!(now.starts_with(&before), "{table}: {now:?}");
    }
    let mut found = 0;
    for question in [CONSTRAINTS, INDEXES] {
        let actual = ask(&scratch, question, "public");
        for line in ask(&scratch, question, "specified") {
            assert!(actual.contains(&line), "{line}\n{actual:#?}");
            found += 1;
        }
    }
    // Four primary keys, two foreign ones, two checks, two indexes.
    assert_eq!(found, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_migrations_create_exactly_what_their_texts_say() {
    for set in SchemaSet::ALL {
        let Some(scratch) = Scratch::migrated(set).await else {
            return;
        };
        let created = set.migrations(Dialect::Postgres).iter();
        let created: BTreeSet<&str> = created.flat_map(Migration::creates).collect();
        let found = scratch.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
                AND relkind IN ('r', 'v') AND relname <> 'punctual_migrations'
             UNION ALL SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class t ON t.oid = indrelid
             WHERE t.relnamespace = 'public'::regnamespace
                AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = indexrelid AND o.contype <> 'f')",
        );
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, created, "{}", set.name());
    }
}

/// A timer in each state: waiting, retried, reached, deleted.
const STATES: &str = "
INSERT INTO timers (tenant_id, service_call_id, correlation_id, due_at, registered_at, data, deleted_at)
SELECT 'a', ('00000000-0000-7000-8000-00000000000' || i)::uuid, '00000000-0000-7000-8000-0000000000aa',
    '2026-01-01 00:00:00.001Z', '2025-01-01Z', '{}', CASE WHEN i = 4 THEN now() END
FROM generate_series(1, 4) i;
INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, attempts, tenant_id, last_error)
VALUES (1, '2026-01-01 00:00:00.001Z', '2025-01-01Z', '2026-01-01 00:00:00.001Z', 0, 'a', NULL),
    (2, '2026-01-01 00:01Z', '2025-01-01Z', '2026-01-01 00:00:00.001Z', 2, 'a', 'no');
INSERT INTO timer_firings VALUES (3, '2026-01-01 00:00:01Z', 1, 'late');";

#[tokio::test(flavor = "multi_thread")]
async fn the_view_shows_each_state_and_takes_no_writes() {
    let Some(scratch) = Scratch::migrated(SchemaSet::TimersOnly).await else {
        return;
    };
    scratch.execute(STATES);
    let rows = scratch.rows(
        "SET timezone = 'UTC'; SELECT right(service_call_id::text, 1), state, reached_at, attempts, retry_at, last_error
         FROM timer_schedules WHERE due_at = '2026-01-01 00:00:00.001Z' ORDER BY 1",
    );
    assert_eq!(
        rows,
        [
            "1|Scheduled||0||",
            "2|Scheduled||2|2026-01-01 00:01:00+00|no",
            "3|Reached|2026-01-01 00:00:01+00|1||late",
        ]
    );
    for write in [
        "INSERT INTO timer_schedules (tenant_id) VALUES ('a')",
        "UPDATE timer_schedules SET state = 'Reached'",
        "DELETE FROM timer_schedules",
    ] {
        let said = psql(&scratch.url(), write).unwrap_err();
        assert!(said.contains("view \"timer_schedules\""), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_call_deletes_its_timer_and_all_its_parts_and_no_other() {
    let Some(scratch) = Scratch::migrated(SchemaSet::Shared).await else {
        return;
    };
    assert!(psql(&scratch.url(), STATES).is_err(), "it has no parent");
    scratch.execute(
        "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at,
            request_spec, correlation_id, command_id, version)
         SELECT 'a', ('00000000-0000-7000-8000-00000000000' || i)::uuid, 'n', 'Failed', now(), now(), '',
            gen_random_uuid(), gen_random_uuid(), 1 FROM generate_series(1, 4) i",
    );
    // The one that was refused has used ids.
    scratch.execute(&format!("ALTER SEQUENCE timers_id_seq RESTART; {STATES}"));
    scratch.execute("INSERT INTO timer_claims VALUES (1, 1, gen_random_uuid(), now()), (2, 1, gen_random_uuid(), now())");
    // Whoever deletes may have another search path.
    scratch.execute(
        "SET search_path = pg_catalog;
         DELETE FROM public.service_calls WHERE right(service_call_id::text, 1) IN ('1', '3')",
    );
    let left = |table: &str| {
        let rows = format!("SELECT timer_id FROM {table} WHERE timer_id > 0 ORDER BY 1");
        scratch.rows(&rows).join(" ")
    };
    assert_eq!(
        scratch.execute("SELECT string_agg(id::text, ' ' ORDER BY id) FROM timers"),
        "2 4"
    );
    assert_eq!(left("timer_queue"), "2");
    assert_eq!(left("timer_firings"), "");
    assert_eq!(left("timer_claims"), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_allowed_is_refused_by_the_tables_themselves() {
    let Some(scratch) = Scratch::migrated(SchemaSet::Shared).await else {
        return;
    };
    let call = "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at,
        request_spec, correlation_id, command_id, version)
        VALUES ('a', gen_random_uuid(), 'n', STATUS, now(), now(), '', gen_random_uuid(), gen_random_uuid(), 1)";
    scratch.execute(&call.replace("STATUS", "'Running'"));
    for (status, reason) in [
        ("'Canceled'", "check constraint"),
        ("NULL", "not-null constraint"),
    ] {
        let said = psql(&scratch.url(), &call.replace("STATUS", status)).unwrap_err();
        assert!(said.contains(reason), "{said}");
    }
}
