//! Every statement that reads or writes timers, in one place, so that a test can look at the plan
//! of each (`tests/it/query_plans.rs`).
//!
//! States are written as literals: a partial index serves no query that binds its state. What also
//! runs inside a caller's transaction names the file, `main`: a temporary table of the caller's that
//! happens to have our name would be found first, and its timers never.

/// What [`crate::timer_store::rows`] reads, in its order.
macro_rules! columns {
    () => {
        "rowid, tenant_id, service_call_id, correlation_id, due_at, registered_at, reached_at, \
         data, attempts, coalesce(retry_at, due_at), last_error"
    };
}

/// Makes a constant of each statement, and a list of all, so that none escapes the test.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)+) => {
        $($(#[$doc])* pub const $name: &str = $text;)+

        /// Every statement, by its name.
        pub const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use statements;

statements! {
    /// A new timer; nothing happens if the key is there already.
    INSERT = "\
        INSERT INTO main.timer_schedules \
            (tenant_id, service_call_id, correlation_id, due_at, registered_at, state, data) \
        VALUES (?1, ?2, ?3, ?4, ?5, 'Scheduled', ?6) \
        ON CONFLICT (tenant_id, service_call_id) DO NOTHING";

    /// What the rules of scheduling need to know of a key.
    EXISTING = "\
        SELECT rowid, registered_at, due_at, reached_at, coalesce(retry_at, due_at) \
        FROM main.timer_schedules WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// A new schedule for a row; what belonged to the old one is forgotten.
    RESCHEDULE = "\
        UPDATE main.timer_schedules \
        SET correlation_id = ?2, due_at = ?3, registered_at = ?4, data = ?5, \
            state = 'Scheduled', reached_at = NULL, attempts = 0, retry_at = NULL, \
            last_error = NULL \
        WHERE rowid = ?1";

    /// A deletion that is remembered.
    TOMBSTONE = "\
        SELECT deleted_at FROM main.tombstones WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Remembers a deletion.
    ADD_TOMBSTONE = "\
        INSERT INTO tombstones (tenant_id, service_call_id, deleted_at) VALUES (?1, ?2, ?3) \
        ON CONFLICT (tenant_id, service_call_id) DO UPDATE SET deleted_at = excluded.deleted_at";

    /// Whether any deletion is remembered. The condition is true of all, and finds the index.
    HAS_TOMBSTONES = "SELECT 1 FROM tombstones WHERE tenant_id >= '' LIMIT 1";

    /// Forgets a deletion: the timer is there again.
    REMOVE_TOMBSTONE = "\
        DELETE FROM main.tombstones WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Marks the row that fired, if it is still the one: the place of a row can be given to another.
    /// Why it can never succeed, if it is that, is its last error.
    MARK_ROW = "\
        UPDATE timer_schedules SET state = 'Reached', reached_at = ?2, retry_at = NULL, \
            last_error = coalesce(?7, last_error) \
        WHERE rowid = ?1 AND state = 'Scheduled' AND due_at = ?3 AND registered_at = ?4 \
            AND tenant_id = ?5 AND service_call_id = ?6";

    /// Makes a row due again later, but not before its due time.
    RETRY_ROW = "\
        UPDATE timer_schedules SET attempts = attempts + 1, retry_at = max(?2, due_at), \
            last_error = ?7 \
        WHERE rowid = ?1 AND state = 'Scheduled' AND due_at = ?3 AND registered_at = ?4 \
            AND tenant_id = ?5 AND service_call_id = ?6";

    /// Marks a row that was looked at within the transaction.
    MARK_PLACE = "\
        UPDATE timer_schedules SET state = 'Reached', reached_at = ?2, retry_at = NULL, \
            last_error = coalesce(?3, last_error) \
        WHERE rowid = ?1 AND state = 'Scheduled'";

    /// Makes a row that was looked at within the transaction due again later.
    RETRY_PLACE = "\
        UPDATE timer_schedules SET attempts = attempts + 1, retry_at = ?2, last_error = ?3 \
        WHERE rowid = ?1 AND state = 'Scheduled'";

    /// Removes a row.
    DELETE_ROW = "DELETE FROM main.timer_schedules WHERE rowid = ?1";

    /// One timer by its key.
    FIND = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND service_call_id = ?2"
    );

    /// One timer by its place.
    FIND_ROW = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE rowid = ?1"
    );

    /// A tenant's due timers: the polling query of the original specification.
    FIND_DUE = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND state = 'Scheduled' AND due_at <= ?2 \
         ORDER BY due_at LIMIT ?3"
    );

    /// The timers of a request. Not sorted: the index cannot, and the reader keeps the first few.
    FIND_BY_CORRELATION = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE correlation_id = ?1"
    );

    /// A tenant's scheduled timers after a place.
    PAGE_SCHEDULED = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND state = 'Scheduled' AND due_at >= ?2 \
         AND (due_at > ?2 OR rowid > ?3) ORDER BY due_at, rowid LIMIT ?4"
    );

    /// A tenant's reached timers after a place.
    PAGE_REACHED = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND state = 'Reached' AND due_at >= ?2 \
         AND (due_at > ?2 OR rowid > ?3) ORDER BY due_at, rowid LIMIT ?4"
    );

    /// What was reached from an instant on; read until there is enough. Those of one instant come in
    /// no order: the index has none, and the reader sorts the few.
    FIRED_SINCE = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE state = 'Reached' AND reached_at >= ?1 ORDER BY reached_at"
    );

    /// How many are scheduled, counted in the index alone.
    PENDING = "\
        SELECT count(*) FROM timer_schedules INDEXED BY idx_timer_schedules_ready \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) >= ''";

    /// How many of them could have been fired by an instant.
    OVERDUE = "\
        SELECT count(*) FROM timer_schedules INDEXED BY idx_timer_schedules_ready \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= ?1";

    /// What is ready or will be, oldest first; read until there is enough, or to the first that is
    /// not ready. The index holds all it asks for. The condition is true of all, and finds the index.
    READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) >= '' \
        ORDER BY coalesce(retry_at, due_at)";

    /// What is ready, newest first; read until there is enough.
    NEWEST_READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= ?1 \
        ORDER BY coalesce(retry_at, due_at) DESC";

    /// What is ready after an instant; read until one that is in nobody's hand. Behind a backlog,
    /// this is where the other list would not get to.
    NEXT_READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) > ?1 \
        ORDER BY coalesce(retry_at, due_at)";

    /// The tenant after one, of those that have something scheduled. With the time in the order, it
    /// would sort the whole tenant.
    NEXT_TENANT = "\
        SELECT tenant_id FROM timer_schedules INDEXED BY idx_timer_schedules_tenant_ready \
        WHERE state = 'Scheduled' AND tenant_id > CAST(?1 AS TEXT) \
        ORDER BY tenant_id LIMIT 1";

    /// What a tenant has that is ready or will be, oldest first; read until there is enough, or to
    /// the first that is not ready. The index holds all it asks for: of a tenant with much in hand,
    /// many rows are left out.
    READY_OF_TENANT = "\
        SELECT rowid, coalesce(retry_at, due_at) \
        FROM timer_schedules INDEXED BY idx_timer_schedules_tenant_ready \
        WHERE tenant_id = CAST(?1 AS TEXT) AND state = 'Scheduled' \
            AND coalesce(retry_at, due_at) >= '' \
        ORDER BY coalesce(retry_at, due_at)";

    /// Whose a row is.
    TENANT_OF = "SELECT tenant_id FROM timer_schedules WHERE rowid = ?1";

    /// Removes timers that were reached long ago.
    PURGE_REACHED = "\
        DELETE FROM timer_schedules WHERE rowid IN ( \
            SELECT rowid FROM timer_schedules WHERE state = 'Reached' AND reached_at < ?1 \
            ORDER BY reached_at LIMIT ?2)";

    /// Forgets deletions of long ago.
    PURGE_TOMBSTONES = "\
        DELETE FROM tombstones WHERE rowid IN ( \
            SELECT rowid FROM tombstones WHERE deleted_at < ?1 ORDER BY deleted_at LIMIT ?2)";

    /// Adds a dead letter; nothing happens if one with its id is there.
    RECORD_LETTER = "\
        INSERT INTO dead_letters (id, source, tenant_id, payload, reason, failed_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING";

    /// Dead letters after a number.
    LIST_LETTERS = "\
        SELECT sequence, id, source, tenant_id, payload, reason, failed_at FROM dead_letters \
        WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";

    /// Removes a dead letter.
    REMOVE_LETTER = "DELETE FROM dead_letters WHERE sequence = ?1";

    /// How far a stream has acknowledged.
    LOAD_POSITION = "\
        SELECT stream, made_at, last_sequence, last_message_id, acknowledged_at, covers_until \
        FROM bus_positions WHERE stream = ?1";

    /// Keeps that, in place of what was there.
    KEEP_POSITION = "\
        INSERT INTO bus_positions \
            (stream, made_at, last_sequence, last_message_id, acknowledged_at, covers_until) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
        ON CONFLICT (stream) DO UPDATE SET made_at = excluded.made_at, \
            last_sequence = excluded.last_sequence, \
            last_message_id = excluded.last_message_id, \
            acknowledged_at = excluded.acknowledged_at, covers_until = excluded.covers_until";
}
