-- What the modules share: the service calls, which timers and attempts refer to, and the outbox. The
-- calls have all their columns from the beginning; on SQLite a stub came first.

CREATE TABLE service_calls (
    -- Texts that are compared or sorted have the order of bytes, which is that of the other stores, and
    -- which no update of the operating system changes under an index.
    tenant_id text COLLATE "C" NOT NULL,
    service_call_id uuid NOT NULL,
    name text NOT NULL,
    status text COLLATE "C" NOT NULL,
    submitted_at timestamptz(3) NOT NULL,
    due_at timestamptz(3) NOT NULL,
    started_at timestamptz(3),
    finished_at timestamptz(3),
    -- JSON, as text: it is sent and shown as it was given, and no query reads inside it. Complete until
    -- the call has finished; then redacted.
    request_spec text NOT NULL,
    -- The answer of the target if it Succeeded, the error if it Failed.
    outcome_meta text,
    correlation_id uuid NOT NULL,
    -- The message that brought the call, and the cause of those about it.
    command_id uuid NOT NULL,
    -- Grows with each change, so that a change is made to what was seen.
    version bigint NOT NULL,
    -- When a sweep checks whether the call is stuck; null once it has finished.
    next_check_at timestamptz(3),
    -- The one attempt of a Running call, and the message that started it.
    execution_id uuid,
    caused_by uuid,
    timeout_ms bigint,
    attempt_began_at timestamptz(3),
    -- When the command of the attempt was last dispatched, and how often.
    dispatched_at timestamptz(3),
    dispatch_count bigint,
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
)
-- Every row changes several times and is then kept for long: vacuum before many of its versions have
-- piled up in the sweep's index, and without pauses.
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_service_calls_due_at
-- A tenant's calls, read backwards: the latest due first.
ON service_calls (tenant_id, due_at, service_call_id);

CREATE INDEX idx_service_calls_status
-- The same for one status: without it, the few that failed would be searched among all.
ON service_calls (tenant_id, status, due_at, service_call_id);

CREATE INDEX idx_service_calls_correlation_id
-- The trace of one request, across tenants.
ON service_calls (correlation_id);

CREATE INDEX idx_service_calls_next_check_at
-- The sweep's: what to check next, whatever its tenant. Finished calls are not in it, so it stays as
-- small as the work ahead.
ON service_calls (next_check_at)
WHERE next_check_at IS NOT NULL;

CREATE INDEX idx_service_calls_finished_at
-- Retention's: the calls that finished longest ago.
ON service_calls (finished_at)
WHERE finished_at IS NOT NULL;

-- The id in front: so the calls of many tenants, which are written at once, are found by their ids. After the
-- other indexes that have the id: where the planner takes the table for empty they cost the same, and it takes
-- the last one.
ALTER TABLE service_calls ADD PRIMARY KEY (service_call_id, tenant_id);

-- No foreign key: an event outlives the call that it speaks of.
CREATE TABLE outbox (
    -- Never used twice. Ids are drawn in the order of insertion, but transactions of several writers
    -- may commit in another one.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    -- The whole envelope, as it will be published.
    event_payload text NOT NULL,
    created_at timestamptz(3) NOT NULL,
    published_at timestamptz(3)
)
-- Every row is published once and deleted once.
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_outbox_unpublished
-- The dispatcher's: what is still to be published, oldest first. Published rows are not in it, so
-- it stays as small as the backlog. Without published_at in front, as SQLite has it: it is null in every
-- row of the index, but PostgreSQL does not count on that, and would sort or read from the beginning.
ON outbox (created_at, id)
WHERE published_at IS NULL;
