//! Rows as service calls, and calls as the columns of a row.

use std::time::Duration;

use punctual_domain::service_call::{
    CallDetails, CallName, CallStatus, FinishedCall, Outcome, RequestSpec, RunningCall,
    ScheduledCall, ServiceCall, Tag, Tags,
};
use punctual_domain::{CorrelationId, EnvelopeId, TimerKey};
use punctual_ports::StoredCall;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::lane::Parameter;
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column, instant, instant_or_null, key, unreadable};
use crate::values::Instant;

/// Reads the columns of a call.
pub(super) fn read_call(row: &Row) -> Result<StoredCall, Failure> {
    let name: &str = column(row, "name")?;
    let tags: Vec<&str> = column(row, "tags")?;
    let tags: Result<Vec<Tag>, _> = tags.into_iter().map(Tag::new).collect();
    let tags = tags.map_err(|error| unreadable("tags", error))?;
    let details = CallDetails {
        key: key(row)?,
        correlation_id: CorrelationId::from_uuid(column(row, "correlation_id")?),
        command_id: envelope_id(row, "command_id")?,
        name: CallName::new(name).map_err(|error| unreadable("name", error))?,
        tags: Tags::new(tags).map_err(|error| unreadable("tags", error))?,
        submitted_at: instant(row, "submitted_at")?,
        due_at: instant(row, "due_at")?,
        request: json::<RequestSpec>(row, "request_spec")?,
    };
    let status: &str = column(row, "status")?;
    let status: CallStatus = status
        .parse()
        .map_err(|error| unreadable("status", error))?;
    let call = match status {
        CallStatus::Scheduled => ServiceCall::Scheduled(ScheduledCall { details }),
        CallStatus::Running => ServiceCall::Running(running(row, details)?),
        CallStatus::Succeeded | CallStatus::Failed => {
            let outcome = match status {
                CallStatus::Succeeded => Outcome::Succeeded(json(row, "outcome_meta")?),
                _ => Outcome::Failed(json(row, "outcome_meta")?),
            };
            let started_at = instant_or_null(row, "started_at")?;
            let finished_at = instant(row, "finished_at")?;
            let finished = FinishedCall::restore(details, started_at, finished_at, outcome);
            ServiceCall::Finished(finished)
        }
    };
    Ok(StoredCall {
        call,
        version: column::<i64>(row, "version")?.unsigned_abs(),
    })
}

fn running(row: &Row, details: CallDetails) -> Result<RunningCall, Failure> {
    Ok(RunningCall {
        details,
        started_at: instant(row, "started_at")?,
        execution_id: envelope_id(row, "execution_id")?,
        caused_by: envelope_id(row, "caused_by")?,
        timeout: millis(row, "timeout_ms")?,
        attempt_started_at: instant_or_null(row, "attempt_began_at")?,
        dispatched_at: instant(row, "dispatched_at")?,
        // Saturates.
        dispatch_count: u32::try_from(column::<i64>(row, "dispatch_count")?).unwrap_or(u32::MAX),
    })
}

pub(super) fn envelope_id(row: &Row, name: &str) -> Result<EnvelopeId, Failure> {
    Ok(EnvelopeId::from_uuid(column::<Uuid>(row, name)?))
}

/// The columns of calls that change during their lives, with their keys, as arrays.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) keys: Keys,
    statuses: Vec<&'static str>,
    requests: Vec<String>,
    next_checks: Vec<Option<Instant>>,
    started: Vec<Option<Instant>>,
    finished: Vec<Option<Instant>>,
    outcomes: Vec<Option<String>>,
    executions: Vec<Option<Uuid>>,
    causes: Vec<Option<Uuid>>,
    timeouts: Vec<Option<i64>>,
    began: Vec<Option<Instant>>,
    dispatched: Vec<Option<Instant>>,
    dispatch_counts: Vec<Option<i64>>,
}

impl Columns {
    pub(super) fn add(&mut self, call: &ServiceCall) -> Result<(), Failure> {
        let details = call.details();
        self.keys.add(&details.key);
        self.statuses.push(call.status().as_str());
        self.requests.push(to_json(&details.request)?);
        self.next_checks.push(call.next_check_at().map(Instant));
        let running = match call {
            ServiceCall::Running(running) => Some(running),
            _ => None,
        };
        let (mut started, mut finished, mut outcome) =
            (running.map(|it| it.started_at), None, None);
        if let ServiceCall::Finished(call) = call {
            started = call.started_at();
            finished = Some(Instant(call.finished_at()));
            outcome = Some(outcome_json(call.outcome())?);
        }
        self.started.push(started.map(Instant));
        self.finished.push(finished);
        self.outcomes.push(outcome);
        self.executions
            .push(running.map(|it| it.execution_id.as_uuid()));
        self.causes.push(running.map(|it| it.caused_by.as_uuid()));
        self.timeouts.push(running.map(|it| to_millis(it.timeout)));
        let began = running.and_then(|it| it.attempt_started_at);
        self.began.push(began.map(Instant));
        self.dispatched
            .push(running.map(|it| Instant(it.dispatched_at)));
        self.dispatch_counts
            .push(running.map(|it| i64::from(it.dispatch_count)));
        Ok(())
    }

    pub(super) fn params(&self) -> Vec<Parameter<'_>> {
        let mut params = self.keys.params();
        let others: [Parameter<'_>; 12] = [
            (&self.statuses, Type::TEXT_ARRAY),
            (&self.requests, Type::TEXT_ARRAY),
            (&self.next_checks, Type::TIMESTAMPTZ_ARRAY),
            (&self.started, Type::TIMESTAMPTZ_ARRAY),
            (&self.finished, Type::TIMESTAMPTZ_ARRAY),
            (&self.outcomes, Type::TEXT_ARRAY),
            (&self.executions, Type::UUID_ARRAY),
            (&self.causes, Type::UUID_ARRAY),
            (&self.timeouts, Type::INT8_ARRAY),
            (&self.began, Type::TIMESTAMPTZ_ARRAY),
            (&self.dispatched, Type::TIMESTAMPTZ_ARRAY),
            (&self.dispatch_counts, Type::INT8_ARRAY),
        ];
        params.extend(others);
        params
    }
}

/// The places of a batch, from zero.
pub(super) fn places(count: usize) -> Vec<i64> {
    (0..).take(count).collect()
}

/// The place of a row in its batch.
pub(super) fn place(row: &Row) -> Result<usize, Failure> {
    let place: i64 = column(row, "place")?;
    usize::try_from(place).map_err(|error| unreadable("place", error))
}

/// The details of an outcome as JSON; the status says whether it succeeded.
pub(super) fn outcome_json(outcome: &Outcome) -> Result<String, Failure> {
    match outcome {
        Outcome::Succeeded(response) => to_json(response),
        Outcome::Failed(error) => to_json(error),
    }
}

/// A value as compact JSON.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| unreadable("a value", error))
}

/// Parses a column of JSON.
pub(super) fn json<T: DeserializeOwned>(row: &Row, name: &str) -> Result<T, Failure> {
    let text: &str = column(row, name)?;
    serde_json::from_str(text).map_err(|error| unreadable(name, error))
}

/// Reads a column of milliseconds.
pub(super) fn millis(row: &Row, name: &str) -> Result<Duration, Failure> {
    let millis: i64 = column(row, name)?;
    Ok(Duration::from_millis(millis.unsigned_abs()))
}

/// A duration as a column of milliseconds.
pub(super) fn to_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Skips an unreadable row, which another program or version wrote. It must not block those after it.
pub(super) fn readable<T>(what: &'static str, read: Result<T, Failure>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::error!(?error, what, "a row cannot be read and is passed over");
            None
        }
    }
}

/// Calls in the places of their keys.
pub(super) fn in_places(rows: &[Row], count: usize) -> Result<Vec<Option<StoredCall>>, Failure> {
    let mut found = vec![None; count];
    for row in rows {
        let place = place(row)?;
        if let Some(found) = found.get_mut(place) {
            *found = readable("service call", read_call(row));
        }
    }
    Ok(found)
}

/// Keys with their places, as the first three parameters of a statement.
pub(super) struct PlacedKeys {
    places: Vec<i64>,
    keys: Keys,
}

impl<'a> FromIterator<&'a TimerKey> for PlacedKeys {
    fn from_iter<T: IntoIterator<Item = &'a TimerKey>>(keys: T) -> Self {
        let keys: Keys = keys.into_iter().collect();
        Self {
            places: places(keys.calls.len()),
            keys,
        }
    }
}

impl PlacedKeys {
    pub(super) fn params(&self) -> Vec<Parameter<'_>> {
        let mut params: Vec<Parameter<'_>> = vec![(&self.places, Type::INT8_ARRAY)];
        params.extend(self.keys.params());
        params
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }
}
