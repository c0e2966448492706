-- The timers of service calls. A timer is one row of timers, and one more that says in which state it is:
-- in timer_queue while it is Scheduled, in timer_firings once it is Reached. So a firing changes no index
-- of a table that is kept (docs/decisions/0045-postgresql-layout.md).

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
    UNIQUE (tenant_id, service_call_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls (tenant_id, service_call_id)
        ON DELETE CASCADE
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
