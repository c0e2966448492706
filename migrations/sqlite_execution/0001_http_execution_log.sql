-- Attempts in a file of their own: the same tables as the shared set ends with, but without service
-- calls, and so without the foreign key. Deletions arrive as messages instead of as a cascade.

CREATE TABLE http_execution_log (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    -- When the attempt began; until then, when it was dispatched.
    started_at TEXT NOT NULL,
    finished_at TEXT,
    -- What may be shown of the request: its secrets are redacted, its body is cut.
    request_url TEXT NOT NULL,
    request_method TEXT NOT NULL,
    request_headers TEXT NOT NULL,
    request_body TEXT,
    -- What may be shown of the answer.
    response_status TEXT,
    response_headers TEXT,
    response_body TEXT,
    error_message TEXT,
    correlation_id TEXT NOT NULL,
    state TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    -- The host that the request goes to, with its port: whose turn it is.
    host TEXT NOT NULL,
    -- The request with its secrets, as it is to be sent; null once the attempt has finished.
    request_spec TEXT,
    -- The whole outcome: an answer if it has a status, a failure if it has a kind.
    outcome_meta TEXT,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH')),
    CHECK (state IN ('Waiting', 'Attempted', 'Finished'))
) STRICT;

CREATE INDEX idx_http_execution_log_waiting
-- Whose turn it is: the next tenant, its next host, and the oldest of those. However many wait for
-- one host, the next one is a step away. What has begun is not in it.
ON http_execution_log(tenant_id, host, started_at)
WHERE state = 'Waiting';

CREATE INDEX idx_http_execution_log_open
-- The attempts that began and have not ended, the oldest first.
ON http_execution_log(started_at)
WHERE state = 'Attempted';

CREATE INDEX idx_http_execution_log_finished_at
-- Retention's: the attempts that finished longest ago. Beside their calls they are removed with those.
ON http_execution_log(finished_at)
WHERE state = 'Finished';

CREATE TABLE outbox (
    -- Never used twice, so the order of ids is the order of insertion.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    -- The whole envelope, as it will be published.
    event_payload TEXT NOT NULL,
    created_at TEXT NOT NULL,
    published_at TEXT
) STRICT;

CREATE INDEX idx_outbox_unpublished
-- The dispatcher's: what is still to be published, oldest first. Published rows are not in it, so
-- it stays as small as the backlog.
ON outbox(published_at, created_at)
WHERE published_at IS NULL;

CREATE INDEX idx_outbox_aggregate_id
-- The messages about one call, in the order of their places.
ON outbox(tenant_id, aggregate_id);

CREATE INDEX idx_outbox_published_at
-- Retention's: the messages that were published longest ago.
ON outbox(published_at)
WHERE published_at IS NOT NULL;

CREATE TABLE tombstones (
    -- A deleted call: a command that comes after the deletion starts no attempt of it.
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
    -- The same dead letter recorded twice is one.
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    -- Null if the message did not even say whose it is.
    tenant_id TEXT,
    payload BLOB NOT NULL,
    reason TEXT NOT NULL,
    failed_at TEXT NOT NULL
) STRICT;
