-- The host of an attempt that waits gets its port: two ports of one host are two targets, and take
-- turns. What has begun or finished has no turn any more, and stays as it is.
WITH waiting AS (
    SELECT
        rowid AS place,
        CASE WHEN instr(host, ':') > 0 THEN '[' || host || ']' ELSE host END AS name,
        CASE WHEN json_valid(request_spec) THEN json_extract(request_spec, '$.url') END AS url
    FROM http_execution_log
    WHERE state = 'Waiting'
),
without_scheme AS (
    SELECT
        place,
        name,
        lower(substr(url, 1, 6)) = 'https:' AS is_secure,
        replace(substr(url, instr(url, '://') + 3), '?', '/') || '/' AS rest
    FROM waiting
),
authorities AS (
    SELECT place, name, is_secure, substr(rest, 1, instr(rest, '/') - 1) AS authority
    FROM without_scheme
),
-- The colons of an IPv6 address are in brackets.
tails AS (
    SELECT place, name, is_secure, substr(authority, instr(authority, ']') + 1) AS tail
    FROM authorities
)
UPDATE http_execution_log
SET host = name || ':' || CASE
    WHEN instr(tail, ':') > 0 THEN CAST(substr(tail, instr(tail, ':') + 1) AS INTEGER)
    WHEN is_secure THEN 443
    ELSE 80
END
FROM tails
WHERE http_execution_log.rowid = place AND tail IS NOT NULL;
