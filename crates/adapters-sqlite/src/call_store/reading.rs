//! Finding calls by key, by request, and stuck ones.

use std::collections::BTreeMap;

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, TimerKey, Timestamp};
use punctual_ports::{StoredCall, StuckCalls};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{read_call, readable, to_json};
use crate::call_sql;
use crate::timer_store::rows::{by_key, parsed, sql_limit};

pub(super) fn find(
    connection: &Connection,
    keys: &[TimerKey],
) -> rusqlite::Result<Vec<Option<StoredCall>>> {
    let pairs: Vec<(&str, String)> = keys.iter().map(by_key).collect();
    let mut found = vec![None; keys.len()];
    let mut statement = connection.prepare_cached(call_sql::FIND_CALLS)?;
    let mut rows = statement.query(params![to_json(&pairs)?])?;
    while let Some(row) = rows.next()? {
        let place = row.get::<_, isize>(20)?.unsigned_abs();
        if let Some(found) = found.get_mut(place) {
            *found = readable("service call", read_call(row))?;
        }
    }
    Ok(found)
}

pub(super) fn was_submitted(
    connection: &Connection,
    keys: &[TimerKey],
) -> rusqlite::Result<Vec<bool>> {
    let mut statement = connection.prepare_cached(call_sql::TAKEN_ID)?;
    keys.iter()
        .map(|key| statement.exists(by_key(key)))
        .collect()
}

/// The index does not order a request's calls. At most `limit` of them are kept in memory.
pub(super) fn find_by_correlation(
    connection: &Connection,
    correlation_id: CorrelationId,
    after: Option<&TimerKey>,
    limit: usize,
) -> rusqlite::Result<Vec<ServiceCall>> {
    let mut statement = connection.prepare_cached(call_sql::CALLS_OF_CORRELATION)?;
    let mut rows = statement.query(params![correlation_id.to_string()])?;
    let mut first = BTreeMap::new();
    while let Some(row) = rows.next()? {
        if let Some(stored) = readable("service call", read_call(row))? {
            let key = stored.call.details().key.clone();
            if after.is_none_or(|after| key > *after) {
                first.insert(key, stored.call);
            }
        }
        if first.len() > limit {
            first.pop_last();
        }
    }
    Ok(first.into_values().collect())
}

/// Number of rows that a statement selects, up to `limit`.
pub(super) fn count(
    connection: &Connection,
    statement: &str,
    limit: usize,
) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(statement)?;
    let mut rows = statement.query(params![sql_limit(limit)])?;
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

pub(super) fn find_stuck(
    connection: &Connection,
    as_of: Timestamp,
    limit: usize,
) -> rusqlite::Result<StuckCalls> {
    let connection = connection.unchecked_transaction()?;
    let now = as_of.to_string();
    let mut statement = connection.prepare_cached(call_sql::STUCK)?;
    let mut rows = statement.query(params![now])?;
    let mut calls = Vec::new();
    while calls.len() < limit
        && let Some(row) = rows.next()?
    {
        calls.extend(readable("service call", read_call(row))?);
    }
    let next = connection
        .prepare_cached(call_sql::NEXT_CHECK)?
        .query_row(params![now], |row| parsed(row, 0))
        .optional()?;
    Ok(StuckCalls { as_of, calls, next })
}
