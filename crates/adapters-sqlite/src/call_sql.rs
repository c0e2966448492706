//! Every statement that reads or writes service calls, their messages and their attempts.
//! `tests/it/call_query_plans.rs` checks the plan of each.
//!
//! Positions in the list of calls are pairs of due time and id, which SQLite seeks in one step. Bounds
//! are exclusive: to include an id, append a `~`, which sorts after it and before every other.

use crate::sql::statements;

/// The columns that [`crate::call_store::rows`] reads, in its order.
macro_rules! columns {
    () => {
        "SELECT call.tenant_id, call.service_call_id, name, status, submitted_at, call.due_at, \
         started_at, finished_at, request_spec, outcome_meta, correlation_id, command_id, version, \
         execution_id, caused_by, timeout_ms, attempt_began_at, dispatched_at, dispatch_count, \
         (SELECT json_group_array(tag) FROM service_call_tags AS tags \
          WHERE tags.tenant_id = call.tenant_id AND tags.service_call_id = call.service_call_id) "
    };
}

macro_rules! call {
    () => {
        concat!(columns!(), "FROM service_calls AS call ")
    };
}

statements! {
    /// Takes an id and a key; does nothing if either is taken.
    TAKE = "\
        INSERT INTO submissions (tenant_id, service_call_id, idempotency_key, body_sha256, \
            correlation_id, submitted_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";

    /// The submission that has taken an id.
    TAKEN_ID = "\
        SELECT service_call_id, idempotency_key, body_sha256, correlation_id, submitted_at \
        FROM submissions WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// The submission that has taken a key.
    TAKEN_KEY = "\
        SELECT service_call_id, idempotency_key, body_sha256, correlation_id, submitted_at \
        FROM submissions WHERE tenant_id = ?1 AND idempotency_key = ?2";

    /// A new call.
    INSERT_CALL = "\
        INSERT INTO service_calls (tenant_id, service_call_id, name, submitted_at, due_at, \
            correlation_id, command_id, version, status, request_spec, next_check_at, started_at, \
            finished_at, outcome_meta, execution_id, caused_by, timeout_ms, attempt_began_at, \
            dispatched_at, dispatch_count) \
        VALUES (?1, ?2, ?14, ?15, ?16, ?17, ?18, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
            ?13, ?19)";

    /// One of its tags.
    INSERT_TAG = "\
        INSERT INTO service_call_tags (tenant_id, service_call_id, tag, due_at) \
        VALUES (?1, ?2, ?3, ?4)";

    /// Updates a call whose version has not changed and that is not finished.
    CHANGE_CALL = "\
        UPDATE service_calls SET version = version + 1, status = ?3, request_spec = ?4, \
            next_check_at = ?5, started_at = ?6, finished_at = ?7, outcome_meta = ?8, \
            execution_id = ?9, caused_by = ?10, timeout_ms = ?11, attempt_began_at = ?12, \
            dispatched_at = ?13, dispatch_count = ?14 \
        WHERE tenant_id = ?1 AND service_call_id = ?2 AND version = ?15 \
            AND status IN ('Scheduled', 'Running')";

    /// Deletes a scheduled call whose version has not changed.
    DELETE_CALL = "\
        DELETE FROM service_calls WHERE tenant_id = ?1 AND service_call_id = ?2 AND version = ?3 \
            AND status = 'Scheduled' \
        RETURNING submitted_at";

    /// The timer of a call.
    TIMER_OF_CALL = "\
        SELECT rowid, registered_at FROM timer_schedules \
        WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Records when the call of a submission was deleted.
    MARK_CALL_DELETED = "\
        UPDATE submissions SET gone_at = ?3 WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// Calls that finished long ago.
    OLD_CALLS = "\
        SELECT rowid, tenant_id, service_call_id FROM service_calls \
        WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2";

    /// Deletes a call by its rowid.
    REMOVE_CALL = "DELETE FROM service_calls WHERE rowid = ?1";

    /// Removes submissions whose call was deleted long ago.
    PURGE_SUBMISSIONS = "\
        DELETE FROM submissions WHERE rowid IN ( \
            SELECT rowid FROM submissions WHERE gone_at < ?1 ORDER BY gone_at LIMIT ?2)";

    /// Calls by their keys, a list of pairs, each with its place in the list. The join keeps that order.
    FIND_CALLS = concat!(
        columns!(),
        ", wanted.key FROM json_each(?1) AS wanted CROSS JOIN service_calls AS call \
         WHERE call.tenant_id = wanted.value ->> 0 AND call.service_call_id = wanted.value ->> 1"
    );

    /// A tenant's calls before a position, due at an instant or later; read until the limit.
    PAGE = concat!(
        call!(),
        "WHERE call.tenant_id = ?1 AND call.due_at >= ?2 \
             AND (call.due_at, call.service_call_id) < (?3, ?4) \
         ORDER BY call.due_at DESC, call.service_call_id DESC"
    );

    /// The same for one status. The index is named: otherwise SQLite takes the other one and reads all
    /// calls of a tenant for the few that failed.
    PAGE_OF_STATUS = concat!(
        call!(),
        "INDEXED BY idx_service_calls_status WHERE call.tenant_id = ?1 AND call.status = ?5 AND call.due_at >= ?2 \
             AND (call.due_at, call.service_call_id) < (?3, ?4) \
         ORDER BY call.due_at DESC, call.service_call_id DESC"
    );

    /// The next call of a status before a position.
    NEXT_OF_STATUS = "\
        SELECT due_at, service_call_id FROM service_calls INDEXED BY idx_service_calls_status \
        WHERE tenant_id = ?1 AND status = ?5 AND due_at >= ?2 \
            AND (due_at, service_call_id) < (?3, ?4) \
        ORDER BY due_at DESC, service_call_id DESC LIMIT 1";

    /// The next call of a tag before a position.
    NEXT_OF_TAG = "\
        SELECT due_at, service_call_id FROM service_call_tags \
        WHERE tenant_id = ?1 AND tag = ?5 AND due_at >= ?2 \
            AND (due_at, service_call_id) < (?3, ?4) \
        ORDER BY due_at DESC, service_call_id DESC LIMIT 1";

    /// The calls of a request, unsorted: the index has no order, and the reader keeps the first ones.
    CALLS_OF_CORRELATION = concat!(call!(), "WHERE call.correlation_id = ?1");

    /// Stuck calls; read until the limit.
    STUCK = concat!(call!(), "WHERE call.next_check_at <= ?1 ORDER BY call.next_check_at");

    /// Number of calls without an outcome, and the total size of their requests.
    UNFINISHED = "\
        SELECT count(*), ifnull(sum(length(CAST(request_spec AS BLOB))), 0) FROM service_calls \
        WHERE next_check_at > ''";

    /// The earliest next check after an instant.
    NEXT_CHECK = "\
        SELECT next_check_at FROM service_calls WHERE next_check_at > ?1 ORDER BY next_check_at LIMIT 1";

    /// Appends a message.
    APPEND = "\
        INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, \
            published_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

    /// When the last message was appended.
    LAST_CREATED = "\
        SELECT created_at FROM outbox WHERE id = (SELECT max(id) FROM outbox)";

    /// Unpublished messages of an instant after a position; read until the limit.
    UNPUBLISHED_OF_INSTANT = "\
        SELECT id, created_at, event_payload FROM outbox \
        WHERE published_at IS NULL AND created_at = ?1 AND id > ?2 ORDER BY id";

    /// Unpublished messages of later instants; read until the limit.
    UNPUBLISHED = "\
        SELECT id, created_at, event_payload FROM outbox \
        WHERE published_at IS NULL AND created_at > ?1 ORDER BY created_at, id";

    /// A message, if it is unpublished.
    UNPUBLISHED_MESSAGE = "\
        SELECT id, created_at, event_payload FROM outbox WHERE id = ?1 AND published_at IS NULL";

    /// The request of a call that has no outcome yet.
    REQUEST_TO_MAKE = "\
        SELECT request_spec FROM service_calls \
        WHERE tenant_id = ?1 AND service_call_id = ?2 AND status = 'Running'";

    /// Unpublished messages, to be counted up to a limit.
    WAITING_MESSAGES = "SELECT 1 FROM outbox WHERE published_at IS NULL LIMIT ?1";

    /// Marks messages without secrets as published, and returns which. The index of unpublished messages
    /// would be read as a whole.
    MARK_MESSAGES = "\
        UPDATE outbox NOT INDEXED SET published_at = ?2 \
        WHERE id IN (SELECT value FROM json_each(?1)) AND published_at IS NULL RETURNING id";

    /// Marks a message without secrets as published.
    MARK_MESSAGE = "\
        UPDATE outbox SET published_at = ?2 \
        WHERE id = ?1 AND published_at IS NULL AND event_type <> 'StartExecution'";

    /// A message that may have to be redacted when it is marked.
    MESSAGE_WITH_SECRETS = "\
        SELECT event_payload FROM outbox WHERE id = ?1 AND published_at IS NULL";

    /// Marks it as published and stores its redacted form.
    MARK_AND_REDACT = "\
        UPDATE outbox SET published_at = ?2, event_payload = ?3 \
        WHERE id = ?1 AND published_at IS NULL";

    /// The messages about a call.
    ABOUT = "\
        SELECT event_payload, published_at FROM outbox \
        WHERE tenant_id = ?1 AND aggregate_id = ?2 ORDER BY id";

    /// Removes messages that were published long ago.
    PURGE_MESSAGES = "\
        DELETE FROM outbox WHERE id IN ( \
            SELECT id FROM outbox WHERE published_at < ?1 ORDER BY published_at LIMIT ?2)";

    /// The attempt of a call.
    ATTEMPT_OF_CALL = "\
        SELECT execution_id FROM http_execution_log \
        WHERE tenant_id = ?1 AND service_call_id = ?2 LIMIT 1";

    /// Inserts a waiting attempt, if the call has none.
    INSERT_ATTEMPT = "\
        INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at, \
            correlation_id, timeout_ms, host, request_spec, request_url, request_method, \
            request_headers, request_body, state) \
        SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'Waiting' WHERE NOT EXISTS ( \
            SELECT 1 FROM http_execution_log WHERE tenant_id = ?1 AND service_call_id = ?2)";

    /// Starts a waiting attempt.
    BEGIN_ATTEMPT = "\
        UPDATE http_execution_log SET state = 'Attempted', started_at = ?4 \
        WHERE tenant_id = ?1 AND service_call_id = ?2 AND execution_id = ?3 AND state = 'Waiting'";

    /// Finishes an attempt and removes its secrets.
    FINISH_ATTEMPT = "\
        UPDATE http_execution_log SET state = 'Finished', finished_at = ?4, outcome_meta = ?5, \
            response_status = ?6, response_headers = ?7, response_body = ?8, error_message = ?9, \
            request_spec = NULL \
        WHERE tenant_id = ?1 AND service_call_id = ?2 AND execution_id = ?3 \
            AND state = 'Attempted'";

    /// The next tenant that has waiting attempts.
    NEXT_TENANT = "\
        SELECT tenant_id FROM http_execution_log WHERE state = 'Waiting' AND tenant_id > ?1 \
        ORDER BY tenant_id LIMIT 1";

    /// Waiting attempts of all tenants, to be counted up to a limit.
    WAITING_ATTEMPTS = "\
        SELECT 1 FROM http_execution_log WHERE state = 'Waiting' AND tenant_id > '' LIMIT ?1";

    /// The next host for which a tenant has waiting attempts.
    NEXT_HOST = "\
        SELECT host FROM http_execution_log \
        WHERE state = 'Waiting' AND tenant_id = ?1 AND host > ?2 ORDER BY host LIMIT 1";

    /// A tenant's waiting attempts for a host, oldest first.
    WAITING_FOR_HOST = "\
        SELECT rowid FROM http_execution_log \
        WHERE state = 'Waiting' AND tenant_id = ?1 AND host = ?2 \
        ORDER BY started_at, rowid LIMIT ?3";

    /// Waiting attempts of a list of rowids, with their secrets, in the order of the list.
    ATTEMPTS = "\
        SELECT tenant_id, service_call_id, execution_id, correlation_id, request_spec, timeout_ms, \
            started_at, host \
        FROM json_each(?1) AS wanted CROSS JOIN http_execution_log AS log \
        WHERE log.rowid = wanted.value AND state = 'Waiting'";

    /// Attempts that started and have not finished; read until the limit.
    STARTED_ATTEMPTS = "\
        SELECT tenant_id, service_call_id, execution_id, correlation_id \
        FROM http_execution_log WHERE state = 'Attempted' AND started_at > '' ORDER BY started_at";

    /// Deletes the attempt of a call.
    DELETE_ATTEMPT = "\
        DELETE FROM http_execution_log WHERE tenant_id = ?1 AND service_call_id = ?2";

    /// The attempts of a call, redacted.
    ENTRIES = "\
        SELECT tenant_id, service_call_id, execution_id, started_at, request_method, request_url, \
            request_headers, request_body, state, finished_at, outcome_meta \
        FROM http_execution_log WHERE tenant_id = ?1 AND service_call_id = ?2 \
        ORDER BY execution_id LIMIT ?3";
}
