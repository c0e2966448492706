-- Columns of service_calls under the words of the field: when a sweep checks a call next, and when and
-- how often the command of its attempt was dispatched. The table is made anew: renaming a column fails
-- where some other table or view of the file, which is not ours, is out of order.

CREATE TABLE service_calls_new (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    -- Complete until the call has finished; then redacted.
    request_spec TEXT NOT NULL,
    -- The answer of the target if it Succeeded, the error if it Failed.
    outcome_meta TEXT,
    correlation_id TEXT NOT NULL,
    -- The message that brought the call, and the cause of those about it.
    command_id TEXT NOT NULL,
    -- Grows with each change, so that a change is made to what was seen.
    version INTEGER NOT NULL,
    -- When a sweep checks whether the call is stuck; null once it has finished.
    next_check_at TEXT,
    -- The one attempt of a Running call, and the message that started it.
    execution_id TEXT,
    caused_by TEXT,
    timeout_ms INTEGER,
    attempt_began_at TEXT,
    -- When the command of the attempt was last dispatched, and how often.
    dispatched_at TEXT,
    dispatch_count INTEGER,
    PRIMARY KEY (tenant_id, service_call_id),
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
) STRICT;

INSERT INTO service_calls_new (
    tenant_id, service_call_id, name, status, submitted_at, due_at, started_at, finished_at,
    request_spec, outcome_meta, correlation_id, command_id, version, next_check_at, execution_id,
    caused_by, timeout_ms, attempt_began_at, dispatched_at, dispatch_count
)
SELECT
    tenant_id, service_call_id, name, status, submitted_at, due_at, started_at, finished_at,
    request_spec, outcome_meta, correlation_id, command_id, version, look_at, execution_id,
    caused_by, timeout_ms, attempt_began_at, asked_at, asked
FROM service_calls;

DROP TABLE service_calls;

ALTER TABLE service_calls_new RENAME TO service_calls;

CREATE INDEX idx_service_calls_due_at
-- A tenant's calls, read backwards: the latest due first.
ON service_calls(tenant_id, due_at, service_call_id);

CREATE INDEX idx_service_calls_status
-- The same for one status: without it, the few that failed would be searched among all.
ON service_calls(tenant_id, status, due_at, service_call_id);

CREATE INDEX idx_service_calls_correlation_id
-- The trace of one request, across tenants.
ON service_calls(correlation_id);

CREATE INDEX idx_service_calls_next_check_at
-- The sweep's: what to check next, whatever its tenant. Finished calls are not in it, so it stays as
-- small as the work ahead.
ON service_calls(next_check_at)
WHERE next_check_at IS NOT NULL;

CREATE INDEX idx_service_calls_finished_at
-- Retention's: the calls that finished longest ago.
ON service_calls(finished_at)
WHERE finished_at IS NOT NULL;
