-- What the engine needs beyond the original schedule: a timer's data, its retries, the worker's and
-- retention's indexes, tombstones and dead letters.

-- JSON that the firing carries; opaque to us.
ALTER TABLE timer_schedules ADD COLUMN data TEXT;

-- How many publishes of the schedule in force have failed.
ALTER TABLE timer_schedules ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;

-- The earliest instant of the next attempt; null until one has failed.
ALTER TABLE timer_schedules ADD COLUMN retry_at TEXT;

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
