//! Rows as timers.

use std::error::Error;
use std::str::FromStr;

use punctual_domain::{
    CorrelationId, Failures, ReachedTimer, Registration, ScheduledTimer, ServiceCallId, TenantId,
    TimerData, TimerEntry, TimerKey, Timestamp,
};
use rusqlite::Row;
use rusqlite::types::Type;

use crate::claims::RowId;

/// A complete row of the table.
pub(crate) struct TimerRow {
    pub(crate) row_id: RowId,
    pub(crate) timer: ScheduledTimer,
    pub(crate) reached_at: Option<Timestamp>,
    pub(crate) failures: Failures,
    /// Earliest time of a claim.
    pub(crate) ready_at: Timestamp,
}

impl TimerRow {
    /// Reads the columns that every such query selects, in their order.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let key = TimerKey::new(
            parsed::<TenantId>(row, 1)?,
            parsed::<ServiceCallId>(row, 2)?,
        );
        let registration = Registration {
            due_at: parsed(row, 4)?,
            registered_at: parsed(row, 5)?,
        };
        let data: Option<&str> = row.get_ref(7)?.as_str_or_null()?;
        Ok(Self {
            row_id: row.get(0)?,
            timer: ScheduledTimer {
                key,
                correlation_id: parsed::<CorrelationId>(row, 3)?,
                registration,
                data: data
                    .map(TimerData::from_json)
                    .transpose()
                    .map_err(|error| unreadable(7, error))?,
            },
            reached_at: parsed_or_null(row, 6)?,
            failures: Failures {
                // Saturates.
                attempts: u32::try_from(row.get::<_, i64>(8)?).unwrap_or(u32::MAX),
                last_error: row.get(10)?,
            },
            ready_at: parsed(row, 9)?,
        })
    }

    pub(crate) fn entry(self) -> TimerEntry {
        let Self {
            timer, failures, ..
        } = self;
        match self.reached_at {
            None => TimerEntry::Scheduled { timer, failures },
            Some(at) => TimerEntry::Reached {
                timer: ReachedTimer::restore(timer, at),
                failures,
            },
        }
    }
}

/// Parses a text column.
pub(crate) fn parsed<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error| unreadable(column, error))
}

/// Parses a text column that may be null.
pub(crate) fn parsed_or_null<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str_or_null()?;
    text.map(|text| text.parse().map_err(|error| unreadable(column, error)))
        .transpose()
}

pub(crate) fn unreadable(
    column: usize,
    error: impl Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

/// A key as the first two parameters of a statement.
pub(crate) fn by_key(key: &TimerKey) -> (&str, String) {
    (key.tenant_id.as_str(), key.service_call_id.to_string())
}

/// A limit as an SQLite integer.
pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
