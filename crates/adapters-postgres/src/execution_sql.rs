//! The statements that only a schema of attempts alone needs, for what their calls do elsewhere.

statements! { ExecutionStatements:
    /// Stores attempts of calls that were not deleted and have none. Returns the calls.
    accept = accept!("(SELECT true FROM %.tombstones t WHERE t.service_call_id = u.service_call_id \
        AND t.tenant_id = u.tenant_id) IS NOT TRUE");

    /// Waits until nobody deletes, and keeps others from it: a deletion beside it would see neither the
    /// attempt nor be seen.
    await_deletions =
        "SELECT pg_catalog.pg_advisory_xact_lock_shared($1, pg_catalog.hashtext($2))::text AS turn";

    /// Claims messages as where calls are beside them. None starts an attempt, so none needs a request.
    claim_messages = claim_messages!("NULL::text", "");

    /// Leaves tombstones of calls, and deletes their attempts.
    delete = concat!(
        "WITH k AS (\
            INSERT INTO %.tombstones AS t (tenant_id, service_call_id, deleted_at) \
            SELECT u.* FROM unnest($1, $2, $3) AS u (tenant_id, service_call_id, deleted_at) \
            ON CONFLICT (service_call_id, tenant_id) \
            DO UPDATE SET deleted_at = GREATEST(t.deleted_at, excluded.deleted_at)) \
         DELETE FROM %.http_execution_log s USING unnest($1, $2) AS u (tenant_id, service_call_id) \
         WHERE ", is_key!("s", "$2"));

    /// Removes attempts that finished long ago, unless a message about their call waits to be published.
    purge_attempts = concat!(
        "WITH old AS MATERIALIZED (\
            SELECT s.tenant_id, s.service_call_id FROM %.http_execution_log s \
            WHERE s.state = 'Finished' AND s.finished_at < $1 AND (SELECT true FROM %.outbox o \
                WHERE o.tenant_id = s.tenant_id AND o.aggregate_id = s.service_call_id \
                    AND (o.published_at IS NULL) IS TRUE LIMIT 1) IS NOT TRUE \
            ORDER BY s.finished_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED), \
         c AS (\
            DELETE FROM %.http_execution_log s USING old u \
            WHERE ", is_key!("s", "ARRAY(SELECT service_call_id FROM old)"), " RETURNING 1) \
         SELECT count(*) FROM c");

    /// Removes tombstones of calls that were deleted long ago.
    purge_tombstones = concat!(
        "WITH old AS MATERIALIZED (\
            SELECT s.tenant_id, s.service_call_id FROM %.tombstones s WHERE s.deleted_at < $1 \
            ORDER BY s.deleted_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED), \
         c AS (\
            DELETE FROM %.tombstones s USING old u \
            WHERE ", is_key!("s", "ARRAY(SELECT service_call_id FROM old)"), " RETURNING 1) \
         SELECT count(*) FROM c");
}
