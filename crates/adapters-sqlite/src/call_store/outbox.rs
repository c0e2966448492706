//! The outbox: messages that are committed with a change and published after it.

use punctual_domain::messages::Listeners;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    DeadLetterMessage, OutboxOutcome, OutboxPosition, OutboxRow, PublishedMessage, Unreadable,
};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use super::outbox_claims::{NewOnes, Read};
use super::rows::{readable, to_json};
use crate::call_sql;
use crate::dead_letters;
use crate::timer_store::rows::{parsed, parsed_or_null, sql_limit};
use crate::writer::Transaction;

/// Appends messages, in their order. Those that nobody receives are published when they are written.
pub(super) fn append(
    transaction: &mut Transaction<'_>,
    messages: &[MessageEnvelope],
    listeners: Listeners,
) -> rusqlite::Result<()> {
    for envelope in messages {
        let created_at = transaction.created_at(envelope.timestamp)?;
        let (message, payload) = (&envelope.message, to_json(envelope)?);
        let is_received = listeners.receive(message);
        let published_at = (!is_received).then(|| envelope.timestamp.to_string());
        transaction
            .connection
            .prepare_cached(call_sql::APPEND)?
            .execute(params![
                message.tenant_id().as_str(),
                message.service_call_id().to_string(),
                message.type_name(),
                payload,
                created_at.to_string(),
                published_at,
            ])?;
        if is_received {
            transaction.appended(created_at, envelope, payload.len())?;
        }
    }
    Ok(())
}

/// Unpublished messages: those that are to be read again, and new ones.
pub(super) fn unpublished(
    connection: &Connection,
    again: &[OutboxPosition],
    new: Option<NewOnes>,
) -> rusqlite::Result<Read> {
    let mut read = Read::default();
    if !again.is_empty() {
        let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED_MESSAGE)?;
        for position in again {
            let message = statement.query_row(params![position.number], read_row);
            let message = readable("message", message.optional())?.flatten();
            read.again.extend(message);
        }
    }
    if let Some(new) = new {
        read.new = unpublished_after(connection, new)?;
    }
    Ok(read)
}

fn unpublished_after(
    connection: &Connection,
    NewOnes { after, limit }: NewOnes,
) -> rusqlite::Result<Vec<OutboxRow>> {
    let connection = connection.unchecked_transaction()?;
    let created_at = after.map_or(String::new(), |after| after.created_at.to_string());
    let mut found: Vec<OutboxRow> = Vec::new();
    let mut take = |mut rows: Rows<'_>| -> rusqlite::Result<()> {
        while found.len() < limit
            && let Some(row) = rows.next()?
        {
            found.extend(readable("message", read_row(row))?);
        }
        Ok(())
    };
    // Many messages may share an instant if the clock was set back: the first query continues within it
    // without rereading the earlier ones.
    if let Some(after) = after {
        let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED_OF_INSTANT)?;
        take(statement.query(params![created_at, after.number])?)?;
    }
    let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED)?;
    take(statement.query(params![created_at])?)?;
    Ok(found)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<OutboxRow> {
    let payload = row.get_ref(2)?.as_bytes()?;
    let envelope = MessageEnvelope::from_json(payload).map_err(|error| Unreadable {
        payload: payload.to_vec(),
        reason: error.to_string(),
    });
    Ok(OutboxRow {
        position: OutboxPosition {
            created_at: parsed(row, 1)?,
            number: row.get(0)?,
        },
        envelope,
    })
}

/// Marks one message as published, in one statement.
pub(super) fn mark(
    transaction: &Transaction<'_>,
    position: OutboxPosition,
    at: Timestamp,
) -> rusqlite::Result<OutboxOutcome> {
    let connection = transaction.connection;
    let marked = connection
        .prepare_cached(call_sql::MARK_MESSAGE)?
        .execute(params![position.number, at.to_string()])?;
    if marked == 1 {
        return Ok(OutboxOutcome::Marked);
    }
    let payload: Option<String> = connection
        .prepare_cached(call_sql::MESSAGE_WITH_SECRETS)?
        .query_row(params![position.number], |row| row.get(0))
        .optional()?;
    let Some(payload) = payload else {
        return Ok(OutboxOutcome::AlreadyDone);
    };
    let kept = match MessageEnvelope::from_json(payload.as_bytes()) {
        Ok(envelope) => to_json(&envelope.redacted())?,
        // What is secret in it is unknown.
        Err(_) => "{}".to_owned(),
    };
    connection
        .prepare_cached(call_sql::MARK_AND_REDACT)?
        .execute(params![position.number, at.to_string(), kept])?;
    Ok(OutboxOutcome::Marked)
}

/// Marks one message and records its dead letter, atomically.
pub(super) fn dead_letter(
    transaction: &mut Transaction<'_>,
    request: &DeadLetterMessage,
) -> rusqlite::Result<OutboxOutcome> {
    transaction.all_or_nothing(|transaction| {
        let outcome = mark(transaction, request.position, request.dead_letter.failed_at)?;
        if outcome == OutboxOutcome::Marked {
            dead_letters::record(transaction.connection, &request.dead_letter)?;
        }
        Ok(outcome)
    })
}

/// Messages about a call. Unreadable rows are skipped.
pub(super) fn about(
    connection: &Connection,
    key: &TimerKey,
    limit: usize,
) -> rusqlite::Result<Vec<PublishedMessage>> {
    let call = key.service_call_id.to_string();
    let mut statement = connection.prepare_cached(call_sql::ABOUT)?;
    let mut rows = statement.query(params![key.tenant_id.as_str(), call])?;
    let mut messages = Vec::new();
    while messages.len() < limit
        && let Some(row) = rows.next()?
    {
        if let Ok(envelope) = MessageEnvelope::from_json(row.get_ref(0)?.as_bytes()?) {
            messages.push(PublishedMessage {
                envelope: envelope.redacted(),
                published_at: parsed_or_null(row, 1)?,
            });
        }
    }
    Ok(messages)
}

pub(super) fn purge(
    transaction: &Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    transaction
        .connection
        .prepare_cached(call_sql::PURGE_MESSAGES)?
        .execute(params![before.to_string(), sql_limit(limit)])
}
