//! A million timers of a thousand tenants, and the states of the tables in which plans go wrong.

use crate::scratch::Scratch;

/// Without triggers and with the indexes made at the end, since that is faster. `ANALYZE` belongs to it as
/// to every bulk load.
const LOAD: &str = "
SET session_replication_role = replica;
SET maintenance_work_mem = '256MB';
CREATE TEMP TABLE kept AS
    SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname LIKE 'idx_timer%';
DO $$ DECLARE it record; BEGIN
    FOR it IN SELECT * FROM kept LOOP EXECUTE 'DROP INDEX ' || it.name; END LOOP;
END $$;

INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at,
    request_spec, correlation_id, command_id, version)
SELECT 'tenant-0000', ('00000000-0000-7000-8000-' || to_char(i, 'FM000000000000'))::uuid, 'a',
    'Scheduled', now(), now(), '{}', gen_random_uuid(), gen_random_uuid(), 1
FROM generate_series(1000000, 1009999) i;

-- In the order of keys, and due in another one: a second apart.
INSERT INTO timers OVERRIDING SYSTEM VALUE
SELECT i + 1, 'tenant-' || to_char(i / 1000, 'FM0000'),
    ('00000000-0000-7000-8000-' || to_char(i, 'FM000000000000'))::uuid,
    ('00000000-0000-7000-9000-' || to_char(i / 3, 'FM000000000000'))::uuid,
    to_timestamp(1700000000 + (i::bigint * 7919) % 1000000), to_timestamp(1600000000), '{}',
    CASE WHEN i % 20 = 7 THEN to_timestamp(1600000000 + i) END
FROM generate_series(0, 999999) i;
SELECT setval(pg_get_serial_sequence('timers', 'id'), 1000000);

INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, attempts, tenant_id)
SELECT id, due_at + (id % 50 = 1)::int * interval '1 hour', registered_at, due_at,
    (id % 50 = 1)::int, tenant_id
FROM timers WHERE deleted_at IS NULL AND id % 10 <> 0;
INSERT INTO timer_firings (timer_id, reached_at)
SELECT id, due_at FROM timers WHERE deleted_at IS NULL AND id % 10 = 0;
-- One of a hundred is being fired.
INSERT INTO timer_claims
SELECT id, 7, '00000000-0000-7000-8000-000000000007', now() + interval '1 hour'
FROM timers WHERE deleted_at IS NULL AND id % 100 = 4;
INSERT INTO dead_letters (id, source, tenant_id, payload, reason, failed_at)
SELECT i::text, 'timer', 'a', '', 'a', now() FROM generate_series(1, 10000) i;
INSERT INTO bus_positions
SELECT 'stream-' || i % 10, gen_random_uuid(), '', 1, '', now(), now()
FROM generate_series(1, 1000) i;
INSERT INTO republications SELECT 'stream-' || i, gen_random_uuid(), now()
FROM generate_series(1, 1000) i;

DO $$ DECLARE it record; BEGIN
    FOR it IN SELECT * FROM kept LOOP EXECUTE it.definition; END LOOP;
END $$;
ANALYZE;
";

/// Autovacuum would change what is under test.
const UNATTENDED: &str = "
ALTER TABLE timers SET (autovacuum_enabled = off);
ALTER TABLE timer_queue SET (autovacuum_enabled = off);
ALTER TABLE timer_firings SET (autovacuum_enabled = off);
ALTER TABLE timer_claims SET (autovacuum_enabled = off);
";

/// What the planner believes of tables that a vacuum found empty, although they have filled up since.
const EMPTY_TO_THE_PLANNER: &str = "
UPDATE pg_class SET reltuples = 0
WHERE oid IN (SELECT indexrelid FROM pg_index JOIN pg_class c ON c.oid = indrelid
        WHERE c.relname LIKE 'timer\\_%')
    OR relname IN ('timer_queue', 'timer_firings', 'timer_claims');
";

/// After an upgrade of the server, or a restore.
const WITHOUT_STATISTICS: &str = "
DELETE FROM pg_statistic
WHERE starelid IN ('timer_queue'::regclass, 'timer_firings'::regclass, 'timer_claims'::regclass);
";

/// A hundred thousand timers have fired, and as many claims were made and ended.
const FIRED: &str = "
INSERT INTO timer_claims
    SELECT timer_id, 8, '00000000-0000-7000-8000-000000000008', now() + interval '1 hour'
    FROM timer_queue WHERE ready_at < to_timestamp(1700000000 + 117000)
    ON CONFLICT DO NOTHING;
DELETE FROM timer_claims WHERE token = 8;
INSERT INTO timer_firings (timer_id, reached_at)
    SELECT timer_id, ready_at FROM timer_queue
    WHERE ready_at < to_timestamp(1700000000 + 117000);
DELETE FROM timer_queue WHERE ready_at < to_timestamp(1700000000 + 117000);
";

/// The tables of the shared set, filled.
pub(super) async fn load() -> Option<Scratch> {
    let scratch = Scratch::migrated(punctual_adapters_postgres::SchemaSet::Shared).await?;
    scratch.execute(UNATTENDED);
    scratch.execute(LOAD);
    Some(scratch)
}

pub(super) fn seem_empty(scratch: &Scratch) {
    scratch.execute(EMPTY_TO_THE_PLANNER);
}

pub(super) fn forget_statistics(scratch: &Scratch) {
    scratch.execute(WITHOUT_STATISTICS);
}

pub(super) fn fire_many(scratch: &Scratch) {
    scratch.execute(FIRED);
}
