-- How far a broker has acknowledged what we published, so that a broker that was restored from an
-- older copy, or a stream that was made anew, is noticed.

CREATE TABLE bus_positions (
    stream TEXT PRIMARY KEY,
    -- Which stream of that name: when the broker made it, in the broker's own words.
    made_at TEXT NOT NULL,
    -- The highest sequence that was acknowledged, and the deduplication id of the message that has
    -- it: somebody else may have pushed the sequence past ours since.
    last_sequence INTEGER NOT NULL,
    last_message_id TEXT NOT NULL,
    -- When it was acknowledged: what a broker may have lost lies shortly before.
    acknowledged_at TEXT NOT NULL,
    -- Whatever was published before this instant and acknowledged has a sequence up to that one.
    covers_until TEXT NOT NULL
) STRICT;
