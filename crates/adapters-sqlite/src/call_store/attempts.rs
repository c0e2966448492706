//! The attempts of calls.

use std::collections::BTreeSet;

use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{Headers, Outcome, RequestBody, RequestSpec, ResponseMeta};
use punctual_domain::{CorrelationId, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    AcceptOutcome, DeletedCall, Execution, ExecutionEntry, ExecutionKey, ExecutionOutcome,
    ExecutionState, FinishExecution,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::attempt_claims::AttemptClaims;
use super::outbox;
use super::rows::{json, outcome_json, readable, to_json, to_millis};
use crate::port_errors::is_missing_parent;
use crate::timer_store::rows::{by_key, parsed, sql_limit, unreadable};
use crate::writer::Transaction;
use crate::{call_sql, execution_sql, sql};

/// Stores one attempt, if the call has none. Calls that are elsewhere are there unless they were deleted.
pub(super) fn accept(
    transaction: &mut Transaction<'_>,
    execution: &Execution,
    calls_elsewhere: bool,
) -> rusqlite::Result<AcceptOutcome> {
    let connection = transaction.connection;
    let (tenant, call) = by_key(&execution.key.call);
    if calls_elsewhere && tombstone(connection, &execution.key.call)?.is_some() {
        return Ok(AcceptOutcome::NoParent);
    }
    let execution_id = execution.key.execution_id.to_string();
    let redacted = execution.request.redacted();
    let inserted = connection
        .prepare_cached(call_sql::INSERT_ATTEMPT)?
        .execute(params![
            tenant,
            call,
            execution_id,
            execution.accepted_at.to_string(),
            execution.correlation_id.to_string(),
            to_millis(execution.timeout),
            execution.request.url.host_and_port(),
            to_json(&execution.request)?,
            redacted.url.as_str(),
            redacted.method.as_str(),
            to_json(&redacted.headers)?,
            redacted.body.as_ref().map(RequestBody::as_str),
        ]);
    match inserted {
        Ok(0) => {
            let mut before = connection.prepare_cached(call_sql::ATTEMPT_OF_CALL)?;
            let before: String = before.query_row(params![tenant, call], |row| row.get(0))?;
            Ok(if before == execution_id {
                AcceptOutcome::AlreadyThere
            } else {
                AcceptOutcome::AnotherAttempt
            })
        }
        Ok(_) => {
            transaction.accepted(execution);
            Ok(AcceptOutcome::Accepted)
        }
        Err(error) if is_missing_parent(&error) => Ok(AcceptOutcome::NoParent),
        Err(error) => Err(error),
    }
}

/// When a call that is elsewhere was deleted.
fn tombstone(connection: &Connection, call: &TimerKey) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .prepare_cached(sql::TOMBSTONE)?
        .query_row(by_key(call), |row| parsed(row, 0))
        .optional()
}

/// Deletes the attempt of a call that is elsewhere, and adds its tombstone.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    deleted: &DeletedCall,
) -> rusqlite::Result<()> {
    transaction.all_or_nothing(|transaction| {
        let connection = transaction.connection;
        let before = tombstone(connection, &deleted.key)?;
        let deleted_at = before.map_or(deleted.deleted_at, |it| it.max(deleted.deleted_at));
        let (tenant, call) = by_key(&deleted.key);
        connection
            .prepare_cached(sql::ADD_TOMBSTONE)?
            .execute(params![tenant, call, deleted_at.to_string()])?;
        connection
            .prepare_cached(call_sql::DELETE_ATTEMPT)?
            .execute(params![tenant, call])?;
        Ok(())
    })
}

/// Removes attempts that finished before an instant, and tombstones of calls that were deleted before it.
pub(super) fn purge(
    transaction: &Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let (connection, before) = (transaction.connection, before.to_string());
    let finished = connection
        .prepare_cached(execution_sql::PURGE_ATTEMPTS)?
        .execute(params![before, sql_limit(limit)])?;
    let left = limit.saturating_sub(finished);
    let forgotten = connection
        .prepare_cached(sql::PURGE_TOMBSTONES)?
        .execute(params![before, sql_limit(left)])?;
    Ok(finished + forgotten)
}

/// The start of an attempt.
pub(super) struct Begin {
    pub(super) key: ExecutionKey,
    pub(super) started_at: Timestamp,
    pub(super) outbox: Vec<MessageEnvelope>,
}

/// Starts one waiting attempt; false if it does not wait.
pub(super) fn begin(transaction: &mut Transaction<'_>, begin: &Begin) -> rusqlite::Result<bool> {
    transaction.all_or_nothing(|transaction| {
        let call = &begin.key.call;
        let changed = transaction
            .connection
            .prepare_cached(call_sql::BEGIN_ATTEMPT)?
            .execute(params![
                call.tenant_id.as_str(),
                call.service_call_id.to_string(),
                begin.key.execution_id.to_string(),
                begin.started_at.to_string(),
            ])?;
        if changed == 1 {
            outbox::append(transaction, &begin.outbox, Listeners::Anyone)?;
        }
        Ok(changed == 1)
    })
}

/// Finishes one attempt that was started.
pub(super) fn finish(
    transaction: &mut Transaction<'_>,
    finish: &FinishExecution,
    claims: &AttemptClaims,
) -> rusqlite::Result<ExecutionOutcome> {
    if !claims.is_current(&finish.claim) {
        return Ok(ExecutionOutcome::NotThere);
    }
    transaction.all_or_nothing(|transaction| {
        let key = &finish.claim.key;
        let call = &key.call;
        let (response, error_message) = match &finish.outcome {
            Outcome::Succeeded(response) => (Some(response), None),
            Outcome::Failed(error) => (error.details.as_deref(), error.message.as_deref()),
        };
        let changed = transaction
            .connection
            .prepare_cached(call_sql::FINISH_ATTEMPT)?
            .execute(params![
                call.tenant_id.as_str(),
                call.service_call_id.to_string(),
                key.execution_id.to_string(),
                finish.finished_at.to_string(),
                outcome_json(&finish.outcome)?,
                response.map(|response| response.status.to_string()),
                response.map(headers_json).transpose()?,
                response.and_then(|response| response.body_snippet.as_deref()),
                error_message,
            ])?;
        if changed == 0 {
            return Ok(ExecutionOutcome::NotThere);
        }
        outbox::append(transaction, &finish.outbox, Listeners::Anyone)?;
        Ok(ExecutionOutcome::Applied)
    })
}

/// The headers as in the outcome.
fn headers_json(response: &ResponseMeta) -> rusqlite::Result<String> {
    let outcome = serde_json::to_value(response)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    Ok(outcome
        .get("headers")
        .map_or("{}".to_owned(), ToString::to_string))
}

/// Attempts that were started, without those that are being made.
pub(super) fn started(
    connection: &Connection,
    held: &BTreeSet<ExecutionKey>,
    limit: usize,
) -> rusqlite::Result<Vec<(ExecutionKey, CorrelationId)>> {
    let mut statement = connection.prepare_cached(call_sql::STARTED_ATTEMPTS)?;
    let mut rows = statement.query([])?;
    let mut started = Vec::new();
    while started.len() < limit
        && let Some(row) = rows.next()?
    {
        let read = read_key(row).and_then(|key| Ok((key, parsed(row, 3)?)));
        started.extend(readable("attempt", read)?.filter(|(key, _)| !held.contains(key)));
    }
    Ok(started)
}

/// The first three columns of every such query.
pub(super) fn read_key(row: &Row<'_>) -> rusqlite::Result<ExecutionKey> {
    Ok(ExecutionKey {
        call: TimerKey::new(parsed(row, 0)?, parsed(row, 1)?),
        execution_id: parsed(row, 2)?,
    })
}

pub(super) fn entries(
    connection: &Connection,
    call: &TimerKey,
    limit: usize,
) -> rusqlite::Result<Vec<ExecutionEntry>> {
    let id = call.service_call_id.to_string();
    let mut statement = connection.prepare_cached(call_sql::ENTRIES)?;
    let mut rows = statement.query(params![call.tenant_id.as_str(), id, sql_limit(limit)])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.extend(readable("attempt", read_entry(row))?);
    }
    Ok(entries)
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<ExecutionEntry> {
    let body = row.get_ref(7)?.as_str_or_null()?;
    let request = RequestSpec {
        method: parsed(row, 4)?,
        url: parsed(row, 5)?,
        headers: json::<Headers>(row, 6)?,
        body: body
            .map(RequestBody::new)
            .transpose()
            .map_err(|error| unreadable(7, error))?,
    };
    Ok(ExecutionEntry {
        key: read_key(row)?,
        started_at: parsed(row, 3)?,
        request,
        state: read_state(row)?,
    })
}

fn read_state(row: &Row<'_>) -> rusqlite::Result<ExecutionState> {
    Ok(match row.get_ref(8)?.as_str()? {
        "Waiting" => ExecutionState::Waiting,
        "Attempted" => ExecutionState::Attempted,
        _ => ExecutionState::Finished {
            finished_at: parsed(row, 9)?,
            outcome: read_outcome(row.get_ref(10)?.as_str()?)?,
        },
    })
}

/// A response has a status; a failure has a kind.
fn read_outcome(text: &str) -> rusqlite::Result<Outcome> {
    match serde_json::from_str(text) {
        Ok(response) => Ok(Outcome::Succeeded(response)),
        Err(_) => serde_json::from_str(text)
            .map(Outcome::Failed)
            .map_err(|error| unreadable(10, error)),
    }
}
