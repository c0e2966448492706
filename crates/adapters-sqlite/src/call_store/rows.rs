//! Rows as service calls, and calls as the columns of a row.

use std::time::Duration;

use punctual_domain::service_call::{
    CallDetails, CallName, CallStatus, FinishedCall, Outcome, RequestSpec, RunningCall,
    ScheduledCall, ServiceCall, Tags,
};
use punctual_domain::{EnvelopeId, TimerKey, Timestamp};
use punctual_ports::StoredCall;
use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::timer_store::rows::{parsed, parsed_or_null, unreadable};

/// Reads the columns that every such query selects, in their order.
pub(super) fn read_call(row: &Row<'_>) -> rusqlite::Result<StoredCall> {
    let name = row.get_ref(2)?.as_str()?;
    let details = CallDetails {
        key: TimerKey::new(parsed(row, 0)?, parsed(row, 1)?),
        correlation_id: parsed(row, 10)?,
        command_id: parsed(row, 11)?,
        name: CallName::new(name).map_err(|error| unreadable(2, error))?,
        tags: json::<Tags>(row, 19)?,
        submitted_at: parsed(row, 4)?,
        due_at: parsed(row, 5)?,
        request: json::<RequestSpec>(row, 8)?,
    };
    let status: CallStatus = parsed(row, 3)?;
    let call = match status {
        CallStatus::Scheduled => ServiceCall::Scheduled(ScheduledCall { details }),
        CallStatus::Running => ServiceCall::Running(running(row, details)?),
        CallStatus::Succeeded | CallStatus::Failed => {
            let outcome = match status {
                CallStatus::Succeeded => Outcome::Succeeded(json(row, 9)?),
                _ => Outcome::Failed(json(row, 9)?),
            };
            let (started_at, finished_at) = (parsed_or_null(row, 6)?, parsed(row, 7)?);
            let finished = FinishedCall::restore(details, started_at, finished_at, outcome);
            ServiceCall::Finished(finished)
        }
    };
    Ok(StoredCall {
        call,
        version: row.get::<_, i64>(12)?.unsigned_abs(),
    })
}

fn running(row: &Row<'_>, details: CallDetails) -> rusqlite::Result<RunningCall> {
    Ok(RunningCall {
        details,
        started_at: parsed(row, 6)?,
        execution_id: parsed::<EnvelopeId>(row, 13)?,
        caused_by: parsed::<EnvelopeId>(row, 14)?,
        timeout: millis(row, 15)?,
        attempt_started_at: parsed_or_null(row, 16)?,
        dispatched_at: parsed(row, 17)?,
        // Saturates.
        dispatch_count: u32::try_from(row.get::<_, i64>(18)?).unwrap_or(u32::MAX),
    })
}

/// The columns of a call that change during its life.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) status: &'static str,
    pub(super) request_spec: String,
    pub(super) next_check_at: Option<String>,
    pub(super) started_at: Option<String>,
    pub(super) finished_at: Option<String>,
    pub(super) outcome_meta: Option<String>,
    pub(super) execution_id: Option<String>,
    pub(super) caused_by: Option<String>,
    pub(super) timeout_ms: Option<i64>,
    pub(super) attempt_began_at: Option<String>,
    pub(super) dispatched_at: Option<String>,
    pub(super) dispatch_count: Option<u32>,
}

impl Columns {
    pub(super) fn of(call: &ServiceCall) -> rusqlite::Result<Self> {
        let text = |at: Timestamp| at.to_string();
        let mut columns = Self {
            status: call.status().as_str(),
            request_spec: to_json(&call.details().request)?,
            next_check_at: call.next_check_at().map(text),
            ..Self::default()
        };
        match call {
            ServiceCall::Scheduled(_) => {}
            ServiceCall::Running(running) => {
                columns.started_at = Some(text(running.started_at));
                columns.execution_id = Some(running.execution_id.to_string());
                columns.caused_by = Some(running.caused_by.to_string());
                columns.timeout_ms = Some(to_millis(running.timeout));
                columns.attempt_began_at = running.attempt_started_at.map(text);
                columns.dispatched_at = Some(text(running.dispatched_at));
                columns.dispatch_count = Some(running.dispatch_count);
            }
            ServiceCall::Finished(finished) => {
                columns.started_at = finished.started_at().map(text);
                columns.finished_at = Some(text(finished.finished_at()));
                columns.outcome_meta = Some(outcome_json(finished.outcome())?);
            }
        }
        Ok(columns)
    }
}

/// The details of an outcome as JSON; the status column says whether it succeeded.
pub(super) fn outcome_json(outcome: &Outcome) -> rusqlite::Result<String> {
    match outcome {
        Outcome::Succeeded(response) => to_json(response),
        Outcome::Failed(error) => to_json(error),
    }
}

/// A value as compact JSON.
pub(super) fn to_json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Parses a JSON column.
pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error))
}

/// Reads a column of milliseconds.
pub(super) fn millis(row: &Row<'_>, column: usize) -> rusqlite::Result<Duration> {
    let millis: i64 = row.get(column)?;
    Ok(Duration::from_millis(millis.unsigned_abs()))
}

/// A duration as a column of milliseconds.
pub(super) fn to_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Skips an unreadable row, which another program or version wrote. It must not block those after it.
pub(super) fn readable<T>(
    what: &'static str,
    read: rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.sqlite_error_code().is_none() => {
            tracing::error!(%error, what, "a row cannot be read and is passed over");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
