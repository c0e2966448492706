-- How far a broker has acknowledged what each instance published, so that a broker that was restored from
-- an older copy, or a stream that was made anew, is noticed.

CREATE TABLE bus_positions (
    stream text COLLATE "C" NOT NULL,
    -- The instance that saved it: what is in doubt is in doubt for each by itself.
    instance_id uuid NOT NULL,
    -- Which stream of that name: when the broker made it, in the broker's own words.
    made_at text NOT NULL,
    -- The highest sequence that was acknowledged, and the deduplication id of the message that has it.
    last_sequence bigint NOT NULL,
    last_message_id text NOT NULL,
    acknowledged_at timestamptz(3) NOT NULL,
    -- Whatever was published before this instant and acknowledged has a sequence up to that one.
    covers_until timestamptz(3) NOT NULL,
    PRIMARY KEY (stream, instance_id)
);

CREATE UNLOGGED TABLE republications (
    -- Which instance publishes again what the broker has lost. Not logged: two of them cost duplicates.
    stream text COLLATE "C" PRIMARY KEY,
    instance_id uuid NOT NULL,
    lease_until timestamptz(3) NOT NULL
);
