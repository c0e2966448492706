-- What the engine needs beyond the schedules: who is firing which timer, dead letters, and the deletion of
-- all that a deleted timer had. Data, retries and the indexes of the worker are where the tables are.

CREATE UNLOGGED TABLE timer_claims (
    -- Who is firing which timer. Not logged: a claim that is lost with the server is a firing that may
    -- come twice. Row 0 is no claim: its lease_until says since when all claims are known.
    timer_id bigint PRIMARY KEY,
    token bigint NOT NULL,
    instance_id uuid NOT NULL,
    lease_until timestamptz(3) NOT NULL
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX idx_timer_claims_lease_until
-- When the next lease ends.
ON timer_claims (lease_until);

INSERT INTO timer_claims (timer_id, token, instance_id, lease_until)
VALUES (0, 0, '00000000-0000-0000-0000-000000000000', '-infinity');

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

CREATE FUNCTION remove_parts_of_timers() RETURNS trigger
LANGUAGE plpgsql
-- A table that is empty to the planner may be full of rows that vacuum has not removed yet.
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    part text;
BEGIN
    -- One statement after the other, the queue first: it waits for whoever claims or marks the timer, and
    -- only a later statement sees the claim or the firing that they have made meanwhile.
    FOREACH part IN ARRAY ARRAY['timer_queue', 'timer_firings', 'timer_claims'] LOOP
        -- Beside the table that was deleted from, whatever the search path of whoever did it.
        EXECUTE format(
            'DELETE FROM %I.%I WHERE timer_id = ANY(ARRAY(SELECT id FROM deleted_timers))',
            TG_TABLE_SCHEMA,
            part
        );
    END LOOP;
    RETURN NULL;
END
$$;

CREATE TRIGGER remove_parts_of_timers
-- When a call is deleted its timer goes with it, and this is what goes with the timer. References from
-- those tables would cost every schedule and every firing a check.
AFTER DELETE ON timers
REFERENCING OLD TABLE AS deleted_timers
FOR EACH STATEMENT
EXECUTE FUNCTION remove_parts_of_timers();
