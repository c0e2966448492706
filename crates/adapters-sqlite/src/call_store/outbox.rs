//! The outbox: messages that are committed with a change and published after it.

use std::collections::BTreeSet;

use punctual_domain::messages::Listeners;
use punctual_domain::{Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    DeadLetterMessage, OutboxOutcome, OutboxPosition, OutboxRow, PortError, PublishedMessage,
    Unreadable,
};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use super::outbox_claims::{NewOnes, Read, ToMark};
use super::rows::{json, readable, to_json};
use crate::call_sql;
use crate::dead_letters;
use crate::port_errors::{concerns_the_item, port_error};
use crate::timer_store::rows::{by_key, parsed, parsed_or_null, sql_limit};
use crate::writer::Transaction;

pub(super) const MARK: &str = "mark messages as published";

/// Appends messages, in their order. Those that nobody receives are published when they are written.
pub(super) fn append(
    transaction: &mut Transaction<'_>,
    messages: &[MessageEnvelope],
    listeners: Listeners,
) -> rusqlite::Result<()> {
    for envelope in messages {
        let created_at = transaction.created_at(envelope.timestamp)?;
        let message = &envelope.message;
        let is_received = listeners.receive(message);
        let published_at = (!is_received).then(|| envelope.timestamp.to_string());
        let (payload, secret_bytes) = match message {
            // The row of the call has the request, as long as it is to be made.
            Message::StartExecution(command) => {
                let body = command.request_spec.body.as_ref();
                let bytes = body.map_or(0, |body| body.as_str().len());
                (to_json(&envelope.clone().redacted())?, bytes)
            }
            _ => (to_json(envelope)?, 0),
        };
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
        let bytes = payload.len().saturating_add(secret_bytes);
        transaction.appended(created_at, is_received.then_some(envelope), bytes)?;
    }
    Ok(())
}

/// Unpublished messages: those that are to be read again, and new ones.
pub(super) fn unpublished(
    connection: &Connection,
    again: &[OutboxPosition],
    new: Option<NewOnes>,
) -> rusqlite::Result<Read> {
    // Messages and their calls are those of one instant.
    let connection = connection.unchecked_transaction()?;
    let mut read = Read::default();
    if !again.is_empty() {
        let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED_MESSAGE)?;
        for position in again {
            let mut rows = statement.query(params![position.number])?;
            if let Some(row) = rows.next()? {
                let found = take(&connection, row, &mut read)?;
                read.again.extend(found);
            }
        }
    }
    if let Some(new) = new {
        unpublished_after(&connection, new, &mut read)?;
    }
    Ok(read)
}

fn unpublished_after(
    connection: &Connection,
    NewOnes { after, limit }: NewOnes,
    read: &mut Read,
) -> rusqlite::Result<()> {
    let created_at = after.map_or(String::new(), |after| after.created_at.to_string());
    let mut take_all = |mut rows: Rows<'_>| -> rusqlite::Result<()> {
        while read.new.len() < limit
            && let Some(row) = rows.next()?
        {
            let found = take(connection, row, read)?;
            read.new.extend(found);
        }
        Ok(())
    };
    // Many messages may share an instant if the clock was set back: the first query continues within it
    // without rereading the earlier ones.
    if let Some(after) = after {
        let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED_OF_INSTANT)?;
        take_all(statement.query(params![created_at, after.number])?)?;
    }
    let mut statement = connection.prepare_cached(call_sql::UNPUBLISHED)?;
    take_all(statement.query(params![created_at])?)
}

/// Reads a message, unless nobody is to receive it. A command gets the request of its call, which is not
/// stored twice.
fn take(
    connection: &Connection,
    row: &Row<'_>,
    read: &mut Read,
) -> rusqlite::Result<Option<OutboxRow>> {
    let Some(mut message) = readable("message", read_row(row))? else {
        return Ok(None);
    };
    let is_clean = match &message.envelope {
        Ok(envelope) => !is_command(envelope) || envelope.clone().redacted() == *envelope,
        // What is secret in it is unknown.
        Err(_) => false,
    };
    if !is_clean {
        read.unclean.insert(message.position);
    }
    if let Ok(envelope) = &mut message.envelope
        && let Message::StartExecution(command) = &mut envelope.message
    {
        let request = connection
            .prepare_cached(call_sql::REQUEST_TO_MAKE)?
            .query_row(by_key(&command.key()), |row| json(row, 0))
            .optional();
        match readable("service call", request)? {
            Some(Some(request)) => command.request_spec = request,
            Some(None) => {
                read.nothing_to_start.push(message.position);
                return Ok(None);
            }
            None => {
                let payload = envelope.clone().redacted().to_json().unwrap_or_default();
                let reason = "the request of its call cannot be read".to_owned();
                message.envelope = Err(Unreadable { payload, reason });
            }
        }
    }
    Ok(Some(message))
}

const fn is_command(envelope: &MessageEnvelope) -> bool {
    matches!(envelope.message, Message::StartExecution(_))
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

/// Marks messages as published: those that are known to have no secrets with one statement, each of the
/// others by itself.
pub(super) fn mark_all(
    transaction: &Transaction<'_>,
    batch: &[ToMark],
    at: Timestamp,
) -> rusqlite::Result<Vec<Result<OutboxOutcome, PortError>>> {
    let marked = match mark_clean(transaction, batch, at) {
        // The host refuses one of them: each by itself.
        Err(error) if is_of_one(transaction, &error) => None,
        marked => Some(marked?),
    };
    let mark_one = |it: &ToMark| match &marked {
        Some(marked) if it.is_clean => Ok(marked.contains(&it.position.number)),
        _ => mark(transaction, it.position, at),
    };
    let mut seen = BTreeSet::new();
    let answer = |it: &ToMark| match mark_one(it) {
        Ok(true) if seen.insert(it.position.number) => Ok(Ok(OutboxOutcome::Marked)),
        Ok(_) => Ok(Ok(OutboxOutcome::AlreadyDone)),
        Err(error) if is_of_one(transaction, &error) => Ok(Err(port_error(MARK, error))),
        Err(error) => Err(error),
    };
    batch.iter().map(answer).collect()
}

fn is_of_one(transaction: &Transaction<'_>, error: &rusqlite::Error) -> bool {
    concerns_the_item(error) && !transaction.connection.is_autocommit()
}

/// The numbers of those that are marked now.
fn mark_clean(
    transaction: &Transaction<'_>,
    batch: &[ToMark],
    at: Timestamp,
) -> rusqlite::Result<BTreeSet<i64>> {
    let clean = batch.iter().filter(|it| it.is_clean);
    let numbers: Vec<i64> = clean.map(|it| it.position.number).collect();
    if numbers.is_empty() {
        return Ok(BTreeSet::new());
    }
    let connection = transaction.connection;
    let mut statement = connection.prepare_cached(call_sql::MARK_MESSAGES)?;
    let marked = statement.query_map(params![to_json(&numbers)?, at.to_string()], |row| {
        row.get(0)
    });
    marked?.collect()
}

/// Marks one message as published; false if it is already.
fn mark(
    transaction: &Transaction<'_>,
    position: OutboxPosition,
    at: Timestamp,
) -> rusqlite::Result<bool> {
    let connection = transaction.connection;
    let marked = connection
        .prepare_cached(call_sql::MARK_MESSAGE)?
        .execute(params![position.number, at.to_string()])?;
    if marked == 1 {
        return Ok(true);
    }
    let payload: Option<String> = connection
        .prepare_cached(call_sql::MESSAGE_WITH_SECRETS)?
        .query_row(params![position.number], |row| row.get(0))
        .optional()?;
    let Some(payload) = payload else {
        return Ok(false);
    };
    let kept = match MessageEnvelope::from_json(payload.as_bytes()) {
        Ok(envelope) => to_json(&envelope.redacted())?,
        // What is secret in it is unknown.
        Err(_) => "{}".to_owned(),
    };
    connection
        .prepare_cached(call_sql::MARK_AND_REDACT)?
        .execute(params![position.number, at.to_string(), kept])?;
    Ok(true)
}

/// Marks one message and records its dead letter, atomically.
pub(super) fn dead_letter(
    transaction: &mut Transaction<'_>,
    request: &DeadLetterMessage,
) -> rusqlite::Result<OutboxOutcome> {
    transaction.all_or_nothing(|transaction| {
        if !mark(transaction, request.position, request.dead_letter.failed_at)? {
            return Ok(OutboxOutcome::AlreadyDone);
        }
        dead_letters::record(transaction.connection, &request.dead_letter)?;
        Ok(OutboxOutcome::Marked)
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
