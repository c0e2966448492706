//! The statements that only a file of attempts alone needs, for what their calls do elsewhere.

use crate::sql::statements;

statements! {
    /// Removes attempts that finished long ago, unless a message about their call waits to be published.
    PURGE_ATTEMPTS = "\
        DELETE FROM http_execution_log WHERE rowid IN ( \
            SELECT log.rowid FROM http_execution_log AS log \
            WHERE log.state = 'Finished' AND log.finished_at < ?1 AND NOT EXISTS ( \
                SELECT 1 FROM outbox INDEXED BY idx_outbox_aggregate_id \
                WHERE tenant_id = log.tenant_id AND aggregate_id = log.service_call_id \
                    AND published_at IS NULL) \
            ORDER BY log.finished_at LIMIT ?2)";
}
