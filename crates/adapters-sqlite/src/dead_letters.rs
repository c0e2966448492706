//! Dead letters, numbered in their order.

use punctual_domain::TenantId;
use punctual_ports::{DeadLetter, RecordOutcome, RemoveOutcome, StoredDeadLetter};
use rusqlite::{Connection, params};

use crate::sql;
use crate::timer_store::rows::{parsed, parsed_or_null, sql_limit};

pub(crate) fn record(
    connection: &Connection,
    dead_letter: &DeadLetter,
) -> rusqlite::Result<RecordOutcome> {
    let added = connection
        .prepare_cached(sql::RECORD_DEAD_LETTER)?
        .execute(params![
            dead_letter.id,
            dead_letter.origin.to_string(),
            dead_letter.tenant_id.as_ref().map(TenantId::as_str),
            dead_letter.payload,
            dead_letter.reason,
            dead_letter.failed_at.to_string(),
        ])?;
    Ok(match added {
        0 => RecordOutcome::AlreadyThere,
        _ => RecordOutcome::Recorded,
    })
}

pub(crate) fn remove(connection: &Connection, sequence: u64) -> rusqlite::Result<RemoveOutcome> {
    let Ok(sequence) = i64::try_from(sequence) else {
        return Ok(RemoveOutcome::NotFound);
    };
    let removed = connection
        .prepare_cached(sql::REMOVE_DEAD_LETTER)?
        .execute(params![sequence])?;
    Ok(match removed {
        0 => RemoveOutcome::NotFound,
        _ => RemoveOutcome::Removed,
    })
}

pub(crate) fn list(
    connection: &Connection,
    after: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<StoredDeadLetter>> {
    // Sequence numbers start at one, and none exceeds `i64::MAX`.
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(sql::LIST_DEAD_LETTERS)?;
    let dead_letters = statement.query_map(params![after, sql_limit(limit)], |row| {
        Ok(StoredDeadLetter {
            sequence: row.get::<_, i64>(0)?.unsigned_abs(),
            dead_letter: DeadLetter {
                id: row.get(1)?,
                origin: parsed(row, 2)?,
                tenant_id: parsed_or_null(row, 3)?,
                payload: row.get(4)?,
                reason: row.get(5)?,
                failed_at: parsed(row, 6)?,
            },
        })
    })?;
    dead_letters.collect()
}
