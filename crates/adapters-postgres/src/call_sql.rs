//! Every statement that reads or writes service calls, their messages and their attempts.
//! `tests/it/call_query_plans` checks the plan of each.
//!
//! The traps of [`crate::sql`] are avoided in the same ways. Calls have no number of their own, so a batch
//! of keys is found by `service_call_id = ANY(…)`, which the primary keys begin with; what else has to be
//! equal is compared behind `IS TRUE`, so that it chooses no other index. Messages come first in every
//! statement that appends some: `$1` to `$7`.

/// The columns that [`crate::call_store::rows`] reads, of a row `c`.
macro_rules! call {
    () => {
        "c.tenant_id, c.service_call_id, c.name, c.status, c.submitted_at, c.due_at, c.started_at, \
         c.finished_at, c.request_spec, c.outcome_meta, c.correlation_id, c.command_id, c.version, \
         c.execution_id, c.caused_by, c.timeout_ms, c.attempt_began_at, c.dispatched_at, \
         c.dispatch_count, ARRAY(SELECT t.tag FROM %.service_call_tags t \
            WHERE t.tenant_id = c.tenant_id AND t.service_call_id = c.service_call_id) AS tags"
    };
}

/// The call of a row that has its key.
macro_rules! call_of {
    ($row:literal) => {
        concat!(
            "(SELECT * FROM %.service_calls c WHERE c.service_call_id = ",
            $row,
            ".service_call_id AND c.tenant_id = ",
            $row,
            ".tenant_id OFFSET 0) c"
        )
    };
}

/// Appends messages in their order. Positions do not go back if a clock does: neither those of one call,
/// nor, as far as is committed, those of all.
macro_rules! append {
    ($condition:expr) => {
        concat!(
            "INSERT INTO %.outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, \
                published_at) \
             SELECT m.tenant_id, m.aggregate_id, m.event_type, m.event_payload, \
                GREATEST(m.created_at, \
                    (SELECT o.created_at FROM %.outbox o ORDER BY o.id DESC LIMIT 1), \
                    (SELECT max(o.created_at) FROM %.outbox o \
                     WHERE o.tenant_id = m.tenant_id AND o.aggregate_id = m.aggregate_id)), \
                m.published_at \
             FROM unnest($1, $2, $3, $4, $5, $6, $7) \
                AS m (place, tenant_id, aggregate_id, event_type, event_payload, created_at, published_at) ",
            $condition
        )
    };
}

/// The messages of what `c` has changed.
macro_rules! append_changed {
    () => {
        append!("WHERE (m.place IN (SELECT place FROM c)) IS TRUE")
    };
}

/// Whether a row of a table is that of a key `u` in a batch whose ids are given.
macro_rules! is_key {
    ($row:literal, $ids:expr) => {
        concat!(
            $row,
            ".service_call_id = ANY(",
            $ids,
            ") AND ",
            $row,
            ".service_call_id = u.service_call_id AND (",
            $row,
            ".tenant_id = u.tenant_id) IS TRUE"
        )
    };
}

/// The end of a lease of `$n` milliseconds.
macro_rules! lease_end {
    ($clock:literal, $millis:literal) => {
        concat!(
            clock!($clock),
            " + ",
            $millis,
            " * interval '1 millisecond'"
        )
    };
}

/// The distinct values of a column in an index, one step each: those after a value, up to another.
macro_rules! distinct {
    ($column:literal, $where:literal, $order:literal, $after:literal, $to:literal) => {
        concat!(
            "WITH RECURSIVE d (it) AS (\
                (SELECT l.",
            $column,
            " FROM %.http_execution_log l \
                 WHERE l.state = 'Waiting'",
            $where,
            " AND l.",
            $column,
            " > ",
            $after,
            $to,
            " \
                 ORDER BY ",
            $order,
            " LIMIT 1) \
                UNION ALL \
                SELECT (SELECT l.",
            $column,
            " FROM %.http_execution_log l \
                 WHERE l.state = 'Waiting'",
            $where,
            " AND l.",
            $column,
            " > d.it",
            $to,
            " \
                 ORDER BY ",
            $order,
            " LIMIT 1) FROM d WHERE d.it IS NOT NULL) \
             SELECT it FROM d WHERE it IS NOT NULL"
        )
    };
}

/// The hosts of the tenant `t` from one after another on.
macro_rules! hosts {
    ($after:literal, $to:literal) => {
        distinct!(
            "host",
            " AND l.tenant_id = t.tenant_id",
            "l.tenant_id, l.host, l.started_at",
            $after,
            $to
        )
    };
}

/// The tenants with waiting attempts, of those that are not excluded.
macro_rules! tenants {
    ($to:literal) => {
        concat!(
            "SELECT w.it AS tenant_id FROM (",
            distinct!(
                "tenant_id",
                "",
                "l.tenant_id, l.host, l.started_at",
                "$1",
                $to
            ),
            ") w WHERE w.it <> ALL($2) LIMIT $3"
        )
    };
}

/// Up to where a list is read for a page: a position, exclusive, and the earliest due time.
macro_rules! in_range {
    ($row:literal) => {
        concat!(
            $row,
            ".due_at >= $2 AND (",
            $row,
            ".due_at, ",
            $row,
            ".service_call_id) < ($3, $4)"
        )
    };
}

/// The order of pages.
macro_rules! latest_first {
    ($row:literal) => {
        concat!(
            "ORDER BY ",
            $row,
            ".due_at DESC, ",
            $row,
            ".service_call_id DESC"
        )
    };
}

/// The calls of a list `w` that have all tags `$6`, and the status `$7` if there is one, up to a limit. Each row
/// also has how much of the list was read, and its end.
macro_rules! of_list {
    ($list:expr) => {
        concat!(
            "WITH w AS MATERIALIZED (", $list, "), \
             hits AS MATERIALIZED (\
                SELECT $1::text AS tenant_id, w.service_call_id, w.due_at FROM w \
                WHERE (SELECT bool_and((SELECT true FROM %.service_call_tags x \
                        WHERE x.tenant_id = $1 AND x.service_call_id = w.service_call_id \
                            AND x.tag = g.tag) IS TRUE) FROM unnest($6) AS g (tag)) \
                    AND ($7::text IS NULL OR (SELECT x.status FROM %.service_calls x \
                        WHERE x.service_call_id = w.service_call_id AND x.tenant_id = $1) = $7) \
                ", latest_first!("w"), " LIMIT $5) \
             SELECT e.walked, e.end_due_at, e.end_call, ", call!(), " FROM (\
                SELECT count(*) AS walked, min(due_at) AS end_due_at, \
                    (SELECT l.service_call_id FROM w l ORDER BY l.due_at, l.service_call_id LIMIT 1) \
                        AS end_call FROM w) e \
             LEFT JOIN (hits h CROSS JOIN LATERAL ", call_of!("h"), ") ON true \
             ", latest_first!("h")
        )
    };
}

/// Claims messages that nobody has claimed, nor another instance an earlier one about the same call. With a
/// request for each.
macro_rules! claim_messages {
    ($request:literal, $of_call:literal) => {
        concat!(
            "WITH c AS MATERIALIZED (\
            SELECT o.id, o.created_at, o.tenant_id, o.aggregate_id, o.event_type, o.event_payload \
            FROM %.outbox o \
            WHERE o.published_at IS NULL AND (SELECT true FROM %.outbox_claims k \
                WHERE k.tenant_id = o.tenant_id AND k.aggregate_id = o.aggregate_id \
                    AND (k.message_id <= o.id AND k.lease_until > ",
            clock!("$1"),
            ") IS TRUE \
                    AND (k.message_id = o.id OR k.instance_id <> $3 AND NOT k.is_parked) \
                LIMIT 1) IS NOT TRUE \
            ORDER BY o.created_at, o.id LIMIT $2 FOR NO KEY UPDATE OF o SKIP LOCKED), \
         got AS (\
            INSERT INTO %.outbox_claims (message_id, tenant_id, aggregate_id, instance_id, lease_until) \
            SELECT c.id, c.tenant_id, c.aggregate_id, $3, ",
            lease_end!("$1", "$4"),
            " FROM c \
            ON CONFLICT (message_id) DO UPDATE SET instance_id = excluded.instance_id, \
                lease_until = excluded.lease_until, is_parked = false) \
         SELECT c.id, c.created_at, c.event_payload, ",
            $request,
            " AS request_spec FROM c ",
            $of_call,
            "ORDER BY c.created_at, c.id"
        )
    };
}

/// Stores attempts of calls that are as they have to be and have none. Returns the calls.
macro_rules! accept {
    ($condition:literal) => {
        concat!(
            "INSERT INTO %.http_execution_log (tenant_id, service_call_id, execution_id, started_at, \
            correlation_id, timeout_ms, host, request_spec, request_url, request_method, \
            request_headers, request_body, state) \
         SELECT u.*, 'Waiting' FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
            AS u (tenant_id, service_call_id, execution_id, started_at, correlation_id, timeout_ms, host, \
                request_spec, request_url, request_method, request_headers, request_body) \
         WHERE ",
            $condition,
            " ON CONFLICT DO NOTHING RETURNING tenant_id, service_call_id"
        )
    };
}

statements! { CallStatements:
    /// Takes ids and keys; leaves out those of which either is taken. Returns the ids.
    take =
        "INSERT INTO %.submissions (tenant_id, service_call_id, idempotency_key, body_sha256, \
            correlation_id, submitted_at) \
         SELECT u.* FROM unnest($1, $2, $3, $4, $5, $6) AS u ON CONFLICT DO NOTHING \
         RETURNING tenant_id, service_call_id";

    /// The submissions that have taken ids, and those that have taken keys.
    taken =
        "SELECT u.place, false AS is_by_key, x.* \
         FROM unnest($1, $2, $3) AS u (place, tenant_id, service_call_id) \
         CROSS JOIN LATERAL (SELECT * FROM %.submissions x \
            WHERE x.service_call_id = u.service_call_id AND x.tenant_id = u.tenant_id OFFSET 0) x \
         UNION ALL \
         SELECT u.place, true, x.* \
         FROM unnest($1, $2, $4) AS u (place, tenant_id, idempotency_key) \
         CROSS JOIN LATERAL (SELECT * FROM %.submissions x \
            WHERE x.tenant_id = u.tenant_id AND x.idempotency_key = u.idempotency_key OFFSET 0) x";

    /// The clock that all instances share.
    clock = concat!("SELECT ", clock!("$1"), " AS clock");

    /// New calls.
    insert_calls =
        "INSERT INTO %.service_calls (tenant_id, service_call_id, status, request_spec, next_check_at, \
            started_at, finished_at, outcome_meta, execution_id, caused_by, timeout_ms, \
            attempt_began_at, dispatched_at, dispatch_count, name, submitted_at, due_at, \
            correlation_id, command_id, version) \
         SELECT u.*, 1 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
            $16, $17, $18, $19) AS u";

    /// Their tags.
    insert_tags =
        "INSERT INTO %.service_call_tags (tenant_id, service_call_id, tag, due_at) \
         SELECT u.* FROM unnest($1, $2, $3, $4) AS u";

    /// Messages alone.
    append = append!("");

    /// Changes calls whose versions are still those that were read, and that are not finished, and appends
    /// the messages of those. Returns their places.
    change = concat!(
        "WITH c AS (\
            UPDATE %.service_calls s SET version = s.version + 1, status = u.status, \
                request_spec = u.request_spec, next_check_at = u.next_check_at, \
                started_at = u.started_at, finished_at = u.finished_at, \
                outcome_meta = u.outcome_meta, execution_id = u.execution_id, \
                caused_by = u.caused_by, timeout_ms = u.timeout_ms, \
                attempt_began_at = u.attempt_began_at, dispatched_at = u.dispatched_at, \
                dispatch_count = u.dispatch_count \
            FROM unnest($8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) \
                AS u (place, expected_version, tenant_id, service_call_id, status, request_spec, \
                    next_check_at, started_at, finished_at, outcome_meta, execution_id, caused_by, \
                    timeout_ms, attempt_began_at, dispatched_at, dispatch_count) \
            WHERE ", is_key!("s", "$11"), " AND s.version = u.expected_version \
                AND (s.status IN ('Scheduled', 'Running')) IS TRUE \
            RETURNING u.place), \
         m AS (", append_changed!(), ") \
         SELECT place FROM c");

    /// Deletes scheduled calls whose versions are still those that were read, and with each its tags, its
    /// timer and its attempt. Its submission stays, as a tombstone also of the timer: not before the times at
    /// which the call was submitted and the timer registered. Returns the places.
    delete = concat!(
        "WITH c AS (\
            DELETE FROM %.service_calls s \
            USING unnest($8, $9, $10, $11, $12) \
                AS u (place, expected_version, tenant_id, service_call_id, deleted_at) \
            WHERE ", is_key!("s", "$11"), " AND s.version = u.expected_version \
                AND (s.status = 'Scheduled') IS TRUE \
            RETURNING u.place, s.tenant_id, s.service_call_id, \
                GREATEST(u.deleted_at, s.submitted_at) AS deleted_at), \
         g AS (\
            UPDATE %.submissions s SET gone_at = GREATEST(u.deleted_at, (\
                SELECT t.registered_at FROM %.timers t \
                WHERE t.tenant_id = u.tenant_id AND t.service_call_id = u.service_call_id)) \
            FROM c u WHERE ", is_key!("s", "$11"), "), \
         m AS (", append_changed!(), ") \
         SELECT place FROM c");

    /// Removes calls that finished long ago; their submissions stay.
    purge_calls = concat!(
        "WITH old AS MATERIALIZED (\
            SELECT s.tenant_id, s.service_call_id FROM %.service_calls s WHERE s.finished_at < $1 \
            ORDER BY s.finished_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED), \
         c AS (\
            DELETE FROM %.service_calls s \
            WHERE s.service_call_id = ANY(ARRAY(SELECT service_call_id FROM old)) \
                AND ((s.tenant_id, s.service_call_id) IN (SELECT * FROM old)) IS TRUE \
            RETURNING s.tenant_id, s.service_call_id), \
         g AS (\
            UPDATE %.submissions s SET gone_at = $3 FROM c u \
            WHERE ", is_key!("s", "ARRAY(SELECT service_call_id FROM old)"), ") \
         SELECT count(*) FROM c");

    /// Removes submissions whose calls are gone for long.
    purge_submissions = concat!(
        "WITH old AS MATERIALIZED (\
            SELECT s.tenant_id, s.service_call_id FROM %.submissions s WHERE s.gone_at < $1 \
            ORDER BY s.gone_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED), \
         c AS (\
            DELETE FROM %.submissions s USING old u \
            WHERE ", is_key!("s", "ARRAY(SELECT service_call_id FROM old)"), " RETURNING 1) \
         SELECT count(*) FROM c");

    /// Calls by their keys.
    find = concat!(
        "SELECT u.place, ", call!(), " FROM unnest($1, $2, $3) AS u (place, tenant_id, service_call_id) \
         CROSS JOIN LATERAL ", call_of!("u"));

    /// Which keys have a submission.
    was_submitted =
        "SELECT u.place FROM unnest($1, $2, $3) AS u (place, tenant_id, service_call_id) \
         WHERE (SELECT true FROM %.submissions s WHERE s.service_call_id = u.service_call_id \
            AND s.tenant_id = u.tenant_id) IS TRUE";

    /// A page of a tenant's calls.
    page = concat!(
        "SELECT ", call!(), " FROM %.service_calls c WHERE c.tenant_id = $1 AND ", in_range!("c"), " ",
        latest_first!("c"), " LIMIT $5");

    /// The same for one status.
    page_of_status = concat!(
        "SELECT ", call!(), " FROM %.service_calls c WHERE c.tenant_id = $1 AND c.status = $6 AND ",
        in_range!("c"), " ", latest_first!("c"), " LIMIT $5");

    /// How long the lists of tags are, up to a limit; the last row is that of the status, if there is one.
    list_lengths = concat!(
        "SELECT g.tag, (SELECT count(*) FROM (SELECT 1 FROM %.service_call_tags x \
            WHERE x.tenant_id = $1 AND x.tag = g.tag AND ", in_range!("x"), " \
            ", latest_first!("x"), " LIMIT $5) l) AS length \
         FROM unnest($6) AS g (tag) \
         UNION ALL \
         SELECT NULL, (SELECT count(*) FROM (SELECT 1 FROM %.service_calls x \
            WHERE x.tenant_id = $1 AND x.status = $7 AND ", in_range!("x"), " \
            ", latest_first!("x"), " LIMIT $5) l) \
         WHERE $7::text IS NOT NULL");

    /// A page of calls with several tags, by the list of one of them.
    page_of_tags = of_list!(concat!(
        "SELECT x.due_at, x.service_call_id FROM %.service_call_tags x \
         WHERE x.tenant_id = $1 AND x.tag = $8 AND ", in_range!("x"), " ",
        latest_first!("x"), " LIMIT $9"));

    /// The same by the list of their status.
    page_of_tags_by_status = of_list!(concat!(
        "SELECT x.due_at, x.service_call_id FROM %.service_calls x \
         WHERE x.tenant_id = $1 AND x.status = $7 AND ", in_range!("x"), " ",
        latest_first!("x"), " LIMIT $8"));

    /// The calls of a request, in the order of keys. `OFFSET` keeps the order from choosing the index.
    find_by_correlation = concat!(
        "SELECT ", call!(), " FROM (\
            SELECT * FROM %.service_calls c WHERE c.correlation_id = $1 \
                AND ((c.tenant_id, c.service_call_id) > ($2, $3)) IS TRUE OFFSET 0) c \
         ORDER BY c.tenant_id, c.service_call_id LIMIT $4");

    /// The calls whose next check is over by the caller's clock and by that of the store.
    find_stuck = concat!(
        "SELECT ", call!(), " FROM %.service_calls c \
         WHERE c.next_check_at <= LEAST($1, ", clock!("$3"), ") ORDER BY c.next_check_at LIMIT $2");

    /// The earliest next check after both.
    next_check = concat!(
        "SELECT s.next_check_at FROM %.service_calls s \
         WHERE s.next_check_at > LEAST($1, ", clock!("$2"), ") ORDER BY s.next_check_at LIMIT 1");

    /// Waits until no other instance is claiming. Rows alone would not do: whether a message may be claimed
    /// depends on the claims of others, and which attempts are next on those that were started before.
    await_turn = "SELECT pg_catalog.pg_advisory_xact_lock($1, pg_catalog.hashtext($2))::text AS turn";

    /// Claims messages that nobody has claimed, nor another instance an earlier one about the same call. With
    /// the request of the call, if it is to be made.
    claim_messages = claim_messages!("r.request_spec", "LEFT JOIN LATERAL (\
        SELECT s.request_spec FROM %.service_calls s \
        WHERE c.event_type = 'StartExecution' AND s.service_call_id = c.aggregate_id \
            AND s.tenant_id = c.tenant_id AND (s.status = 'Running') IS TRUE OFFSET 0) r ON true ");

    /// When the next claim of a message ends, and the clock.
    next_claim_end = concat!(
        "SELECT ", clock!("$1"), " AS clock, (\
            SELECT k.lease_until FROM %.outbox_claims k WHERE k.lease_until > ", clock!("$1"), " \
            ORDER BY k.lease_until LIMIT 1) AS lease_until");

    /// Ends claims of an instance at another time.
    park_messages = concat!(
        "UPDATE %.outbox_claims k SET is_parked = true, lease_until = ", clock!("$1"), " \
            + u.millis * interval '1 millisecond' \
         FROM unnest($3, $4) AS u (message_id, millis) \
         WHERE k.message_id = u.message_id AND k.message_id = ANY($3) AND (k.instance_id = $2) IS TRUE");

    /// Marks messages as published. Returns which.
    mark_messages =
        "UPDATE %.outbox o SET published_at = $2 \
         WHERE o.id = ANY($1) AND (o.published_at IS NULL) IS TRUE RETURNING o.id";

    /// Ends the claims of messages that are published. A statement of its own, after the marks: it sees
    /// claims for which they have waited.
    end_message_claims = "DELETE FROM %.outbox_claims WHERE message_id = ANY($1)";

    /// Marks a message as published, and records its dead letter.
    dead_letter_message =
        "WITH m AS (\
            UPDATE %.outbox o SET published_at = $2 \
            WHERE o.id = $1 AND (o.published_at IS NULL) IS TRUE RETURNING o.id), \
         l AS (\
            INSERT INTO %.dead_letters (id, source, tenant_id, payload, reason, failed_at) \
            SELECT u.* FROM unnest($3, $4, $5, $6, $7, $8) AS u \
            WHERE (SELECT true FROM m) IS TRUE ON CONFLICT (id) DO NOTHING) \
         SELECT id FROM m";

    /// Number of messages that wait, up to a limit.
    count_messages =
        "SELECT count(*) AS count FROM (SELECT 1 FROM %.outbox o WHERE o.published_at IS NULL \
            ORDER BY o.created_at, o.id LIMIT $1) w";

    /// The messages about a call.
    about =
        "SELECT o.event_payload, o.published_at FROM (\
            SELECT * FROM %.outbox m WHERE m.tenant_id = $1 AND m.aggregate_id = $2 OFFSET 0) o \
         ORDER BY o.id LIMIT $3";

    /// Removes messages that were published long ago.
    purge_messages =
        "WITH old AS MATERIALIZED (\
            SELECT o.id FROM %.outbox o WHERE o.published_at < $1 \
            ORDER BY o.published_at LIMIT $2 FOR UPDATE OF o SKIP LOCKED), \
         c AS (DELETE FROM %.outbox WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1) \
         SELECT count(*) FROM c";

    /// Stores attempts of calls that are there and have none. Returns the calls.
    accept = accept!("(SELECT true FROM %.service_calls s WHERE s.service_call_id = u.service_call_id \
        AND s.tenant_id = u.tenant_id) IS TRUE");

    /// The attempts that calls have.
    attempts_of =
        "SELECT u.place, l.execution_id FROM unnest($1, $2, $3) AS u (place, tenant_id, service_call_id) \
         CROSS JOIN LATERAL (SELECT l.execution_id FROM %.http_execution_log l \
            WHERE l.service_call_id = u.service_call_id AND l.tenant_id = u.tenant_id OFFSET 0) l";

    /// Tenants with waiting attempts after one.
    tenants_after = tenants!("");

    /// Tenants with waiting attempts after one, up to another.
    tenants_up_to = tenants!(" AND l.tenant_id <= $4");

    /// The waiting attempts of tenants in turn: one of each tenant, then another of each, and within a tenant
    /// one for each host, then another for each.
    in_turn = concat!(
        "SELECT l.tenant_id, l.service_call_id, l.execution_id, l.correlation_id, l.request_spec, \
            l.timeout_ms, l.started_at \
         FROM (\
            SELECT * FROM (\
                SELECT t.tenant_id, t.turn, a.service_call_id, row_number() OVER (\
                    PARTITION BY t.turn ORDER BY a.rank, h.turn) AS rank \
                FROM unnest($1, $2) WITH ORDINALITY AS t (tenant_id, after_host, turn) \
                CROSS JOIN LATERAL (\
                    SELECT w.host, row_number() OVER () AS turn FROM (\
                        SELECT v.it AS host FROM (\
                            (", hosts!("t.after_host", ""), ") UNION ALL \
                            (", hosts!("''", " AND l.host <= t.after_host"), ")) v \
                        WHERE v.it <> ALL($3) AND ((t.tenant_id, v.it) IN (\
                            SELECT * FROM unnest($4, $5))) IS NOT TRUE \
                        LIMIT $6) w) h \
                CROSS JOIN LATERAL (\
                    SELECT o.service_call_id, row_number() OVER () AS rank FROM (\
                        SELECT l.service_call_id FROM %.http_execution_log l \
                        WHERE l.state = 'Waiting' AND l.tenant_id = t.tenant_id AND l.host = h.host \
                        ORDER BY l.started_at, l.execution_id LIMIT $7) o) a) r \
            WHERE r.rank <= $8 ORDER BY r.rank, r.turn LIMIT $9) c \
         CROSS JOIN LATERAL (\
            SELECT * FROM %.http_execution_log l WHERE l.service_call_id = c.service_call_id \
                AND l.tenant_id = c.tenant_id OFFSET 0) l \
         ORDER BY c.rank, c.turn");

    /// Starts waiting attempts, and appends the messages of those that wait. Returns their places and tokens.
    begin = concat!(
        "WITH c AS (\
            UPDATE %.http_execution_log s SET state = 'Attempted', started_at = u.started_at, \
                claimed_by = $8, claim_token = s.claim_token + 1, \
                lease_until = ", lease_end!("$9", "$10"), " \
            FROM unnest($11, $12, $13, $14, $15) \
                AS u (place, tenant_id, service_call_id, execution_id, started_at) \
            WHERE ", is_key!("s", "$13"), " AND s.execution_id = u.execution_id \
                AND (s.state = 'Waiting') IS TRUE \
            RETURNING u.place, s.claim_token), \
         m AS (", append_changed!(), ") \
         SELECT place, claim_token FROM c");

    /// Finishes attempts under their current claims, and appends the messages of those. Returns their places.
    finish = concat!(
        "WITH c AS (\
            UPDATE %.http_execution_log s SET state = 'Finished', finished_at = u.finished_at, \
                outcome_meta = u.outcome_meta, response_status = u.response_status, \
                response_headers = u.response_headers, response_body = u.response_body, \
                error_message = u.error_message, request_spec = NULL \
            FROM unnest($8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) \
                AS u (place, claim_token, tenant_id, service_call_id, execution_id, finished_at, \
                    outcome_meta, response_status, response_headers, response_body, error_message) \
            WHERE ", is_key!("s", "$11"), " AND s.execution_id = u.execution_id \
                AND s.claim_token = u.claim_token AND (s.state = 'Attempted') IS TRUE \
            RETURNING u.place), \
         m AS (", append_changed!(), ") \
         SELECT place FROM c");

    /// Extends leases under their current claims. Returns the places.
    renew = concat!(
        "UPDATE %.http_execution_log s \
         SET lease_until = ", clock!("u.clock"), " + u.millis * interval '1 millisecond' \
         FROM unnest($1, $2, $3, $4, $5, $6, $7) \
            AS u (place, claim_token, tenant_id, service_call_id, execution_id, clock, millis) \
         WHERE ", is_key!("s", "$4"), " AND s.execution_id = u.execution_id \
            AND s.claim_token = u.claim_token AND (s.state = 'Attempted') IS TRUE \
         RETURNING u.place");

    /// Claims started attempts that nobody makes: whose leases have ended, or whose claims are those of this
    /// instance; none that it makes.
    take_over = concat!(
        "WITH a AS MATERIALIZED (\
            SELECT s.tenant_id, s.service_call_id FROM %.http_execution_log s \
            WHERE s.state = 'Attempted' \
                AND (s.claimed_by = $1 OR s.lease_until <= ", clock!("$2"), ") \
                AND ((s.tenant_id, s.service_call_id, s.execution_id) IN (\
                    SELECT * FROM unnest($5, $6, $7))) IS NOT TRUE \
            ORDER BY s.started_at LIMIT $4 FOR NO KEY UPDATE OF s SKIP LOCKED), \
         c AS (\
            UPDATE %.http_execution_log s SET claimed_by = $1, claim_token = s.claim_token + 1, \
                lease_until = ", lease_end!("$2", "$3"), " \
            FROM a u WHERE ", is_key!("s", "ARRAY(SELECT service_call_id FROM a)"), " \
            RETURNING s.tenant_id, s.service_call_id, s.execution_id, s.correlation_id, s.claim_token, \
                s.started_at) \
         SELECT * FROM c ORDER BY started_at");

    /// Number of waiting attempts, up to a limit.
    count_attempts =
        "SELECT count(*) AS count FROM (SELECT 1 FROM %.http_execution_log l WHERE l.state = 'Waiting' \
            ORDER BY l.tenant_id, l.host LIMIT $1) w";

    /// The attempts of a call, redacted.
    entries =
        "SELECT l.tenant_id, l.service_call_id, l.execution_id, l.started_at, l.request_method, \
            l.request_url, l.request_headers, l.request_body, l.state, l.finished_at, l.outcome_meta \
         FROM %.http_execution_log l WHERE l.service_call_id = $2 AND l.tenant_id = $1 LIMIT $3";
}
