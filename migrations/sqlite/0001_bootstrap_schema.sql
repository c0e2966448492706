-- Everything that the modules share, and a stub of each module's own table: just enough for the
-- foreign keys. Each module replaces its stub in a migration of its own.

CREATE TABLE service_calls (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;

CREATE TABLE timer_schedules (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
) STRICT;

CREATE TABLE http_execution_log (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
) STRICT;

-- No foreign key: an event outlives the call that it speaks of.
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
