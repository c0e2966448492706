//! Parts that several statements share.

/// The clock that all instances share: the server's, unless the caller's takes its place.
macro_rules! clock {
    ($given:literal) => {
        concat!("coalesce(", $given, ", date_trunc('milliseconds', now()))")
    };
}

/// The same inside a transaction of a caller's, which may have begun long ago.
macro_rules! current_clock {
    ($given:literal) => {
        concat!(
            "coalesce(",
            $given,
            ", date_trunc('milliseconds', clock_timestamp()))"
        )
    };
}

/// How many timers each instance has claimed.
macro_rules! claimed_timers {
    () => {
        concat!(
            "t AS MATERIALIZED (\
                SELECT k.instance_id, count(*) AS claims FROM %.timer_claims k \
                WHERE k.lease_until > ",
            clock!("$1"),
            " GROUP BY k.instance_id)"
        )
    };
}

/// How many attempts and messages each instance has claimed.
macro_rules! claimed_attempts {
    () => {
        concat!(
            "a AS MATERIALIZED (\
                SELECT l.claimed_by, count(*) AS claims FROM %.http_execution_log l \
                WHERE l.state = 'Attempted' AND l.lease_until > ",
            clock!("$1"),
            " GROUP BY l.claimed_by), \
             m AS MATERIALIZED (\
                SELECT o.instance_id, count(*) AS claims FROM %.outbox_claims o \
                WHERE o.lease_until > ",
            clock!("$1"),
            " AND NOT o.is_parked GROUP BY o.instance_id)"
        )
    };
}

/// The instances that have said lately that they live, with what each has claimed.
macro_rules! instances {
    ($claims:expr, $timers:literal, $attempts:literal, $messages:literal) => {
        concat!(
            "WITH ",
            $claims,
            " SELECT i.instance_id, i.name, i.version, i.modules, i.started_at, i.heartbeat_at, \
                i.clock_offset_ms, coalesce(",
            $timers,
            ", 0) AS timers, coalesce(",
            $attempts,
            ", 0) AS attempts, coalesce(",
            $messages,
            ", 0) AS messages \
             FROM %.instances i WHERE i.heartbeat_at > ",
            clock!("$1"),
            " - $2 * interval '1 millisecond' ORDER BY i.instance_id LIMIT $3"
        )
    };
}

/// The instant up to which timers are due: by the caller's clock and by the server's.
macro_rules! until {
    () => {
        concat!("LEAST($2, ", clock!("$3"), ")")
    };
}

/// Whether nobody has a lease on a row `q` of the queue.
macro_rules! is_free {
    () => {
        concat!(
            "coalesce((SELECT k.lease_until FROM %.timer_claims k WHERE k.timer_id = q.timer_id), \
             '-infinity') <= ",
            clock!("$3")
        )
    };
}

/// The columns of a queue row that a claim needs.
macro_rules! queued {
    () => {
        "q.timer_id, q.ready_at, q.registered_at, q.due_at, q.attempts"
    };
}

/// Which period between two crashes of the server it is, if that is recorded.
macro_rules! epoch {
    () => {
        "(SELECT e.token FROM %.timer_claims e WHERE e.timer_id = 0)"
    };
}

/// Leases the locked rows `c` if the condition holds, and returns them with their timers, preceded by the
/// number of locked rows and the clock. A row whose timer has another schedule than the locked row, because
/// it was rescheduled since the snapshot, has that timer's columns as null.
macro_rules! lease {
    ($condition:expr, $more:expr) => {
        concat!(
            "got AS (\
                INSERT INTO %.timer_claims AS k (timer_id, token, instance_id, lease_until) \
                SELECT c.timer_id, $5, $6, ", clock!("$3"), " + $7 * interval '1 millisecond' \
                FROM c WHERE ", $condition, " \
                ON CONFLICT (timer_id) DO UPDATE SET token = excluded.token, \
                    instance_id = excluded.instance_id, lease_until = excluded.lease_until \
                WHERE k.lease_until <= ", clock!("$3"), " \
                RETURNING k.timer_id, k.xmax::text <> '0' AS is_taken_over) \
             SELECT x.locked, x.clock, coalesce(", epoch!(), ", -1) AS epoch, ", $more, ", r.* \
             FROM (SELECT count(*) AS locked, ", clock!("$3"), " AS clock FROM c) x \
             LEFT JOIN (\
                SELECT c.timer_id, c.ready_at, c.registered_at, c.due_at, c.attempts, \
                    t.tenant_id, t.service_call_id, t.correlation_id, t.data, \
                    t.registered_at AS current_registered_at, t.due_at AS current_due_at, \
                    c.timer_id IN (SELECT timer_id FROM got WHERE is_taken_over) AS is_taken_over \
                FROM c CROSS JOIN LATERAL (\
                    SELECT * FROM %.timers t WHERE t.id = c.timer_id OFFSET 0) t \
                WHERE (c.timer_id IN (SELECT timer_id FROM got)) IS TRUE) r ON true \
             ORDER BY r.ready_at, r.timer_id"
        )
    };
}

/// In the place of what only a claim that is shared knows: whether it left something, and up to which instant
/// it left nothing.
macro_rules! unknown {
    () => {
        "NULL::boolean AS more_due, NULL::timestamptz AS searched_until, "
    };
}

/// The tenants of the queue in turn, from the one after `$8` on, at most `$9` of them. Without `OFFSET` the
/// search for each would be done three times, once for each expression that its result is in.
macro_rules! tenants {
    () => {
        "tenants (tenant_id, turn, wrapped) AS (\
            (SELECT coalesce(\
                (SELECT q.tenant_id FROM %.timer_queue q WHERE q.tenant_id > $8 \
                 ORDER BY q.tenant_id LIMIT 1), \
                (SELECT q.tenant_id FROM %.timer_queue q WHERE q.tenant_id >= '' \
                 ORDER BY q.tenant_id LIMIT 1)), 1, \
                NOT EXISTS (SELECT 1 FROM %.timer_queue q WHERE q.tenant_id > $8 \
                    ORDER BY q.tenant_id LIMIT 1)) \
            UNION ALL \
            SELECT n.tenant_id, n.turn, n.wrapped FROM tenants t CROSS JOIN LATERAL (\
                SELECT coalesce(f.following, CASE WHEN NOT t.wrapped THEN \
                        (SELECT q.tenant_id FROM %.timer_queue q WHERE q.tenant_id >= '' \
                 ORDER BY q.tenant_id LIMIT 1) END) \
                        AS tenant_id, \
                    t.turn + 1 AS turn, t.wrapped OR f.following IS NULL AS wrapped \
                FROM (SELECT (SELECT q.tenant_id FROM %.timer_queue q \
                    WHERE q.tenant_id > t.tenant_id ORDER BY q.tenant_id LIMIT 1) AS following \
                    OFFSET 0) f) n \
            WHERE t.tenant_id IS NOT NULL AND t.turn < $9 AND n.tenant_id IS NOT NULL \
                AND NOT (n.wrapped AND n.tenant_id > $8))"
    };
}

/// Marks firings, of those rows of the queue whose ids a list has.
macro_rules! mark {
    ($ids:expr) => {
        concat!(
            "WITH m AS MATERIALIZED (\
                SELECT u.tenant_id, u.service_call_id, u.registered_at, u.due_at, u.reached_at, (\
                    SELECT t.id FROM %.timers t WHERE t.tenant_id = u.tenant_id \
                        AND t.service_call_id = u.service_call_id) AS id \
                FROM unnest($1, $2, $3, $4, $5) \
                    AS u (tenant_id, service_call_id, registered_at, due_at, reached_at)), \
             d AS (\
                DELETE FROM %.timer_queue q USING m \
                WHERE q.timer_id = m.id AND q.timer_id = ANY(ARRAY(", $ids, ")) \
                    AND q.registered_at = m.registered_at AND q.due_at = m.due_at \
                RETURNING q.timer_id, m.reached_at, q.attempts, q.last_error, m.tenant_id, \
                    m.service_call_id), \
             f AS (\
                INSERT INTO %.timer_firings (timer_id, reached_at, attempts, last_error) \
                SELECT timer_id, reached_at, attempts, last_error FROM d \
                ON CONFLICT (timer_id) DO UPDATE SET reached_at = excluded.reached_at, \
                    attempts = excluded.attempts, last_error = excluded.last_error), \
             k AS (\
                DELETE FROM %.timer_claims WHERE timer_id = ANY(ARRAY(SELECT timer_id FROM d))) \
             SELECT tenant_id, service_call_id FROM d"
        )
    };
}

/// Whether a row `q` of the queue is one of the tenant `t` that may be due.
macro_rules! of_tenant {
    () => {
        concat!(
            "q.tenant_id >= t.tenant_id AND (q.tenant_id, q.ready_at) >= (t.tenant_id, $1) \
             AND (q.tenant_id, q.ready_at) <= (t.tenant_id, ",
            until!(),
            ")"
        )
    };
}

/// The claims of the timers `u` that nobody else has locked.
macro_rules! free_claims {
    () => {
        "SELECT k.timer_id FROM %.timer_claims k \
         WHERE k.timer_id = ANY(ARRAY(SELECT timer_id FROM u)) FOR UPDATE OF k SKIP LOCKED"
    };
}

/// Locks the rows of the queue whose ids a list has, and returns those that are still due and free.
macro_rules! locked {
    ($ids:expr) => {
        concat!(
            "SELECT ",
            queued!(),
            " FROM (",
            $ids,
            ") i CROSS JOIN LATERAL (\
                SELECT * FROM %.timer_queue q WHERE q.timer_id = i.timer_id OFFSET 0 \
                FOR NO KEY UPDATE OF q SKIP LOCKED) q \
             WHERE q.ready_at <= ",
            until!(),
            " AND ",
            is_free!()
        )
    };
}

/// Whether something is due and free, when the next timer is, and the clock.
macro_rules! next_due {
    () => {
        concat!(
            "(\
                SELECT true FROM %.timer_queue q WHERE q.ready_at >= $1 AND q.ready_at <= ",
            until!(),
            " \
                    AND ",
            is_free!(),
            " ORDER BY q.ready_at LIMIT 1) IS TRUE AS more_due, (\
                SELECT q.ready_at FROM %.timer_queue q WHERE q.ready_at > ",
            until!(),
            " \
                    AND ",
            is_free!(),
            " ORDER BY q.ready_at LIMIT 1) AS next_due_at, ",
            clock!("$3"),
            " AS clock"
        )
    };
}

/// Inserts timers and their queue rows, registered by a clock.
macro_rules! insert {
    ($clock:expr, $condition:expr) => {
        concat!(
            "WITH i AS (\
                INSERT INTO %.timers \
                    (tenant_id, service_call_id, correlation_id, due_at, registered_at, data) \
                SELECT u.tenant_id, u.service_call_id, u.correlation_id, u.due_at, \
                    LEAST(coalesce(u.sent_at, 'infinity'), ", $clock, "), u.data \
                FROM unnest($1, $2, $3, $4, $5, $6) \
                    AS u (tenant_id, service_call_id, correlation_id, due_at, sent_at, data) ",
                $condition, " \
                ON CONFLICT (tenant_id, service_call_id) DO NOTHING \
                RETURNING id, tenant_id, service_call_id, due_at, registered_at), \
             q AS (\
                INSERT INTO %.timer_queue (timer_id, ready_at, registered_at, due_at, tenant_id) \
                SELECT id, due_at, registered_at, due_at, tenant_id FROM i) \
             SELECT tenant_id, service_call_id FROM i"
        )
    };
}

/// Whether the service call of a new timer `u` exists.
macro_rules! has_call {
    () => {
        "WHERE (SELECT true FROM %.service_calls s \
            WHERE s.tenant_id = u.tenant_id AND s.service_call_id = u.service_call_id) IS TRUE"
    };
}

/// The timers `t` of the columns that [`crate::timer_store::rows`] reads, in its order.
macro_rules! columns {
    () => {
        "t.id, t.tenant_id, t.service_call_id, t.correlation_id, t.due_at, t.registered_at, t.data"
    };
}

/// Those columns and the state, from the rows `q` and `f` that may be there.
macro_rules! entry_columns {
    () => {
        concat!(
            columns!(),
            ", f.reached_at, coalesce(q.attempts, f.attempts, 0) AS attempts, \
             coalesce(q.last_error, f.last_error) AS last_error"
        )
    };
}

macro_rules! entries {
    () => {
        concat!(
            "SELECT ",
            entry_columns!(),
            " FROM %.timers t \
             LEFT JOIN LATERAL (\
                SELECT * FROM %.timer_queue q WHERE q.timer_id = t.id OFFSET 0) q ON true \
             LEFT JOIN LATERAL (\
                SELECT * FROM %.timer_firings f WHERE f.timer_id = t.id OFFSET 0) f ON true "
        )
    };
}
