-- Timers in a database of their own: the same tables as the shared set ends with, but without service
-- calls, and so without the foreign key. Deletions arrive as messages instead of as a cascade.
--
-- A timer is one row of timers, and one more that says in which state it is: in timer_queue while it is
-- Scheduled, in timer_firings once it is Reached. So a firing changes no index of a table that is kept
-- (docs/decisions/0045-postgresql-layout.md).

CREATE TABLE timers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The order of bytes, which is that of the other stores.
    tenant_id text COLLATE "C" NOT NULL,
    service_call_id uuid NOT NULL,
    correlation_id uuid NOT NULL,
    due_at timestamptz(3) NOT NULL,
    registered_at timestamptz(3) NOT NULL,
    -- JSON that the firing carries; opaque to us.
    data text,
    -- The row of a deleted timer stays as a tombstone: commands that are not newer do not bring it back.
    -- It is the row that concurrent commands lock.
    deleted_at timestamptz(3),
    UNIQUE (tenant_id, service_call_id)
);

CREATE INDEX idx_timers_due_at
-- A tenant's own timers in the order in which they come due.
ON timers (tenant_id, due_at, id);

CREATE INDEX idx_timers_correlation_id
-- The trace of one request, across tenants.
ON timers (correlation_id);

CREATE INDEX idx_timers_deleted_at
-- Retention's: the oldest tombstones.
ON timers (deleted_at)
WHERE deleted_at IS NOT NULL;

CREATE TABLE timer_queue (
    -- A row while the timer is Scheduled.
    timer_id bigint PRIMARY KEY,
    -- When it may be claimed: its due time, or that of its next retry.
    ready_at timestamptz(3) NOT NULL,
    -- Which schedule of the timer it is. A mark that names another one changes nothing.
    registered_at timestamptz(3) NOT NULL,
    due_at timestamptz(3) NOT NULL,
    -- How many firings of this schedule have failed.
    attempts integer NOT NULL DEFAULT 0,
    tenant_id text COLLATE "C" NOT NULL
)
-- Every row is deleted once: vacuum by their number, however many are waiting, and without pauses.
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_timer_queue_ready
-- The worker's: what is due next, whatever its tenant.
ON timer_queue (ready_at);

CREATE TABLE timer_firings (
    -- A row once the timer is Reached.
    timer_id bigint PRIMARY KEY,
    reached_at timestamptz(3) NOT NULL,
    attempts integer NOT NULL DEFAULT 0
);

CREATE INDEX idx_timer_firings_reached_at
-- Retention's and republication's: by the time of the firing.
ON timer_firings (reached_at);

CREATE UNLOGGED TABLE timer_claims (
    -- Who is firing which timer. Not logged: a claim that is lost with the server is a firing that may
    -- come twice. Row 0 is no claim: its lease_until says since when all claims are known.
    timer_id bigint PRIMARY KEY,
    token bigint NOT NULL,
    instance_id uuid NOT NULL,
    lease_until timestamptz(3) NOT NULL
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_timer_claims_lease_until
-- When the next lease ends.
ON timer_claims (lease_until);

INSERT INTO timer_claims (timer_id, token, instance_id, lease_until)
VALUES (0, 0, '00000000-0000-0000-0000-000000000000', '-infinity');

CREATE TABLE instances (
    -- Who watches these tables, and when it last said so. Nothing that fires or makes calls depends on it.
    instance_id uuid PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    modules text NOT NULL,
    started_at timestamptz(3) NOT NULL,
    heartbeat_at timestamptz(3) NOT NULL,
    -- By how much its clock is ahead of ours.
    clock_offset_ms bigint NOT NULL
)
-- Each row changes every few seconds, and stays on its page.
WITH (fillfactor = 50);

CREATE TABLE dead_letters (
    -- What could never be handled, byte for byte, in the order in which it was recorded.
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The same dead letter recorded twice is one.
    id text COLLATE "C" NOT NULL UNIQUE,
    source text NOT NULL,
    -- Null if the message did not even say whose it is.
    tenant_id text COLLATE "C",
    payload bytea NOT NULL,
    reason text NOT NULL,
    failed_at timestamptz(3) NOT NULL
);

CREATE VIEW timer_schedules AS
-- The timers as the original specification has them, for people and other programs. Nothing can be
-- written through it.
SELECT
    t.tenant_id,
    t.service_call_id,
    t.correlation_id,
    t.due_at,
    t.registered_at,
    f.reached_at,
    CASE WHEN f.timer_id IS NULL THEN 'Scheduled' ELSE 'Reached' END AS state,
    t.data,
    coalesce(q.attempts, f.attempts) AS attempts,
    CASE WHEN q.attempts > 0 THEN q.ready_at END AS retry_at
FROM timers AS t
LEFT JOIN timer_queue AS q ON q.timer_id = t.id
LEFT JOIN timer_firings AS f ON f.timer_id = t.id
WHERE t.deleted_at IS NULL;
