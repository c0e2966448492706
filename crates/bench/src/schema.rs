//! The schema that every file is made with.

use std::path::Path;

use punctual_domain::Timestamp;
use rusqlite::Connection;

use crate::Outcome;

/// Makes a timers-only database.
pub(crate) fn create(path: &Path, _now: Timestamp) -> Outcome<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "CREATE TABLE timer_schedules (
            tenant_id TEXT NOT NULL,
            service_call_id TEXT NOT NULL,
            correlation_id TEXT NOT NULL,
            due_at TEXT NOT NULL,
            registered_at TEXT NOT NULL,
            reached_at TEXT,
            state TEXT NOT NULL DEFAULT 'Scheduled',
            data TEXT,
            attempts INTEGER NOT NULL DEFAULT 0,
            retry_at TEXT,
            PRIMARY KEY (tenant_id, service_call_id),
            CHECK (state IN ('Scheduled', 'Reached'))
        ) STRICT;
        CREATE INDEX idx_timer_schedules_due_at ON timer_schedules(tenant_id, state, due_at);
        CREATE INDEX idx_timer_schedules_correlation_id ON timer_schedules(correlation_id);
        CREATE INDEX idx_timer_schedules_ready ON timer_schedules(coalesce(retry_at, due_at))
            WHERE state = 'Scheduled';
        CREATE INDEX idx_timer_schedules_reached_at ON timer_schedules(reached_at)
            WHERE state = 'Reached';",
    )?;
    Ok(())
}
