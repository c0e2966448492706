//! The outbox: messages that are committed with a change and published after it.
//!
//! Claims are rows of an unlogged table. One instance claims at a time, for as long as its statement takes:
//! otherwise two could claim messages about one call at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::RequestSpec;
use punctual_domain::{Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    DeadLetterMessage, OutboxBatch, OutboxOutcome, OutboxPosition, OutboxRow, PortError,
    PublishLater, PublishedMessage, Unreadable,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Calls;
use super::rows::{readable, to_json};
use crate::dead_letters::Letters;
use crate::lane::{
    BEGIN_DURABLE, BEGIN_IMPATIENT, BEGIN_READ, Parameter, Session, Statement, transaction,
};
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column, instant, instant_or_null};
use crate::values::{Instant, sql_limit, sql_millis};

/// Of claims of messages, among the locks that programs give numbers to.
const TURN: i32 = 0x5045_0001;

/// Messages to append, as the first parameters of a statement.
#[derive(Default)]
pub(super) struct Messages {
    places: Vec<i64>,
    keys: Keys,
    types: Vec<&'static str>,
    payloads: Vec<String>,
    created: Vec<Instant>,
    published: Vec<Option<Instant>>,
}

impl Messages {
    /// Adds the messages of what is in a place of its batch. Those that nobody receives are published when
    /// they are written.
    pub(super) fn add(
        &mut self,
        place: usize,
        messages: &[MessageEnvelope],
        listeners: Listeners,
    ) -> Result<(), Failure> {
        let mut created_at = Timestamp::MIN;
        for envelope in messages {
            let message = &envelope.message;
            created_at = created_at.max(envelope.timestamp);
            let payload = match message {
                // The row of the call has the request, as long as it is to be made.
                Message::StartExecution(_) => to_json(&envelope.clone().redacted())?,
                _ => to_json(envelope)?,
            };
            let key = TimerKey::new(message.tenant_id().clone(), message.service_call_id());
            self.places.push(i64::try_from(place).unwrap_or(i64::MAX));
            self.keys.add(&key);
            self.types.push(message.type_name());
            self.payloads.push(payload);
            self.created.push(Instant(created_at));
            let is_received = listeners.receive(message);
            self.published
                .push((!is_received).then_some(Instant(envelope.timestamp)));
        }
        Ok(())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn params(&self) -> Vec<Parameter<'_>> {
        let mut params: Vec<Parameter<'_>> = vec![(&self.places, Type::INT8_ARRAY)];
        params.extend(self.keys.params());
        let others: [Parameter<'_>; 4] = [
            (&self.types, Type::TEXT_ARRAY),
            (&self.payloads, Type::TEXT_ARRAY),
            (&self.created, Type::TIMESTAMPTZ_ARRAY),
            (&self.published, Type::TIMESTAMPTZ_ARRAY),
        ];
        params.extend(others);
        params
    }
}

/// What a claim found.
struct Claimed {
    rows: Vec<OutboxRow>,
    /// Commands whose call has its outcome, or is not there any more.
    nothing_to_start: Vec<OutboxPosition>,
    /// How long until the next claim ends.
    next_in: Option<Duration>,
}

/// Claims messages, and publishes to nobody what there is nothing to start for.
pub(super) async fn claim(
    calls: &Arc<Calls>,
    now: Timestamp,
    limit: usize,
    lease: Duration,
) -> Result<OutboxBatch, PortError> {
    let claiming = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&claiming);
        Box::pin(async move { claim_on(&calls, &session, now, limit, lease).await })
    };
    let claimed = calls.outbox.run("claim messages", work).await?;
    if !claimed.nothing_to_start.is_empty() {
        for marked in mark_published(calls, claimed.nothing_to_start, now).await? {
            marked?;
        }
    }
    Ok(OutboxBatch {
        rows: claimed.rows,
        next_at: claimed.next_in.map(|it| now.saturating_add(it)),
    })
}

async fn claim_on(
    calls: &Calls,
    session: &Session,
    now: Timestamp,
    limit: usize,
    lease: Duration,
) -> Result<Claimed, Failure> {
    let (clock, limit, lease) = (calls.time.given(now), sql_limit(limit), sql_millis(lease));
    let clock_param = || (&clock as _, Type::TIMESTAMPTZ);
    let sql = &calls.sql;
    let statements: [Statement<'_>; 3] = [
        (&sql.await_turn, calls.turn_params(&TURN)),
        (
            &sql.claim_messages,
            vec![
                clock_param(),
                (&limit, Type::INT8),
                (&calls.instance, Type::UUID),
                (&lease, Type::FLOAT8),
            ],
        ),
        (&sql.next_claim_end, vec![clock_param()]),
    ];
    let answers = transaction(session, BEGIN_IMPATIENT, &statements).await?;
    let [_, messages, next] = answers.as_slice() else {
        return Err(Failure::Unreadable("an answer is missing".to_owned()));
    };
    let mut claimed = Claimed {
        rows: Vec::with_capacity(messages.len()),
        nothing_to_start: Vec::new(),
        next_in: None,
    };
    for row in messages {
        let Some(message) = readable("message", read_row(row)) else {
            continue;
        };
        match complete(message, row) {
            Ok(message) => claimed.rows.push(message),
            Err(position) => claimed.nothing_to_start.push(position),
        }
    }
    if let Some(row) = next.first()
        && let Some(end) = instant_or_null(row, "lease_until")?
    {
        claimed.next_in = Some(end.since(instant(row, "clock")?));
    }
    Ok(claimed)
}

fn read_row(row: &Row) -> Result<OutboxRow, Failure> {
    let payload: &str = column(row, "event_payload")?;
    let envelope = MessageEnvelope::from_json(payload.as_bytes()).map_err(|error| Unreadable {
        payload: payload.as_bytes().to_vec(),
        reason: error.to_string(),
    });
    Ok(OutboxRow {
        position: OutboxPosition {
            created_at: instant(row, "created_at")?,
            number: column(row, "id")?,
        },
        envelope,
    })
}

/// Gives a command the request of its call, which is not stored twice; its position if there is none to make.
fn complete(mut message: OutboxRow, row: &Row) -> Result<OutboxRow, OutboxPosition> {
    if let Ok(envelope) = &mut message.envelope
        && let Message::StartExecution(command) = &mut envelope.message
    {
        let request: Result<Option<&str>, Failure> = column(row, "request_spec");
        let Ok(Some(request)) = request else {
            return Err(message.position);
        };
        if let Ok(request) = serde_json::from_str::<RequestSpec>(request) {
            command.request_spec = request;
        } else {
            let payload = envelope.clone().redacted().to_json().unwrap_or_default();
            let reason = "the request of its call cannot be read".to_owned();
            message.envelope = Err(Unreadable { payload, reason });
        }
    }
    Ok(message)
}

/// Ends claims at another time.
pub(super) async fn retry_later(
    calls: &Arc<Calls>,
    batch: Vec<PublishLater>,
    now: Timestamp,
) -> Result<(), PortError> {
    if batch.is_empty() {
        return Ok(());
    }
    let parking = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&parking);
        let latest: HashMap<i64, f64> = batch
            .iter()
            .map(|it| (it.position.number, sql_millis(it.after)))
            .collect();
        Box::pin(async move {
            let clock = calls.time.given(now);
            let (numbers, millis): (Vec<i64>, Vec<f64>) = latest.into_iter().unzip();
            let params: Vec<Parameter<'_>> = vec![
                (&clock, Type::TIMESTAMPTZ),
                (&calls.instance, Type::UUID),
                (&numbers, Type::INT8_ARRAY),
                (&millis, Type::FLOAT8_ARRAY),
            ];
            let statement: [Statement<'_>; 1] = [(&calls.sql.park_messages, params)];
            transaction(&session, BEGIN_IMPATIENT, &statement).await?;
            Ok(())
        })
    };
    calls.outbox.run("leave messages for later", work).await
}

/// Marks messages as published, and ends their claims.
pub(super) async fn mark_published(
    calls: &Arc<Calls>,
    batch: Vec<OutboxPosition>,
    at: Timestamp,
) -> Result<Vec<Result<OutboxOutcome, PortError>>, PortError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Arc<Vec<i64>> = Arc::new(batch.iter().map(|it| it.number).collect());
    let marking = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, numbers) = (Arc::clone(&marking), Arc::clone(&numbers));
        Box::pin(async move {
            let at = Instant(at);
            let numbers = || (numbers.as_ref() as _, Type::INT8_ARRAY);
            let statements: [Statement<'_>; 2] = [
                (
                    &calls.sql.mark_messages,
                    vec![numbers(), (&at, Type::TIMESTAMPTZ)],
                ),
                (&calls.sql.end_message_claims, vec![numbers()]),
            ];
            let answers = transaction(&session, BEGIN_IMPATIENT, &statements).await?;
            let marked = answers.first().into_iter().flatten();
            marked.map(|row| column::<i64>(row, "id")).collect()
        })
    };
    let mut marked: HashSet<i64> = calls.outbox.run("mark messages as published", work).await?;
    let outcome = |position: &OutboxPosition| {
        Ok(if marked.remove(&position.number) {
            OutboxOutcome::Marked
        } else {
            OutboxOutcome::AlreadyDone
        })
    };
    Ok(batch.iter().map(outcome).collect())
}

/// Marks a message and records its dead letter, in one transaction.
pub(super) async fn dead_letter(
    calls: &Arc<Calls>,
    message: DeadLetterMessage,
) -> Result<OutboxOutcome, PortError> {
    let burying = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let calls = Arc::clone(&burying);
        let letters: Letters = std::iter::once(&message.dead_letter).collect();
        let numbers = vec![message.position.number];
        let failed_at = Instant(message.dead_letter.failed_at);
        Box::pin(async move {
            let mut params: Vec<Parameter<'_>> =
                vec![(&numbers[0], Type::INT8), (&failed_at, Type::TIMESTAMPTZ)];
            params.extend(letters.params());
            let statements: [Statement<'_>; 2] = [
                (&calls.sql.dead_letter_message, params),
                (
                    &calls.sql.end_message_claims,
                    vec![(&numbers, Type::INT8_ARRAY)],
                ),
            ];
            let answers = transaction(&session, BEGIN_DURABLE, &statements).await?;
            let is_marked = answers.first().is_some_and(|rows| !rows.is_empty());
            Ok(if is_marked {
                OutboxOutcome::Marked
            } else {
                OutboxOutcome::AlreadyDone
            })
        })
    };
    calls.writer().run("dead-letter a message", work).await
}

/// The messages about a call. Unreadable rows are left out.
pub(super) async fn about(
    calls: &Arc<Calls>,
    key: TimerKey,
    limit: usize,
) -> Result<Vec<PublishedMessage>, PortError> {
    let reading = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, key) = (Arc::clone(&reading), key.clone());
        Box::pin(async move {
            let (tenant, call): (&str, Uuid) =
                (key.tenant_id.as_str(), key.service_call_id.as_uuid());
            let limit = sql_limit(limit);
            let params: Vec<Parameter<'_>> = vec![
                (&tenant, Type::TEXT),
                (&call, Type::UUID),
                (&limit, Type::INT8),
            ];
            let statement: [Statement<'_>; 1] = [(&calls.sql.about, params)];
            let rows = transaction(&session, BEGIN_READ, &statement).await?;
            let read = |row: &Row| {
                let payload: &str = column(row, "event_payload")?;
                let Ok(envelope) = MessageEnvelope::from_json(payload.as_bytes()) else {
                    return Ok(None);
                };
                Ok(Some(PublishedMessage {
                    envelope: envelope.redacted(),
                    published_at: instant_or_null(row, "published_at")?,
                }))
            };
            let messages: Result<Vec<_>, Failure> = rows.iter().flatten().map(read).collect();
            Ok(messages?.into_iter().flatten().collect())
        })
    };
    calls
        .reader()
        .run("find messages about a service call", work)
        .await
}
