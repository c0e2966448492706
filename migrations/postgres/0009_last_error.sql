-- Why the last firing failed, so that whoever reads a timer sees it without reading a log.

-- At most 1 000 characters. Null until a firing of the schedule in force has failed.
ALTER TABLE timer_queue ADD COLUMN last_error text;
ALTER TABLE timer_firings ADD COLUMN last_error text;

CREATE OR REPLACE VIEW timer_schedules AS
SELECT
    t.tenant_id,
    t.service_call_id,
    t.correlation_id,
    t.due_at,
    t.registered_at,
    f.reached_at,
    CASE WHEN f.timer_id IS NULL THEN 'Scheduled' ELSE 'Reached' END AS state,
    t.data,
    coalesce(q.attempts, f.attempts) AS attempts,
    CASE WHEN q.attempts > 0 THEN q.ready_at END AS retry_at,
    coalesce(q.last_error, f.last_error) AS last_error
FROM timers AS t
LEFT JOIN timer_queue AS q ON q.timer_id = t.id
LEFT JOIN timer_firings AS f ON f.timer_id = t.id
WHERE t.deleted_at IS NULL;
