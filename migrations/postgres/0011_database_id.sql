-- Which database this is, so that two services with a database each do not share what a broker keeps for
-- one of them.

CREATE TABLE database_id (
    -- There is one row, once somebody has asked.
    place integer PRIMARY KEY CHECK (place = 1),
    id uuid NOT NULL
);
