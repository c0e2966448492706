-- Timers on a file of their own: the same tables as the shared set ends with, but without service
-- calls, and so without the foreign key. Deletions arrive as messages instead of as a cascade.

CREATE TABLE timer_schedules (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    reached_at TEXT,
    state TEXT NOT NULL DEFAULT 'Scheduled',
    -- JSON that the firing carries; opaque to us.
    data TEXT,
    -- How many publishes of the schedule in force have failed.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- The earliest instant of the next attempt; null until one has failed.
    retry_at TEXT,
    PRIMARY KEY (tenant_id, service_call_id),
    CHECK (state IN ('Scheduled', 'Reached'))
) STRICT;

CREATE INDEX idx_timer_schedules_due_at
-- A tenant's own timers in the order in which they come due.
ON timer_schedules(tenant_id, state, due_at);

CREATE INDEX idx_timer_schedules_correlation_id
-- The trace of one request, across tenants.
ON timer_schedules(correlation_id);

CREATE INDEX idx_timer_schedules_ready
-- The worker's: what is due next, whatever its tenant. One poll costs the same for one tenant and
-- for ten thousand. Fired timers are not in it, so it stays as small as the work ahead.
ON timer_schedules(coalesce(retry_at, due_at))
WHERE state = 'Scheduled';

CREATE INDEX idx_timer_schedules_reached_at
-- Retention's: the timers that fired longest ago. Without it every batch would scan the table.
ON timer_schedules(reached_at)
WHERE state = 'Reached';

CREATE TABLE tombstones (
    -- A deleted timer: commands that are not newer than deleted_at do not bring it back.
    -- No foreign key: the service call is gone as well.
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    deleted_at TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;

CREATE INDEX idx_tombstones_deleted_at
-- Retention's: the oldest tombstones.
ON tombstones(deleted_at);

CREATE TABLE dead_letters (
    -- What could never be handled, byte for byte, in the order in which it was given up.
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The same letter put down twice is one letter.
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    -- Null if the message did not even say whose it is.
    tenant_id TEXT,
    payload BLOB NOT NULL,
    reason TEXT NOT NULL,
    failed_at TEXT NOT NULL
) STRICT;
