//! Submission: takes the ids and the keys first, since most are new, and reads who has them on conflict.

use std::collections::{HashMap, HashSet};

use punctual_domain::service_call::{
    IdempotencyKey, Receipt, ServiceCall, SubmissionRecord, SubmitOutcome,
};
use punctual_domain::{CorrelationId, ServiceCallId, TimerKey, Timestamp};
use punctual_ports::{NewCall, PortError, PortErrorKind};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Calls;
use super::grouping::{Committed, Taken, Write, Written};
use super::outbox::Messages;
use super::rows::{Columns, PlacedKeys, place};
use crate::lane::{Parameter, Session, Statement, beginning, rest, roll_back};
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column, instant, key};
use crate::values::Instant;

const OPERATION: &str = "submit service calls";

impl Write for NewCall {
    type Outcome = SubmitOutcome;
    const OPERATION: &'static str = OPERATION;

    fn key(&self) -> &TimerKey {
        &self.call.details().key
    }

    fn takes_too(&self) -> Option<Taken> {
        let tenant = self.key().tenant_id.clone();
        let key = self.idempotency_key.as_ref();
        key.map(|key| Taken::IdempotencyKey(tenant, key.as_str().to_owned()))
    }

    fn bytes(&self) -> usize {
        let body = self.call.details().request.body.as_ref();
        body.map_or(0, |body| body.as_str().len()) + 1_024 * (1 + self.outbox.len())
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(submit(calls, session, begin, group))
    }
}

async fn submit(
    calls: &Calls,
    session: &Session,
    begin: &'static str,
    group: &[NewCall],
) -> Result<Vec<Written<NewCall>>, Failure> {
    let takes = Takes::of(group);
    let no_clock = None::<Instant>;
    let statements: [Statement<'_>; 2] = [
        (&calls.sql.take, takes.params()),
        (&calls.sql.clock, vec![(&no_clock, Type::TIMESTAMPTZ)]),
    ];
    let answers = beginning(session, begin, &statements).await?;
    let new = match New::of(calls, group, &answers) {
        Ok(new) => new,
        Err(failure) => {
            roll_back(&session.client).await;
            return Err(failure);
        }
    };
    let answers = rest(&session.client, &new.statements(calls)).await?;
    let has_taken = new.taken.len() > 0;
    let of_others = answers.last().filter(|_| has_taken);
    let of_others = of_others.map_or(&[][..], Vec::as_slice);
    let stored = Stored::read(of_others, &new.taken_places)?;
    let outcome = |(place, call): (usize, &NewCall)| {
        if new.accepted.contains(&place) {
            return Ok(SubmitOutcome::Accepted(call.receipt()));
        }
        let record = |by_key: bool| stored.get(&(place, by_key)).map(Stored::record);
        match call.decide(record(false), record(true)) {
            // Whatever it was in conflict with was removed meanwhile.
            SubmitOutcome::Accepted(_) => Err(PortError::new(
                PortErrorKind::Busy,
                OPERATION,
                "the conflicting submission is being removed: try again",
            )),
            outcome => Ok(outcome),
        }
    };
    Ok(group.iter().enumerate().map(outcome).collect())
}

/// What is to be taken, as arrays.
#[derive(Default)]
struct Takes {
    keys: Keys,
    idempotency_keys: Vec<Option<String>>,
    fingerprints: Vec<Vec<u8>>,
    correlations: Vec<Uuid>,
    submitted: Vec<Instant>,
}

impl Takes {
    fn of(group: &[NewCall]) -> Self {
        let mut takes = Self::default();
        for new in group {
            let details = new.call.details();
            takes.keys.add(&details.key);
            takes.idempotency_keys.push(text_of(new));
            takes.fingerprints.push(new.fingerprint.0.to_vec());
            takes.correlations.push(details.correlation_id.as_uuid());
            takes.submitted.push(Instant(details.submitted_at));
        }
        takes
    }

    fn params(&self) -> Vec<Parameter<'_>> {
        let mut params = self.keys.params();
        let others: [Parameter<'_>; 4] = [
            (&self.idempotency_keys, Type::TEXT_ARRAY),
            (&self.fingerprints, Type::BYTEA_ARRAY),
            (&self.correlations, Type::UUID_ARRAY),
            (&self.submitted, Type::TIMESTAMPTZ_ARRAY),
        ];
        params.extend(others);
        params
    }
}

fn text_of(new: &NewCall) -> Option<String> {
    let key = new.idempotency_key.as_ref();
    key.map(|key| IdempotencyKey::as_str(key).to_owned())
}

/// The calls of a group that are new, and the keys of the others.
struct New {
    accepted: HashSet<usize>,
    columns: Columns,
    names: Vec<String>,
    submitted: Vec<Instant>,
    due: Vec<Instant>,
    correlations: Vec<Uuid>,
    commands: Vec<Uuid>,
    tags: Tags,
    messages: Messages,
    taken: PlacedKeys,
    taken_places: Vec<usize>,
    taken_keys: Vec<Option<String>>,
}

#[derive(Default)]
struct Tags {
    keys: Keys,
    texts: Vec<String>,
    due: Vec<Instant>,
}

impl New {
    fn of(calls: &Calls, group: &[NewCall], answers: &[Vec<Row>]) -> Result<Self, Failure> {
        let [taken, clock] = answers else {
            return Err(Failure::Unreadable("an answer is missing".to_owned()));
        };
        let taken: HashSet<TimerKey> = taken.iter().map(key).collect::<Result<_, _>>()?;
        let clock = clock.first().map(|row| instant(row, "clock"));
        let clock = clock.unwrap_or(Ok(Timestamp::MIN))?;
        let others = || {
            group
                .iter()
                .enumerate()
                .filter(|(_, it)| !taken.contains(it.key()))
        };
        let mut new = Self {
            accepted: HashSet::new(),
            columns: Columns::default(),
            names: Vec::new(),
            submitted: Vec::new(),
            due: Vec::new(),
            correlations: Vec::new(),
            commands: Vec::new(),
            tags: Tags::default(),
            messages: Messages::default(),
            taken: others().map(|(_, it)| it.key()).collect(),
            taken_places: others().map(|(place, _)| place).collect(),
            taken_keys: others().map(|(_, it)| text_of(it)).collect(),
        };
        for (place, call) in group.iter().enumerate() {
            if taken.contains(call.key()) {
                let submitted_at = call.call.details().submitted_at;
                let given = calls.time.given(submitted_at);
                new.add(place, call, given.map_or(clock, |Instant(at)| at))?;
            }
        }
        Ok(new)
    }

    fn add(&mut self, place: usize, new: &NewCall, clock: Timestamp) -> Result<(), Failure> {
        let scheduled;
        let new = match &new.call {
            ServiceCall::Running(call) if clock < call.details.due_at => {
                scheduled = new.clone().by_the_clock_of_the_store(clock);
                &scheduled
            }
            _ => new,
        };
        let details = new.call.details();
        let due_at = Instant(details.due_at);
        self.accepted.insert(place);
        self.columns.add(&new.call)?;
        self.names.push(details.name.as_str().to_owned());
        self.submitted.push(Instant(details.submitted_at));
        self.due.push(due_at);
        self.correlations.push(details.correlation_id.as_uuid());
        self.commands.push(details.command_id.as_uuid());
        for tag in details.tags.iter() {
            self.tags.keys.add(&details.key);
            self.tags.texts.push(tag.as_str().to_owned());
            self.tags.due.push(due_at);
        }
        self.messages.add(place, &new.outbox, new.listeners)
    }

    fn statements<'a>(&'a self, calls: &'a Calls) -> Vec<Statement<'a>> {
        let sql = &calls.sql;
        let mut statements: Vec<Statement<'a>> = Vec::new();
        if !self.accepted.is_empty() {
            let mut params = self.columns.params();
            let others: [Parameter<'_>; 5] = [
                (&self.names, Type::TEXT_ARRAY),
                (&self.submitted, Type::TIMESTAMPTZ_ARRAY),
                (&self.due, Type::TIMESTAMPTZ_ARRAY),
                (&self.correlations, Type::UUID_ARRAY),
                (&self.commands, Type::UUID_ARRAY),
            ];
            params.extend(others);
            statements.push((&sql.insert_calls, params));
        }
        if !self.tags.texts.is_empty() {
            let mut params = self.tags.keys.params();
            params.push((&self.tags.texts, Type::TEXT_ARRAY));
            params.push((&self.tags.due, Type::TIMESTAMPTZ_ARRAY));
            statements.push((&sql.insert_tags, params));
        }
        if !self.messages.is_empty() {
            statements.push((&sql.append, self.messages.params()));
        }
        if self.taken.len() > 0 {
            let mut params = self.taken.params();
            params.push((&self.taken_keys, Type::TEXT_ARRAY));
            statements.push((&sql.taken, params));
        }
        statements
    }
}

/// A stored submission.
struct Stored {
    receipt: Receipt,
    idempotency_key: Option<String>,
    fingerprint: Vec<u8>,
}

impl Stored {
    /// By the place of the new one, and whether it has its id or its key.
    fn read(rows: &[Row], places: &[usize]) -> Result<HashMap<(usize, bool), Self>, Failure> {
        let read = |row: &Row| {
            let stored = Self {
                receipt: Receipt {
                    service_call_id: ServiceCallId::from_uuid(column(row, "service_call_id")?),
                    correlation_id: CorrelationId::from_uuid(column(row, "correlation_id")?),
                    submitted_at: instant(row, "submitted_at")?,
                },
                idempotency_key: column(row, "idempotency_key")?,
                fingerprint: column(row, "body_sha256")?,
            };
            let place = places.get(place(row)?).copied().unwrap_or_default();
            Ok(((place, column(row, "is_by_key")?), stored))
        };
        rows.iter().map(read).collect()
    }

    fn record(&self) -> SubmissionRecord<'_> {
        SubmissionRecord {
            receipt: self.receipt,
            idempotency_key: self.idempotency_key.as_deref(),
            fingerprint: &self.fingerprint,
        }
    }
}
