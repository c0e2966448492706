-- The timer's own columns. SQLite cannot add a CHECK to a table that exists, so the table is made
-- anew and its rows are copied. The runner has turned foreign keys off: otherwise dropping a table
-- would first delete its rows, and with them whatever refers to them.

CREATE TABLE timer_schedules_new (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    reached_at TEXT,
    state TEXT NOT NULL DEFAULT 'Scheduled',
    PRIMARY KEY (tenant_id, service_call_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (state IN ('Scheduled', 'Reached'))
) STRICT;

-- A stub says that its call had a timer, but not for when. With an invented due time it would fire,
-- which nobody asked for; so it counts as having fired at the time of this migration (:now, bound
-- by the runner), and retention removes it in its turn. The nil UUID stands for "no request known".
INSERT INTO timer_schedules_new (
    tenant_id, service_call_id, correlation_id, due_at, registered_at, reached_at, state
)
SELECT
    tenant_id,
    service_call_id,
    '00000000-0000-0000-0000-000000000000',
    :now,
    :now,
    :now,
    'Reached'
FROM timer_schedules;

DROP TABLE timer_schedules;

ALTER TABLE timer_schedules_new RENAME TO timer_schedules;

CREATE INDEX idx_timer_schedules_due_at
-- A tenant's own timers in the order in which they come due.
ON timer_schedules(tenant_id, state, due_at);

CREATE INDEX idx_timer_schedules_correlation_id
-- The trace of one request, across tenants.
ON timer_schedules(correlation_id);
