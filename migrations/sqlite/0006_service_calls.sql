-- Service calls: the calls themselves, their tags, what is remembered of submissions, and the log of
-- attempts. The stubs are made anew with the columns of the original specification and those that we
-- add. The runner has turned foreign keys off: otherwise dropping a table would first delete its
-- rows, and with them the timers. Timers refer to service_calls by its name, which the new table takes.

CREATE TABLE service_calls_new (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    -- Whole until the call has finished; then without what was secret about it.
    request_spec TEXT NOT NULL,
    -- What the target answered if it Succeeded, why there is no good answer if it Failed.
    outcome_meta TEXT,
    correlation_id TEXT NOT NULL,
    -- The message that brought the call; what is told of it names that as its cause.
    command_id TEXT NOT NULL,
    -- Grows with each change, so that a change is made to what was seen.
    version INTEGER NOT NULL,
    -- When somebody should look whether something was missed; null once the call has finished.
    look_at TEXT,
    -- The one attempt of a Running call, and the message that started it.
    execution_id TEXT,
    caused_by TEXT,
    timeout_ms INTEGER,
    attempt_began_at TEXT,
    -- When the command for the attempt last went out, and how often it has.
    asked_at TEXT,
    asked INTEGER,
    PRIMARY KEY (tenant_id, service_call_id),
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
) STRICT;

-- A stub says that there was a call, but neither what to send nor when. It was never made, and never
-- will be: it counts as Failed at the time of this migration, and retention removes it in its turn.
INSERT INTO service_calls_new (
    tenant_id, service_call_id, name, status, submitted_at, due_at, finished_at, request_spec,
    outcome_meta, correlation_id, command_id, version
)
SELECT
    tenant_id,
    service_call_id,
    '(migrated)',
    'Failed',
    :now,
    :now,
    :now,
    '{"method":"GET","url":"http://migrated.invalid/"}',
    '{"kind":"Migrated","message":"it was there before calls could be made","latencyMs":0}',
    '00000000-0000-0000-0000-000000000000',
    '00000000-0000-0000-0000-000000000000',
    1
FROM service_calls;

DROP TABLE service_calls;

ALTER TABLE service_calls_new RENAME TO service_calls;

CREATE INDEX idx_service_calls_due_at
-- A tenant's calls, read backwards: the latest due first.
ON service_calls(tenant_id, due_at, service_call_id);

CREATE INDEX idx_service_calls_status
-- The same for one status: without it, the few that failed would be looked for among all.
ON service_calls(tenant_id, status, due_at, service_call_id);

CREATE INDEX idx_service_calls_correlation_id
-- The trace of one request, across tenants.
ON service_calls(correlation_id);

CREATE INDEX idx_service_calls_look_at
-- The sweep's: what should be looked at next, whatever its tenant. Finished calls are not in it, so
-- it stays as small as the work ahead.
ON service_calls(look_at)
WHERE look_at IS NOT NULL;

CREATE INDEX idx_service_calls_finished_at
-- Retention's: the calls that finished longest ago.
ON service_calls(finished_at)
WHERE finished_at IS NOT NULL;

CREATE TABLE service_call_tags (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    -- The call's, which never changes: the calls of a tag are read in the order of the list.
    due_at TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id, tag),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
) STRICT;

CREATE INDEX idx_service_call_tags_tag
-- Whether a call has a tag, and how many have it, from the tag's side.
ON service_call_tags(tenant_id, tag, service_call_id);

CREATE INDEX idx_service_call_tags_due_at
-- The calls of one tag, the latest due first, so that a page of a million reads a page.
ON service_call_tags(tenant_id, tag, due_at, service_call_id);

CREATE TABLE submissions (
    -- What was submitted, by the id and by the key that it has taken. It outlives its call: a
    -- repetition is recognised, and something else refused, until retention forgets it.
    tenant_id TEXT NOT NULL,
    -- Null if none was given.
    idempotency_key TEXT,
    service_call_id TEXT NOT NULL,
    -- Tells a repetition from another submission under the same id or key.
    body_sha256 BLOB NOT NULL,
    correlation_id TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    -- Since when the call is gone; null while it is there.
    gone_at TEXT,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;

CREATE UNIQUE INDEX idx_submissions_idempotency_key
-- A key is taken once in a tenant.
ON submissions(tenant_id, idempotency_key)
WHERE idempotency_key IS NOT NULL;

CREATE INDEX idx_submissions_gone_at
-- Retention's: the submissions whose call is gone longest.
ON submissions(gone_at)
WHERE gone_at IS NOT NULL;

-- The ids of the stubs stay taken; no submission has this hash, so each is a conflict.
INSERT INTO submissions (
    tenant_id, service_call_id, body_sha256, correlation_id, submitted_at
)
SELECT tenant_id, service_call_id, zeroblob(32), correlation_id, submitted_at
FROM service_calls;

CREATE TABLE http_execution_log_new (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    -- When the attempt began; until then, when it was asked for.
    started_at TEXT NOT NULL,
    finished_at TEXT,
    -- What may be shown of the request: its secrets are blotted out, its body is cut.
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
    -- The host that the request goes to, whose turn it is.
    host TEXT NOT NULL,
    -- The request with its secrets, as it is to be sent; null once the attempt has finished.
    request_spec TEXT,
    -- The whole outcome: an answer if it has a status, a failure if it has a kind.
    outcome_meta TEXT,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH')),
    CHECK (state IN ('Waiting', 'Attempted', 'Finished'))
) STRICT;

INSERT INTO http_execution_log_new (
    tenant_id, service_call_id, execution_id, started_at, finished_at, request_url,
    request_method, request_headers, error_message, correlation_id, state, timeout_ms, host,
    outcome_meta
)
SELECT
    tenant_id,
    service_call_id,
    execution_id,
    :now,
    :now,
    'http://migrated.invalid/',
    'GET',
    '{}',
    'it was there before calls could be made',
    '00000000-0000-0000-0000-000000000000',
    'Finished',
    0,
    'migrated.invalid',
    '{"kind":"Migrated","message":"it was there before calls could be made","latencyMs":0}'
FROM http_execution_log;

DROP TABLE http_execution_log;

ALTER TABLE http_execution_log_new RENAME TO http_execution_log;

CREATE INDEX idx_http_execution_log_waiting
-- Whose turn it is: the next tenant, its next host, and the oldest of those. However many wait for
-- one host, the next one is a step away. What has begun is not in it.
ON http_execution_log(tenant_id, host, started_at)
WHERE state = 'Waiting';

CREATE INDEX idx_http_execution_log_open
-- The attempts that began and have not ended, the oldest first.
ON http_execution_log(started_at)
WHERE state = 'Attempted';

CREATE INDEX idx_outbox_aggregate_id
-- The messages about one call, in the order of their places.
ON outbox(tenant_id, aggregate_id);

CREATE INDEX idx_outbox_published_at
-- Retention's: the messages that were published longest ago.
ON outbox(published_at)
WHERE published_at IS NOT NULL;
