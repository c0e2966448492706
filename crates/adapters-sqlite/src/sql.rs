//! Every statement that reads or writes timers. `tests/it/query_plans.rs` checks the plan of each.
//!
//! States are literals: a partial index serves no query that binds its state. Statements that also
//! run inside a caller's transaction name the schema `main`: otherwise a temporary table of the caller
//! with our name would be used.

/// The columns that [`crate::timer_store::rows`] reads, in its order.
macro_rules! columns {
    () => {
        "rowid, tenant_id, service_call_id, correlation_id, due_at, registered_at, reached_at, \
         data, attempts, coalesce(retry_at, due_at), last_error"
    };
}

/// Defines a constant for each statement, and a list of all for the test.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)+) => {
        $($(#[$doc])* pub const $name: &str = $text;)+

        /// Every statement, by its name.
        pub const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use statements;

statements! {
    /// Inserts a timer; does nothing if the key exists.
    INSERT = "\
        INSERT INTO main.timer_schedules \
            (tenant_id, service_call_id, correlation_id, due_at, registered_at, state, data) \
        VALUES (?1, ?2, ?3, ?4, ?5, 'Scheduled', ?6) \
        ON CONFLICT (tenant_id, service_call_id) DO NOTHING";

    /// Reads what the schedule rules need to know of a key.
    EXISTING = "\
        SELECT rowid, registered_at, due_at, reached_at, coalesce(retry_at, due_at) \
        FROM main.timer_schedules WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Reschedules a row and clears what belonged to the old schedule.
    RESCHEDULE = "\
        UPDATE main.timer_schedules \
        SET correlation_id = ?2, due_at = ?3, registered_at = ?4, data = ?5, \
            state = 'Scheduled', reached_at = NULL, attempts = 0, retry_at = NULL, \
            last_error = NULL \
        WHERE rowid = ?1";

    /// Reads a tombstone.
    TOMBSTONE = "\
        SELECT deleted_at FROM main.tombstones WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Adds or updates a tombstone.
    ADD_TOMBSTONE = "\
        INSERT INTO tombstones (tenant_id, service_call_id, deleted_at) VALUES (?1, ?2, ?3) \
        ON CONFLICT (tenant_id, service_call_id) DO UPDATE SET deleted_at = excluded.deleted_at";

    /// Whether there is any tombstone. The condition is always true, and selects the index.
    HAS_TOMBSTONES = "SELECT 1 FROM tombstones WHERE tenant_id >= '' LIMIT 1";

    /// Removes a tombstone.
    REMOVE_TOMBSTONE = "\
        DELETE FROM main.tombstones WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Marks a row as reached if it still belongs to the firing: a rowid can be reused. The reason of a
    /// dead letter becomes the last error.
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

    /// Marks a row that was read within the transaction.
    MARK_BY_ROWID = "\
        UPDATE timer_schedules SET state = 'Reached', reached_at = ?2, retry_at = NULL, \
            last_error = coalesce(?3, last_error) \
        WHERE rowid = ?1 AND state = 'Scheduled'";

    /// Makes a row that was read within the transaction due again later.
    RETRY_BY_ROWID = "\
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

    /// One timer by its rowid.
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

    /// The timers of a request, unsorted: the index has no order, and the reader keeps the first ones.
    FIND_BY_CORRELATION = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE correlation_id = ?1"
    );

    /// A tenant's scheduled timers after a position.
    PAGE_SCHEDULED = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND state = 'Scheduled' AND due_at >= ?2 \
         AND (due_at > ?2 OR rowid > ?3) ORDER BY due_at, rowid LIMIT ?4"
    );

    /// A tenant's reached timers after a position.
    PAGE_REACHED = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE tenant_id = ?1 AND state = 'Reached' AND due_at >= ?2 \
         AND (due_at > ?2 OR rowid > ?3) ORDER BY due_at, rowid LIMIT ?4"
    );

    /// Timers reached since an instant, read until the limit. Those of one instant are unsorted: the
    /// reader sorts them.
    FIRED_SINCE = concat!(
        "SELECT ",
        columns!(),
        " FROM timer_schedules WHERE state = 'Reached' AND reached_at >= ?1 ORDER BY reached_at"
    );

    /// Number of scheduled timers, counted in the index alone.
    PENDING = "\
        SELECT count(*) FROM timer_schedules INDEXED BY idx_timer_schedules_ready \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) >= ''";

    /// Number of those that were ready by an instant.
    OVERDUE = "\
        SELECT count(*) FROM timer_schedules INDEXED BY idx_timer_schedules_ready \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= ?1";

    /// Scheduled timers, oldest first; read until the limit or the first that is not ready. The index
    /// covers the query. The time condition is always true, and selects the index.
    READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) >= '' \
        ORDER BY coalesce(retry_at, due_at)";

    /// Ready timers, newest first; read until the limit.
    NEWEST_READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) <= ?1 \
        ORDER BY coalesce(retry_at, due_at) DESC";

    /// Timers that are ready after an instant, read until one that is not in flight. `READY` would have
    /// to read a backlog first.
    NEXT_READY = "\
        SELECT rowid, coalesce(retry_at, due_at) FROM timer_schedules \
        WHERE state = 'Scheduled' AND coalesce(retry_at, due_at) > ?1 \
        ORDER BY coalesce(retry_at, due_at)";

    /// The next tenant that has scheduled timers. Ordering by time too would sort all of a tenant's
    /// rows.
    NEXT_TENANT = "\
        SELECT tenant_id FROM timer_schedules INDEXED BY idx_timer_schedules_tenant_ready \
        WHERE state = 'Scheduled' AND tenant_id > CAST(?1 AS TEXT) \
        ORDER BY tenant_id LIMIT 1";

    /// A tenant's scheduled timers, oldest first; read until the limit or the first that is not ready.
    /// The index covers the query: a tenant may have many rows in flight, which are skipped.
    READY_OF_TENANT = "\
        SELECT rowid, coalesce(retry_at, due_at) \
        FROM timer_schedules INDEXED BY idx_timer_schedules_tenant_ready \
        WHERE tenant_id = CAST(?1 AS TEXT) AND state = 'Scheduled' \
            AND coalesce(retry_at, due_at) >= '' \
        ORDER BY coalesce(retry_at, due_at)";

    /// The tenant of a row.
    TENANT_OF = "SELECT tenant_id FROM timer_schedules WHERE rowid = ?1";

    /// Removes timers that were reached long ago.
    PURGE_REACHED = "\
        DELETE FROM timer_schedules WHERE rowid IN ( \
            SELECT rowid FROM timer_schedules WHERE state = 'Reached' AND reached_at < ?1 \
            ORDER BY reached_at LIMIT ?2)";

    /// Removes old tombstones.
    PURGE_TOMBSTONES = "\
        DELETE FROM tombstones WHERE rowid IN ( \
            SELECT rowid FROM tombstones WHERE deleted_at < ?1 ORDER BY deleted_at LIMIT ?2)";

    /// Inserts a dead letter; does nothing if its id exists.
    RECORD_DEAD_LETTER = "\
        INSERT INTO dead_letters (id, source, tenant_id, payload, reason, failed_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING";

    /// Dead letters after a sequence number.
    LIST_DEAD_LETTERS = "\
        SELECT sequence, id, source, tenant_id, payload, reason, failed_at FROM dead_letters \
        WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";

    /// Removes a dead letter.
    REMOVE_DEAD_LETTER = "DELETE FROM dead_letters WHERE sequence = ?1";

    /// Keeps an id, if there is none yet.
    KEEP_ID = "INSERT INTO database_id (place, id) VALUES (1, ?1) ON CONFLICT (place) DO NOTHING";

    /// The id of the database.
    DATABASE_ID = "SELECT id FROM database_id WHERE place = 1";

    /// The position of a stream.
    LOAD_POSITION = "\
        SELECT stream, made_at, last_sequence, last_message_id, acknowledged_at, covers_until \
        FROM bus_positions WHERE stream = ?1";

    /// Inserts or replaces the position of a stream.
    SAVE_POSITION = "\
        INSERT INTO bus_positions \
            (stream, made_at, last_sequence, last_message_id, acknowledged_at, covers_until) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
        ON CONFLICT (stream) DO UPDATE SET made_at = excluded.made_at, \
            last_sequence = excluded.last_sequence, \
            last_message_id = excluded.last_message_id, \
            acknowledged_at = excluded.acknowledged_at, covers_until = excluded.covers_until";
}
