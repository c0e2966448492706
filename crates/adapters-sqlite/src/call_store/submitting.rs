//! Submission: takes the id and the key first, since most are new, and reads who has them on conflict.

use punctual_domain::service_call::{IdempotencyKey, SubmissionRecord};
use punctual_domain::{ServiceCallId, TimerKey};
use punctual_ports::{NewCall, Receipt, SubmitOutcome};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::outbox;
use super::rows::Columns;
use crate::call_sql;
use crate::timer_store::rows::{by_key, parsed};
use crate::writer::Transaction;

/// Stores one call.
pub(super) fn submit(
    transaction: &mut Transaction<'_>,
    new: &NewCall,
) -> rusqlite::Result<SubmitOutcome> {
    transaction.all_or_nothing(|transaction| {
        if !take(transaction.connection, new)? {
            return repeated_or_conflict(transaction.connection, new);
        }
        let request_bytes = insert(transaction.connection, new)?;
        outbox::append(transaction, &new.outbox, new.listeners)?;
        transaction.call_accepted(request_bytes);
        Ok(SubmitOutcome::Accepted(new.receipt()))
    })
}

fn take(connection: &Connection, new: &NewCall) -> rusqlite::Result<bool> {
    let details = new.call.details();
    let taken = connection.prepare_cached(call_sql::TAKE)?.execute(params![
        details.key.tenant_id.as_str(),
        details.key.service_call_id.to_string(),
        new.idempotency_key.as_ref().map(IdempotencyKey::as_str),
        new.fingerprint.0,
        details.correlation_id.to_string(),
        details.submitted_at.to_string(),
    ])?;
    Ok(taken == 1)
}

/// Stores the call and returns the size of its request.
fn insert(connection: &Connection, new: &NewCall) -> rusqlite::Result<usize> {
    let details = new.call.details();
    let columns = Columns::of(&new.call)?;
    let (tenant, call) = by_key(&details.key);
    let due_at = details.due_at.to_string();
    connection
        .prepare_cached(call_sql::INSERT_CALL)?
        .execute(params![
            tenant,
            call,
            columns.status,
            columns.request_spec,
            columns.next_check_at,
            columns.started_at,
            columns.finished_at,
            columns.outcome_meta,
            columns.execution_id,
            columns.caused_by,
            columns.timeout_ms,
            columns.attempt_began_at,
            columns.dispatched_at,
            details.name.as_str(),
            details.submitted_at.to_string(),
            due_at,
            details.correlation_id.to_string(),
            details.command_id.to_string(),
            columns.dispatch_count,
        ])?;
    let mut add_tag = connection.prepare_cached(call_sql::INSERT_TAG)?;
    for tag in details.tags.iter() {
        add_tag.execute(params![tenant, call, tag.as_str(), due_at])?;
    }
    Ok(columns.request_spec.len())
}

/// A stored submission.
struct Submission {
    receipt: Receipt,
    idempotency_key: Option<String>,
    fingerprint: Vec<u8>,
}

impl Submission {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            receipt: Receipt {
                service_call_id: parsed::<ServiceCallId>(row, 0)?,
                correlation_id: parsed(row, 3)?,
                submitted_at: parsed(row, 4)?,
            },
            idempotency_key: row.get(1)?,
            fingerprint: row.get(2)?,
        })
    }

    fn record(&self) -> SubmissionRecord<'_> {
        SubmissionRecord {
            receipt: self.receipt,
            idempotency_key: self.idempotency_key.as_deref(),
            fingerprint: &self.fingerprint,
        }
    }
}

/// The outcome of a submission whose id or key is taken.
fn repeated_or_conflict(connection: &Connection, new: &NewCall) -> rusqlite::Result<SubmitOutcome> {
    let key = &new.call.details().key;
    let of_id = of_id(connection, key)?;
    let of_key = match &new.idempotency_key {
        Some(idempotency_key) => of_key(connection, key, idempotency_key)?,
        None => None,
    };
    let [of_id, of_key] = [&of_id, &of_key].map(|it| it.as_ref().map(Submission::record));
    match new.decide(of_id, of_key) {
        // The conflict was with one of the two.
        SubmitOutcome::Accepted(_) => Err(not_found()),
        outcome => Ok(outcome),
    }
}

fn of_id(connection: &Connection, key: &TimerKey) -> rusqlite::Result<Option<Submission>> {
    connection
        .prepare_cached(call_sql::TAKEN_ID)?
        .query_row(by_key(key), Submission::read)
        .optional()
}

fn of_key(
    connection: &Connection,
    key: &TimerKey,
    idempotency_key: &IdempotencyKey,
) -> rusqlite::Result<Option<Submission>> {
    let tenant = key.tenant_id.as_str();
    connection
        .prepare_cached(call_sql::TAKEN_KEY)?
        .query_row(params![tenant, idempotency_key.as_str()], Submission::read)
        .optional()
}

fn not_found() -> rusqlite::Error {
    let what = "the conflicting submission cannot be found";
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, what.into())
}
