-- Attempts in a database of their own: the same tables as the shared set ends with, but without service
-- calls, and so without the foreign key. Deletions arrive as messages instead of as a cascade.

CREATE TABLE http_execution_log (
    tenant_id text COLLATE "C" NOT NULL,
    service_call_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    -- When the attempt began; until then, when it was dispatched.
    started_at timestamptz(3) NOT NULL,
    finished_at timestamptz(3),
    -- What may be shown of the request: its secrets are redacted, its body is cut.
    request_url text NOT NULL,
    request_method text COLLATE "C" NOT NULL,
    request_headers text NOT NULL,
    request_body text,
    -- What may be shown of the answer.
    response_status text,
    response_headers text,
    response_body text,
    error_message text,
    correlation_id uuid NOT NULL,
    state text COLLATE "C" NOT NULL,
    timeout_ms bigint NOT NULL,
    -- The host that the request goes to, with its port: whose turn it is.
    host text COLLATE "C" NOT NULL,
    -- The request with its secrets, as it is to be sent; null once the attempt has finished.
    request_spec text,
    -- The whole outcome: an answer if it has a status, a failure if it has a kind.
    outcome_meta text,
    -- Which instance makes it, and until when nobody else calls it abandoned. In columns and logged, unlike
    -- the claims of timers: one that was lost with the server would end an attempt that is being made.
    claimed_by uuid,
    claim_token bigint NOT NULL DEFAULT 0,
    lease_until timestamptz(3),
    -- A call has one attempt: of two instances that are given one each, one stores it.
    PRIMARY KEY (service_call_id, tenant_id),
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH')),
    CHECK (state IN ('Waiting', 'Attempted', 'Finished'))
)
-- Every row changes twice, and leaves an index of work ahead each time.
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_http_execution_log_waiting
-- Whose turn it is: the next tenant, its next host, and the oldest of those. However many wait for
-- one host, the next one is a step away. What has begun is not in it. The id decides between those of
-- one millisecond.
ON http_execution_log (tenant_id, host, started_at, execution_id)
WHERE state = 'Waiting';

CREATE INDEX idx_http_execution_log_open
-- The attempts that began and have not ended, the oldest first.
ON http_execution_log (started_at)
WHERE state = 'Attempted';

CREATE INDEX idx_http_execution_log_finished_at
-- Retention's: the attempts that finished longest ago. Beside their calls they are removed with those.
ON http_execution_log (finished_at)
WHERE state = 'Finished';

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

CREATE INDEX idx_outbox_aggregate_id
-- The messages about one call.
ON outbox (tenant_id, aggregate_id);

CREATE UNLOGGED TABLE outbox_claims (
    -- Who is publishing which message. Not logged: a claim that is lost with the server is a message that
    -- may be published twice.
    message_id bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    aggregate_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    lease_until timestamptz(3) NOT NULL,
    -- Its owner leaves it alone until then, and it holds up nothing.
    is_parked boolean NOT NULL DEFAULT false
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_outbox_claims_aggregate_id
-- Whether a message is claimed, or an earlier one about the same call.
ON outbox_claims (tenant_id, aggregate_id, message_id);

CREATE INDEX idx_outbox_claims_lease_until
-- When the next claim ends.
ON outbox_claims (lease_until);

ALTER TABLE outbox_claims ADD PRIMARY KEY (message_id);

CREATE INDEX idx_outbox_published_at
-- Retention's: the messages that were published longest ago.
ON outbox (published_at)
WHERE published_at IS NOT NULL;

CREATE TABLE tombstones (
    -- A deleted call: a command that comes after the deletion starts no attempt of it.
    tenant_id text COLLATE "C" NOT NULL,
    service_call_id uuid NOT NULL,
    deleted_at timestamptz(3) NOT NULL,
    PRIMARY KEY (service_call_id, tenant_id)
);

CREATE INDEX idx_tombstones_deleted_at
-- Retention's: the oldest tombstones.
ON tombstones (deleted_at);

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
