-- What belongs to service calls: their tags, what is remembered of submissions, and the log of attempts.
-- The calls themselves are in 0001_bootstrap_schema.sql.

CREATE TABLE service_call_tags (
    tenant_id text COLLATE "C" NOT NULL,
    service_call_id uuid NOT NULL,
    tag text COLLATE "C" NOT NULL,
    -- The call's, which never changes: the calls of a tag are read in the order of the list.
    due_at timestamptz(3) NOT NULL,
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls (tenant_id, service_call_id)
        ON DELETE CASCADE
);

CREATE INDEX idx_service_call_tags_tag
-- Whether a call has a tag, and how many have it, from the tag's side.
ON service_call_tags (tenant_id, tag, service_call_id);

CREATE INDEX idx_service_call_tags_due_at
-- The calls of one tag, the latest due first, so that a page of a million reads a page.
ON service_call_tags (tenant_id, tag, due_at, service_call_id);

-- After the others, as with service_calls.
ALTER TABLE service_call_tags ADD PRIMARY KEY (tenant_id, service_call_id, tag);

CREATE TABLE submissions (
    -- What was submitted, by the id and by the key that it has taken. It outlives its call: a
    -- repetition is recognised, and something else refused, until retention forgets it.
    tenant_id text COLLATE "C" NOT NULL,
    -- Null if none was given.
    idempotency_key text COLLATE "C",
    service_call_id uuid NOT NULL,
    -- Tells a repetition from another submission under the same id or key.
    body_sha256 bytea NOT NULL,
    correlation_id uuid NOT NULL,
    submitted_at timestamptz(3) NOT NULL,
    -- Since when the call is gone; null while it is there.
    gone_at timestamptz(3),
    PRIMARY KEY (service_call_id, tenant_id)
);

CREATE UNIQUE INDEX idx_submissions_idempotency_key
-- A key is taken once in a tenant.
ON submissions (tenant_id, idempotency_key)
WHERE idempotency_key IS NOT NULL;

CREATE INDEX idx_submissions_gone_at
-- Retention's: the submissions whose call is gone longest.
ON submissions (gone_at)
WHERE gone_at IS NOT NULL;

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
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls (tenant_id, service_call_id)
        ON DELETE CASCADE,
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
