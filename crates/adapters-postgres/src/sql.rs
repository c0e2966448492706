//! Every statement that reads or writes timers. `tests/it/query_plans.rs` checks the plan of each.
//!
//! `%.` in a text is the schema, which is known when the store is opened: a pooler forgets the
//! `search_path`. Statements are sent unnamed, with the types of their parameters, for the same reason; only
//! the insert of a group is kept prepared where no pooler is in between.
//!
//! Several traps are avoided in the same way everywhere:
//! - `now()` and not `clock_timestamp()`, which no index can serve;
//! - a scalar subquery and `= ANY(ARRAY(…))` where a join would let the planner read all dead claims once
//!   it believes the table to be empty;
//! - `MATERIALIZED`, since a subquery with a limit may otherwise run again and lock more rows;
//! - `OFFSET 0`, which keeps a lateral subquery what it is: one lookup a row, and evaluated once;
//! - `(SELECT true …) IS TRUE` and not `EXISTS`, which may become a table of everything, and forgets an
//!   `ORDER BY`;
//! - `(… < …) IS TRUE` for a condition that must not choose the index;
//! - comparisons of rows where both a tenant and a time are given, which only the index of both can serve;
//! - `(… IN (SELECT …)) IS TRUE`, a hash table, where a join of two common table expressions, each taken
//!   for one row, would compare each row with each;
//! - the columns of the queue from the *locked* row: a join would read the snapshot of the statement.

#[macro_use]
mod fragments;

/// Defines a field for each statement, and a list of all for the test.
macro_rules! statements {
    ($of:ident: $($(#[$doc:meta])* $name:ident = $text:expr;)+) => {
        /// The statements, with the schema in place.
        #[derive(Debug)]
        pub struct $of {
            $($(#[$doc])* pub $name: String,)+
        }

        impl $of {
            /// The statements for the tables of a schema, which is quoted already.
            pub fn of(schema: &str) -> Self {
                let prefix = format!("{schema}.");
                Self { $($name: $text.replace("%.", &prefix),)+ }
            }

            /// Every statement, by its name.
            pub fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),+]
            }
        }
    };
}

statements! { Statements:
    /// Stores new timers; leaves keys that exist alone. Returns the keys that it stored.
    insert = insert!(clock!("$7"), "");

    /// The same where each timer belongs to a service call: stores none whose call does not exist.
    insert_owned = insert!(clock!("$7"), has_call!());

    /// Stores a new timer inside a transaction of a caller's.
    insert_in = insert!(current_clock!("$7"), "");

    /// The same where each timer belongs to a service call.
    insert_owned_in = insert!(current_clock!("$7"), has_call!());

    /// Locks the timers of keys, in the order of the keys, so that nobody else changes their schedule.
    lock_timers =
        "SELECT t.id, t.tenant_id, t.service_call_id, t.registered_at, t.due_at, t.deleted_at \
         FROM %.timers t \
         WHERE t.id = ANY(ARRAY(SELECT (\
            SELECT x.id FROM %.timers x \
            WHERE x.tenant_id = u.tenant_id AND x.service_call_id = u.service_call_id) \
            FROM unnest($1, $2) AS u (tenant_id, service_call_id))) \
         ORDER BY t.tenant_id, t.service_call_id FOR UPDATE OF t";

    /// Which of the calls of keys are gone, and since when.
    gone =
        "SELECT u.tenant_id, u.service_call_id, s.gone_at \
         FROM unnest($1, $2) AS u (tenant_id, service_call_id) \
         CROSS JOIN LATERAL (SELECT s.gone_at FROM %.submissions s \
            WHERE s.service_call_id = u.service_call_id AND s.tenant_id = u.tenant_id OFFSET 0) s \
         WHERE s.gone_at IS NOT NULL";

    /// Locks the queue rows of keys: waits for a claim or a mark that is being written.
    lock_queue =
        "SELECT q.timer_id, q.ready_at, q.registered_at, q.due_at \
         FROM %.timer_queue q \
         WHERE q.timer_id = ANY(ARRAY(SELECT (\
            SELECT x.id FROM %.timers x \
            WHERE x.tenant_id = u.tenant_id AND x.service_call_id = u.service_call_id) \
            FROM unnest($1, $2) AS u (tenant_id, service_call_id))) \
         ORDER BY q.timer_id FOR UPDATE OF q";

    /// Locks the queue rows of keys that nobody else has locked.
    lock_free_queue =
        "SELECT q.timer_id FROM %.timer_queue q \
         WHERE q.timer_id = ANY(ARRAY(SELECT (\
            SELECT x.id FROM %.timers x \
            WHERE x.tenant_id = u.tenant_id AND x.service_call_id = u.service_call_id) \
            FROM unnest($1, $2) AS u (tenant_id, service_call_id))) \
         FOR UPDATE OF q SKIP LOCKED";

    /// The clock that all instances share.
    clock = concat!("SELECT ", clock!("$1"), " AS clock");

    /// The same inside a transaction of a caller's.
    clock_in = concat!("SELECT ", current_clock!("$1"), " AS clock");

    /// Which database this is, of which server, and whether it has the tables.
    database =
        "SELECT s.system_identifier::text AS server, d.oid::text AS id, d.datname::text AS name, \
            pg_catalog.to_regclass($1) IS NOT NULL AS has_timers \
         FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d \
         WHERE d.datname = pg_catalog.current_database()";

    /// Bounds the waits for locks in a transaction of a caller's, and remembers the bound of the caller's,
    /// which counts if it is lower.
    bound_waits =
        "SELECT pg_catalog.set_config('lock_timeout', \
            CASE WHEN b.before::interval BETWEEN '1 millisecond' AND '5 seconds' \
                THEN b.before ELSE '5s' END, true) \
         FROM (SELECT pg_catalog.set_config('punctual.lock_timeout', \
            pg_catalog.current_setting('lock_timeout'), true) AS before OFFSET 0) b";

    /// Gives a caller its own bound back.
    restore_waits =
        "SELECT pg_catalog.set_config('lock_timeout', \
            pg_catalog.current_setting('punctual.lock_timeout'), true)";

    /// Writes schedules of timers that are locked.
    reschedule_timers =
        "UPDATE %.timers t SET correlation_id = u.correlation_id, due_at = u.due_at, \
            registered_at = u.registered_at, data = u.data, deleted_at = NULL \
         FROM unnest($1, $2, $3, $4, $5) AS u (id, correlation_id, due_at, registered_at, data) \
         WHERE t.id = u.id AND t.id = ANY($1)";

    /// Queues timers that are locked, without the attempts of an earlier schedule.
    requeue =
        "INSERT INTO %.timer_queue AS q (timer_id, ready_at, registered_at, due_at, tenant_id) \
         SELECT u.id, u.due_at, u.registered_at, u.due_at, u.tenant_id \
         FROM unnest($1, $2, $3, $4) AS u (id, due_at, registered_at, tenant_id) \
         ON CONFLICT (timer_id) DO UPDATE SET ready_at = excluded.ready_at, \
            registered_at = excluded.registered_at, due_at = excluded.due_at, attempts = 0, \
            last_error = NULL";

    /// Forgets the firings of timers.
    remove_firings = "DELETE FROM %.timer_firings WHERE timer_id = ANY($1)";

    /// Ends the claims of timers, whoever has them.
    remove_claims = "DELETE FROM %.timer_claims WHERE timer_id = ANY($1)";

    /// Whether somebody has a lease on the timers of keys; with row 0, which says since when claims are
    /// known. Locks the claims: one that has ended could otherwise be renewed before its timer is deleted.
    claims_of = concat!(
        "SELECT k.timer_id, k.lease_until > ", clock!("$3"), " AS is_leased, \
            k.lease_until > ", clock!("$3"), " - $4 * interval '1 millisecond' AS is_recent \
         FROM %.timer_claims k WHERE k.timer_id = ANY(ARRAY(\
            SELECT 0::bigint UNION ALL SELECT (\
                SELECT x.id FROM %.timers x \
                WHERE x.tenant_id = u.tenant_id AND x.service_call_id = u.service_call_id) \
            FROM unnest($1, $2) AS u (tenant_id, service_call_id))) FOR SHARE OF k");

    /// Records since when claims are known, if that is unknown. The token is that of no epoch before.
    record_epoch = concat!(
        "INSERT INTO %.timer_claims (timer_id, token, instance_id, lease_until) \
         VALUES (0, (extract(epoch FROM now()) * 1000000)::bigint, $1, ", clock!("$2"), ") \
         ON CONFLICT (timer_id) DO NOTHING");

    /// Makes tombstones of timers that are locked.
    delete_timers =
        "UPDATE %.timers t SET deleted_at = u.deleted_at, data = NULL \
         FROM unnest($1, $2) AS u (id, deleted_at) WHERE t.id = u.id AND t.id = ANY($1)";

    /// Takes timers out of the queue.
    unqueue = "DELETE FROM %.timer_queue WHERE timer_id = ANY($1)";

    /// Marks firings: only of exactly the schedule that fired. Returns the marked keys.
    mark = mark!("SELECT id FROM m");

    /// The same without waiting for anybody: leaves out rows that somebody else has locked.
    mark_free = mark!(
        "SELECT q.timer_id FROM %.timer_queue q \
         WHERE q.timer_id = ANY(ARRAY(SELECT id FROM m)) FOR UPDATE OF q SKIP LOCKED");

    /// What is stored for keys.
    existing =
        "SELECT t.id, t.tenant_id, t.service_call_id, t.registered_at, t.due_at, t.deleted_at, \
            (SELECT true FROM %.timer_queue q WHERE q.timer_id = t.id) IS TRUE AS is_scheduled \
         FROM %.timers t \
         WHERE t.id = ANY(ARRAY(SELECT (\
            SELECT x.id FROM %.timers x \
            WHERE x.tenant_id = u.tenant_id AND x.service_call_id = u.service_call_id) \
            FROM unnest($1, $2) AS u (tenant_id, service_call_id)))";

    /// The claims of keys that are current, with the queue rows locked before.
    current_claims =
        "SELECT u.place, k.timer_id \
         FROM unnest($1, $2, $3, $4, $5, $6) \
            AS u (place, tenant_id, service_call_id, registered_at, due_at, token) \
         CROSS JOIN LATERAL (\
            SELECT q.timer_id FROM %.timer_queue q WHERE q.timer_id = (\
                SELECT t.id FROM %.timers t WHERE t.tenant_id = u.tenant_id \
                    AND t.service_call_id = u.service_call_id) \
                AND q.registered_at = u.registered_at AND q.due_at = u.due_at OFFSET 0) q \
         CROSS JOIN LATERAL (\
            SELECT k.timer_id FROM %.timer_claims k \
            WHERE k.timer_id = q.timer_id AND k.token = u.token OFFSET 0) k";

    /// Makes claimed timers due again later, but not before their due time.
    retry =
        "UPDATE %.timer_queue q SET attempts = q.attempts + 1, last_error = u.reason, \
            ready_at = GREATEST(u.retry_at, q.due_at) \
         FROM unnest($1, $2, $3) AS u (timer_id, retry_at, reason) \
         WHERE q.timer_id = u.timer_id AND q.timer_id = ANY($1)";

    /// Makes dead-lettered timers reached.
    give_up =
        "WITH d AS (\
            DELETE FROM %.timer_queue q \
            USING unnest($1, $2, $3) AS u (timer_id, reached_at, reason) \
            WHERE q.timer_id = u.timer_id AND q.timer_id = ANY($1) \
            RETURNING q.timer_id, u.reached_at, q.attempts, u.reason) \
         INSERT INTO %.timer_firings (timer_id, reached_at, attempts, last_error) \
         SELECT timer_id, reached_at, attempts, reason FROM d \
         ON CONFLICT (timer_id) DO UPDATE SET reached_at = excluded.reached_at, \
            attempts = excluded.attempts, last_error = excluded.last_error";

    /// Ends claims unused, without waiting for anybody. Returns the places of those that were current.
    release = concat!(
        "WITH u AS MATERIALIZED (\
            SELECT u.place, u.token, (\
                SELECT q.timer_id FROM %.timer_queue q WHERE q.timer_id = (\
                    SELECT t.id FROM %.timers t WHERE t.tenant_id = u.tenant_id \
                        AND t.service_call_id = u.service_call_id) \
                    AND q.registered_at = u.registered_at AND q.due_at = u.due_at) AS timer_id \
            FROM unnest($1, $2, $3, $4, $5, $6) \
                AS u (place, tenant_id, service_call_id, registered_at, due_at, token)), \
         l AS MATERIALIZED (", free_claims!(), ") \
         DELETE FROM %.timer_claims k USING u \
         WHERE k.timer_id = u.timer_id AND k.timer_id = ANY(ARRAY(SELECT timer_id FROM l)) \
            AND k.token = u.token \
         RETURNING u.place");

    /// Extends leases, without waiting for anybody, and records claims again that were made before a crash of
    /// the server. Returns the places of those that are current. As a claim does, it locks the rows of the
    /// queue for that: a deletion may have found no claim.
    renew = concat!(
        "WITH u AS MATERIALIZED (\
            SELECT u.place, u.token, u.registered_at, u.due_at, u.epoch, (\
                SELECT q.timer_id FROM %.timer_queue q WHERE q.timer_id = (\
                    SELECT t.id FROM %.timers t WHERE t.tenant_id = u.tenant_id \
                        AND t.service_call_id = u.service_call_id) \
                    AND q.registered_at = u.registered_at AND q.due_at = u.due_at) AS timer_id \
            FROM unnest($1, $2, $3, $4, $5, $6, $9) \
                AS u (place, tenant_id, service_call_id, registered_at, due_at, token, epoch)), \
         l AS MATERIALIZED (", free_claims!(), "), \
         kept AS (\
            UPDATE %.timer_claims k \
            SET lease_until = ", clock!("$7"), " + $8 * interval '1 millisecond' FROM u \
            WHERE k.timer_id = u.timer_id AND k.timer_id = ANY(ARRAY(SELECT timer_id FROM l)) \
                AND k.token = u.token \
            RETURNING u.place), \
         lost AS MATERIALIZED (\
            SELECT u.place, u.token, q.timer_id FROM u CROSS JOIN LATERAL (\
                SELECT q.timer_id FROM %.timer_queue q WHERE q.timer_id = u.timer_id \
                    AND q.registered_at = u.registered_at AND q.due_at = u.due_at \
                    AND (q.ready_at <= ", clock!("$7"), ") IS TRUE \
                OFFSET 0 FOR NO KEY UPDATE OF q SKIP LOCKED) q \
            WHERE u.epoch <> coalesce(", epoch!(), ", -2)), \
         again AS (\
            INSERT INTO %.timer_claims AS k (timer_id, token, instance_id, lease_until) \
            SELECT timer_id, token, $10, ", clock!("$7"), " + $8 * interval '1 millisecond' \
            FROM lost ON CONFLICT (timer_id) DO NOTHING RETURNING k.timer_id, k.token) \
         SELECT place FROM kept UNION ALL SELECT place FROM lost \
         WHERE ((timer_id, token) IN (SELECT timer_id, token FROM again)) IS TRUE");

    /// Ends what was claimed by a statement whose answer was lost.
    release_lost = concat!(
        "DELETE FROM %.timer_claims k WHERE k.timer_id = ANY(ARRAY(\
            SELECT l.timer_id FROM %.timer_claims l \
            WHERE l.lease_until > ", clock!("$3"), " AND l.token = ANY($2) AND l.instance_id = $1 \
            ORDER BY l.lease_until)) AND k.token = ANY($2)");

    /// Ends claims by their timers, as they were made just now.
    unclaim = "DELETE FROM %.timer_claims WHERE timer_id = ANY($1) AND token = $2";

    /// Claims all that is due, if that is no more than the limit.
    claim_all = concat!(
        "WITH c AS MATERIALIZED (\
            SELECT ", queued!(), " FROM %.timer_queue q \
            WHERE q.ready_at >= $1 AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
            ORDER BY q.ready_at LIMIT $4 + 1 FOR NO KEY UPDATE OF q SKIP LOCKED), ",
        lease!("(SELECT count(*) FROM c) <= $4",
            concat!("NULL::text AS last_served, ", unknown!(), "false AS ends_early"))
    );

    /// Claims the newest and other fresh ones, the oldest of tenants in turn, and the oldest.
    claim_shared = concat!(
        "WITH RECURSIVE ", tenants!(), ", \
         newest AS MATERIALIZED (\
            (SELECT q.timer_id FROM %.timer_queue q \
             WHERE q.ready_at <= ", until!(), " AND ", is_free!(), " \
             ORDER BY q.ready_at DESC LIMIT LEAST($4 / 4, 1)) \
            UNION \
            (SELECT q.timer_id FROM %.timer_queue q \
             WHERE q.ready_at > ", until!(), " - interval '10 seconds' \
                AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
             ORDER BY q.ready_at DESC LIMIT $4 / 4)), \
         turns AS MATERIALIZED (\
            SELECT o.timer_id, t.tenant_id, t.turn FROM tenants t CROSS JOIN LATERAL (\
                SELECT q.timer_id FROM %.timer_queue q WHERE ", of_tenant!(), " AND ", is_free!(), " \
                ORDER BY q.tenant_id, q.ready_at LIMIT 1) o \
            LIMIT GREATEST($4 / 8, 1)), \
         first AS MATERIALIZED (", locked!("SELECT timer_id FROM newest UNION SELECT timer_id FROM turns"), "), \
         oldest AS MATERIALIZED (\
            SELECT ", queued!(), " FROM %.timer_queue q \
            WHERE q.ready_at >= $1 AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
                AND (q.timer_id NOT IN (SELECT timer_id FROM first)) IS TRUE \
            ORDER BY q.ready_at \
            LIMIT $4 - (SELECT count(*) FROM first) + 1 FOR NO KEY UPDATE OF q SKIP LOCKED), \
         others AS MATERIALIZED (\
            SELECT * FROM oldest ORDER BY ready_at LIMIT $4 - (SELECT count(*) FROM first)), \
         c AS MATERIALIZED (SELECT * FROM first UNION ALL SELECT * FROM others), ",
        lease!("true",
            "CASE WHEN (SELECT count(*) FROM turns) < GREATEST($4 / 8, 1) \
                THEN (SELECT tenant_id FROM tenants ORDER BY turn DESC LIMIT 1) \
                ELSE (SELECT tenant_id FROM turns ORDER BY turn DESC LIMIT 1) END AS last_served, \
            (SELECT count(*) FROM oldest) > (SELECT count(*) FROM others) AS more_due, \
            (SELECT max(ready_at) FROM others) AS searched_until, false AS ends_early")
    );

    /// Claims of the first rows that are due those whose tenants are not excluded; none if there are more
    /// than the limit, or too many of excluded tenants in the way.
    claim_beside = concat!(
        "WITH w AS MATERIALIZED (\
            SELECT q.timer_id, q.tenant_id, q.ready_at FROM %.timer_queue q \
            WHERE q.ready_at >= $1 AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
            ORDER BY q.ready_at LIMIT $4 + 1 + $9), \
         p AS MATERIALIZED (\
            SELECT timer_id FROM w WHERE tenant_id <> ALL($8) ORDER BY ready_at LIMIT $4 + 1), \
         c AS MATERIALIZED (", locked!("SELECT timer_id FROM p"), "), ",
        lease!("(SELECT count(*) FROM p) <= $4 AND (SELECT count(*) FROM w) <= $4 + $9",
            concat!("NULL::text AS last_served, ", unknown!(),
                "(SELECT count(*) FROM p) > $4 OR (SELECT count(*) FROM w) > $4 + $9 AS ends_early"))
    );

    /// Claims tenant by tenant, none of the excluded: fresh ones, the oldest of each, then their others.
    claim_by_tenant = concat!(
        "WITH RECURSIVE ", tenants!(), ", \
         newest AS MATERIALIZED (\
            SELECT n.timer_id FROM (\
                SELECT q.timer_id, q.tenant_id, q.ready_at FROM %.timer_queue q \
                WHERE q.ready_at >= $1 AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
                ORDER BY q.ready_at DESC LIMIT $4 / 4 + 1000) n \
            WHERE n.tenant_id <> ALL($10) ORDER BY n.ready_at DESC LIMIT $4 / 4), \
         visited AS MATERIALIZED (SELECT * FROM tenants), \
         one AS MATERIALIZED (\
            SELECT o.timer_id, t.tenant_id, t.turn FROM visited t CROSS JOIN LATERAL (\
                SELECT q.timer_id FROM %.timer_queue q WHERE ", of_tenant!(), " AND ", is_free!(), " \
                ORDER BY q.tenant_id, q.ready_at LIMIT 1) o \
            WHERE t.tenant_id <> ALL($10) ORDER BY t.turn LIMIT $4), \
         others AS MATERIALIZED (\
            SELECT o.timer_id FROM one t CROSS JOIN LATERAL (\
                SELECT q.timer_id FROM %.timer_queue q WHERE ", of_tenant!(), " AND ", is_free!(), " \
                ORDER BY q.tenant_id, q.ready_at OFFSET 1 LIMIT $4 + 1) o \
            LIMIT $4 + 1), \
         p AS MATERIALIZED (\
            SELECT timer_id, min(rank) AS rank FROM (\
                SELECT timer_id, 0 AS rank FROM newest \
                UNION ALL SELECT timer_id, 1 FROM one \
                UNION ALL SELECT timer_id, 2 FROM others) a \
            GROUP BY timer_id ORDER BY 2 LIMIT $4 + 1), \
         c AS MATERIALIZED (", locked!("SELECT timer_id FROM p ORDER BY rank LIMIT $4"), "), ",
        lease!("true",
            concat!("(SELECT tenant_id FROM visited ORDER BY turn DESC LIMIT 1) AS last_served, ",
                unknown!(), "(SELECT count(*) FROM visited) >= $9 AS ends_early"))
    );

    /// Whether more is due than was claimed, and when the next timer is.
    next_due = concat!("SELECT ", next_due!(), ", NULL::timestamptz AS lease_end");

    /// The same, and when the next lease of another instance ends.
    next_due_or_free = concat!("SELECT ", next_due!(), ", (\
        SELECT k.lease_until FROM %.timer_claims k \
        WHERE k.lease_until > ", clock!("$3"), " AND k.instance_id <> $4 AND k.timer_id <> 0 \
        ORDER BY k.lease_until LIMIT 1) AS lease_end");

    /// The same without excluded tenants, as far as a thousand rows reach.
    next_due_beside = concat!(
        "SELECT EXISTS (\
            SELECT 1 FROM (SELECT q.tenant_id FROM %.timer_queue q \
                WHERE q.ready_at >= $1 AND q.ready_at <= ", until!(), " AND ", is_free!(), " \
                ORDER BY q.ready_at LIMIT 1000) w WHERE w.tenant_id <> ALL($4)) AS more_due, (\
            SELECT coalesce(min(w.ready_at) FILTER (WHERE w.tenant_id <> ALL($4)), \
                CASE WHEN count(*) = 1000 THEN max(w.ready_at) END) \
            FROM (SELECT q.ready_at, q.tenant_id FROM %.timer_queue q \
                WHERE q.ready_at > ", until!(), " AND ", is_free!(), " \
                ORDER BY q.ready_at LIMIT 1000) w) AS next_due_at, ",
            clock!("$3"), " AS clock, NULL::timestamptz AS lease_end");

    /// When the oldest free timer is ready, and whether it is known since when claims are.
    oldest_ready = concat!(
        "SELECT (SELECT q.ready_at FROM %.timer_queue q WHERE coalesce((\
            SELECT k.lease_until FROM %.timer_claims k WHERE k.timer_id = q.timer_id), \
            '-infinity') <= ", clock!("$1"), " ORDER BY q.ready_at LIMIT 1) AS ready_at, \
            EXISTS (SELECT 1 FROM %.timer_claims k WHERE k.timer_id = 0) AS is_epoch_known");

    /// One timer by its key.
    find = concat!(entries!(),
        "WHERE t.tenant_id = $1 AND t.service_call_id = $2 AND t.deleted_at IS NULL");

    /// A tenant's due timers: those that wait for their due time, and those that wait for a retry.
    find_due = concat!(
        "SELECT ", columns!(), " FROM (\
            (SELECT q.timer_id, q.due_at FROM %.timer_queue q \
             WHERE q.tenant_id >= $1 AND (q.tenant_id, q.ready_at) <= ($1, $2) AND q.attempts = 0 \
             ORDER BY q.tenant_id, q.ready_at, q.timer_id LIMIT $3) \
            UNION ALL \
            (SELECT q.timer_id, q.due_at FROM %.timer_queue q \
             WHERE q.tenant_id = $1 AND q.due_at <= $2 AND q.attempts > 0 \
             ORDER BY q.due_at, q.timer_id LIMIT $3)) d \
         CROSS JOIN LATERAL (SELECT * FROM %.timers t WHERE t.id = d.timer_id OFFSET 0) t \
         ORDER BY d.due_at, d.timer_id LIMIT $3");

    /// The timers of a request, in the order of keys.
    find_by_correlation = concat!(entries!(),
        "WHERE t.correlation_id = $1 AND t.deleted_at IS NULL \
            AND (t.tenant_id, t.service_call_id) > ($2, $3) \
         ORDER BY t.tenant_id, t.service_call_id LIMIT $4");

    /// A tenant's timers after a position.
    page_all = concat!(entries!(),
        "WHERE t.tenant_id = $1 AND (t.due_at, t.id) > ($2, $3) AND t.deleted_at IS NULL \
         ORDER BY t.due_at, t.id LIMIT $4");

    /// A tenant's reached timers after a position. None is due after the last firing, so those that wait
    /// for their due time are not read.
    page_reached = concat!(
        "SELECT ", columns!(), ", f.reached_at, f.attempts, f.last_error FROM %.timers t \
         CROSS JOIN LATERAL (\
            SELECT * FROM %.timer_firings f WHERE f.timer_id = t.id OFFSET 0) f \
         WHERE t.tenant_id = $1 AND (t.due_at, t.id) > ($2, $3) AND t.due_at <= (\
                SELECT l.reached_at FROM %.timer_firings l ORDER BY l.reached_at DESC LIMIT 1) \
         ORDER BY t.due_at, t.id LIMIT $4");

    /// A tenant's scheduled timers after a position.
    page_scheduled = concat!(
        "SELECT ", columns!(), ", NULL::timestamptz AS reached_at, d.attempts, d.last_error FROM (\
            (SELECT q.timer_id, q.due_at, q.attempts, q.last_error FROM %.timer_queue q \
             WHERE q.tenant_id >= $1 AND q.tenant_id <= $1 \
                AND (q.tenant_id, q.ready_at, q.timer_id) > ($1, $2, $3) AND q.attempts = 0 \
             ORDER BY q.tenant_id, q.ready_at, q.timer_id LIMIT $4) \
            UNION ALL \
            (SELECT q.timer_id, q.due_at, q.attempts, q.last_error FROM %.timer_queue q \
             WHERE q.tenant_id = $1 AND (q.due_at, q.timer_id) > ($2, $3) AND q.attempts > 0 \
             ORDER BY q.due_at, q.timer_id LIMIT $4)) d \
         CROSS JOIN LATERAL (SELECT * FROM %.timers t WHERE t.id = d.timer_id OFFSET 0) t \
         ORDER BY d.due_at, d.timer_id LIMIT $4");

    /// Timers reached since an instant, after a position.
    fired_since = concat!(
        "SELECT ", columns!(), ", f.reached_at FROM %.timer_firings f \
         CROSS JOIN LATERAL (SELECT * FROM %.timers t WHERE t.id = f.timer_id OFFSET 0) t \
         WHERE f.reached_at >= $1 AND f.reached_at <= coalesce((\
                SELECT l.reached_at FROM %.timer_firings l WHERE l.reached_at > $1 \
                ORDER BY l.reached_at OFFSET $5 LIMIT 1), 'infinity') \
            AND ($2::timestamptz IS NULL \
            OR (f.reached_at, t.tenant_id, t.service_call_id) > ($2, $3, $4)) \
         ORDER BY f.reached_at, t.tenant_id, t.service_call_id LIMIT $5");

    /// Number of scheduled timers, and of those that are ready by an instant, up to a limit.
    backlog =
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM %.timer_queue q \
                ORDER BY q.ready_at LIMIT $2) a) AS pending, \
            (SELECT count(*) FROM (SELECT 1 FROM %.timer_queue q WHERE q.ready_at <= $1 \
                ORDER BY q.ready_at LIMIT $2) a) AS overdue";

    /// Removes timers that were reached long ago. The timer is locked first, as a replacement locks it.
    purge_reached =
        "WITH old AS MATERIALIZED (\
            SELECT timer_id FROM %.timer_firings WHERE reached_at < $1 \
            ORDER BY reached_at LIMIT $2), \
         l AS MATERIALIZED (\
            SELECT t.id FROM %.timers t WHERE t.id = ANY(ARRAY(SELECT timer_id FROM old)) \
            FOR UPDATE OF t SKIP LOCKED), \
         f AS (\
            DELETE FROM %.timer_firings WHERE timer_id = ANY(ARRAY(SELECT id FROM l)) \
                AND (reached_at < $1) IS TRUE RETURNING timer_id), \
         t AS (\
            DELETE FROM %.timers WHERE id = ANY(ARRAY(SELECT timer_id FROM f)) RETURNING 1) \
         SELECT count(*) FROM t";

    /// Removes old tombstones.
    purge_tombstones =
        "WITH l AS MATERIALIZED (\
            SELECT t.id FROM %.timers t WHERE t.deleted_at < $1 \
            ORDER BY t.deleted_at LIMIT $2 FOR UPDATE OF t SKIP LOCKED), \
         t AS (\
            DELETE FROM %.timers WHERE id = ANY(ARRAY(SELECT id FROM l)) \
                AND (deleted_at < $1) IS TRUE RETURNING 1) \
         SELECT count(*) FROM t";

    /// Records dead letters; leaves ids that exist alone. Returns the ids that it recorded.
    record_dead_letters =
        "INSERT INTO %.dead_letters (id, source, tenant_id, payload, reason, failed_at) \
         SELECT * FROM unnest($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING RETURNING id";

    /// Dead letters after a sequence number.
    list_dead_letters =
        "SELECT sequence, id, source, tenant_id, payload, reason, failed_at FROM %.dead_letters \
         WHERE sequence > $1 ORDER BY sequence LIMIT $2";

    /// Removes dead letters. Returns the sequence numbers that were there.
    remove_dead_letters = "DELETE FROM %.dead_letters WHERE sequence = ANY($1) RETURNING sequence";

    /// The positions of a stream, each instance's.
    load_positions =
        "SELECT stream, instance_id, made_at, last_sequence, last_message_id, acknowledged_at, covers_until \
         FROM %.bus_positions WHERE stream = $1";

    /// Inserts or replaces an instance's position in a stream.
    save_position =
        "INSERT INTO %.bus_positions (stream, instance_id, made_at, last_sequence, \
            last_message_id, acknowledged_at, covers_until) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (stream, instance_id) DO UPDATE SET made_at = excluded.made_at, \
            last_sequence = excluded.last_sequence, last_message_id = excluded.last_message_id, \
            acknowledged_at = excluded.acknowledged_at, covers_until = excluded.covers_until";

    /// Keeps an id, unless there is one. Returns that of the database.
    keep_id =
        "INSERT INTO %.database_id AS d (place, id) VALUES (1, $1) \
         ON CONFLICT (place) DO UPDATE SET id = d.id RETURNING d.id";

    /// Takes or keeps the republication of a stream. Returns a row if this instance has it.
    own_republication = concat!(
        "INSERT INTO %.republications AS r (stream, instance_id, lease_until) \
         VALUES ($1, $2, ", clock!("$3"), " + $4 * interval '1 millisecond') \
         ON CONFLICT (stream) DO UPDATE SET instance_id = excluded.instance_id, \
            lease_until = excluded.lease_until \
         WHERE r.instance_id = excluded.instance_id OR r.lease_until <= ", clock!("$3"), " \
         RETURNING r.stream");

    /// Says that an instance lives.
    record_heartbeat = concat!(
        "INSERT INTO %.instances (instance_id, name, version, modules, started_at, heartbeat_at, \
            clock_offset_ms) \
         VALUES ($1, $2, $3, $4, ", clock!("$5"), ", ", clock!("$5"), ", $6) \
         ON CONFLICT (instance_id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, \
            clock_offset_ms = excluded.clock_offset_ms");

    /// The instances that have said so lately, and how many timers each is firing.
    list_instances = instances!(
        claimed_timers!(),
        "(SELECT t.claims FROM t WHERE t.instance_id = i.instance_id)",
        "0::int8",
        "0::int8");

    /// The same where there are service calls: and how many attempts each is making, and messages publishing.
    list_instances_of_calls = instances!(
        concat!(claimed_timers!(), ", ", claimed_attempts!()),
        "(SELECT t.claims FROM t WHERE t.instance_id = i.instance_id)",
        "(SELECT a.claims FROM a WHERE a.claimed_by = i.instance_id)",
        "(SELECT m.claims FROM m WHERE m.instance_id = i.instance_id)");

    /// The same where there are attempts alone.
    list_instances_of_attempts = instances!(
        claimed_attempts!(),
        "0::int8",
        "(SELECT a.claims FROM a WHERE a.claimed_by = i.instance_id)",
        "(SELECT m.claims FROM m WHERE m.instance_id = i.instance_id)");

    /// Forgets an instance that ends, and those that ended long ago.
    forget_instances = concat!(
        "DELETE FROM %.instances WHERE instance_id = ANY(ARRAY(\
            SELECT i.instance_id FROM %.instances i \
            WHERE i.instance_id = $1 OR i.heartbeat_at < ", clock!("$2"), " - interval '1 hour' \
            ORDER BY i.instance_id LIMIT 1000))");

    /// Tells other instances something.
    notify = "SELECT pg_catalog.pg_notify($1, $2)::text AS said";

    /// Writes as durably as a timer is written, and changes nothing.
    probe =
        "UPDATE %.dead_letters SET reason = reason WHERE sequence = 0";

    /// Forgets the positions of instances that ended long ago.
    forget_positions =
        "DELETE FROM %.bus_positions WHERE stream = $1 AND instance_id <> $2 AND acknowledged_at < $3";
}
