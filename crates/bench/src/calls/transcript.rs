//! What an engine has written about calls, to be written again by the bare loop: the same rows, byte
//! for byte, with every text made beforehand.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use rusqlite::types::Value;
use rusqlite::{Connection, Params, Row, params_from_iter};

use crate::Outcome;
use crate::bare::Bare;

/// All calls of a file, in the order of their submission.
pub(crate) struct Transcript {
    pub(super) calls: Vec<CallRecord>,
}

/// All rows of one call, as they are in the end.
pub(super) struct CallRecord {
    /// Tenant and id, the key of all of them.
    pub(super) key: [Value; 2],
    /// Hash, correlation and time.
    pub(super) submission: Vec<Value>,
    /// Name, times, ids, the request, the outcome, and its version.
    pub(super) call: Vec<Value>,
    pub(super) tags: Vec<Value>,
    /// Execution id, times, what is shown of the request and of the answer.
    pub(super) attempt: Vec<Value>,
    /// Type, payload and time of each, in order.
    pub(super) messages: Vec<[Value; 3]>,
    /// The request, as it goes over the wire.
    pub(super) request: Rc<[u8]>,
}

impl CallRecord {
    /// The key, and what follows it in a statement.
    pub(super) fn with<'a>(&'a self, others: impl IntoIterator<Item = &'a Value>) -> impl Params {
        params_from_iter(self.key.iter().chain(others))
    }

    /// Whether the call was written when its attempt had started, and not only when that was over: an
    /// engine that hears of both at once writes it once.
    pub(super) fn heard_of_the_beginning(&self) -> bool {
        const CHANGES: i64 = 2;
        self.call[9] == Value::Integer(1 + CHANGES)
    }
}

type ByKey<T> = HashMap<(String, String), T>;

/// What of a table belongs to each call; the first two columns are the key.
fn by_key(connection: &Connection, sql: &str) -> Outcome<ByKey<Vec<Vec<Value>>>> {
    let mut select = connection.prepare(sql)?;
    let columns = select.column_count();
    let mut rows = select.query([])?;
    let mut found: ByKey<Vec<Vec<Value>>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let others = (2..columns).map(|at| row.get(at));
        let others = others.collect::<Result<_, _>>()?;
        found.entry(key(row)?).or_default().push(others);
    }
    Ok(found)
}

fn key(row: &Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get(0)?, row.get(1)?))
}

const KEYS: &str = "SELECT tenant_id, service_call_id FROM submissions ORDER BY rowid";
const SUBMISSIONS: &str = "\
    SELECT tenant_id, service_call_id, body_sha256, correlation_id, submitted_at FROM submissions";
const CALLS: &str = "\
    SELECT tenant_id, service_call_id, name, submitted_at, due_at, correlation_id, command_id, \
        request_spec, started_at, finished_at, outcome_meta, version FROM service_calls";
const TAGS: &str = "SELECT tenant_id, service_call_id, tag FROM service_call_tags";
const ATTEMPTS: &str = "\
    SELECT tenant_id, service_call_id, execution_id, started_at, correlation_id, timeout_ms, host, \
        request_url, request_method, request_headers, request_body, finished_at, outcome_meta, \
        response_status, response_headers, response_body FROM http_execution_log";
const MESSAGES: &str = "\
    SELECT tenant_id, aggregate_id, event_type, event_payload, created_at FROM outbox ORDER BY id";

impl Transcript {
    /// Reads a file whose calls were all made, or were all only submitted.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let connection = &Bare::open(path)?.connection;
        let mut submissions = by_key(connection, SUBMISSIONS)?;
        let mut calls = by_key(connection, CALLS)?;
        let mut tags = by_key(connection, TAGS)?;
        let mut attempts = by_key(connection, ATTEMPTS)?;
        let mut messages = by_key(connection, MESSAGES)?;
        let mut keys = connection.prepare(KEYS)?;
        let keys = keys.query_map([], key)?;
        let records = keys.map(|key| {
            let key = key?;
            let attempt = take_one(&mut attempts, &key);
            let request = raw_request(&attempt);
            let messages = messages.remove(&key).unwrap_or_default();
            Outcome::Ok(CallRecord {
                submission: take_one(&mut submissions, &key),
                call: take_one(&mut calls, &key),
                tags: tags.remove(&key).unwrap_or_default().concat(),
                attempt,
                messages: messages
                    .into_iter()
                    .map(|row| row.try_into().map_err(|_| "a message has three columns"))
                    .collect::<Result<_, _>>()?,
                request,
                key: [Value::Text(key.0), Value::Text(key.1)],
            })
        });
        let calls = records.collect::<Outcome<_>>()?;
        Ok(Self { calls })
    }

    /// Whether each call was made, with all that belongs to it.
    pub(crate) fn is_whole(&self, count: usize) -> bool {
        let made = |record: &CallRecord| {
            !record.attempt.is_empty() && record.messages.len() == MESSAGES_OF_A_CALL
        };
        self.calls.len() == count && self.calls.iter().all(made)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }
}

/// The messages of a call whose request succeeds, commands included.
pub(super) const MESSAGES_OF_A_CALL: usize = 7;

fn take_one(of: &mut ByKey<Vec<Vec<Value>>>, key: &(String, String)) -> Vec<Value> {
    let rows = of.remove(key).unwrap_or_default();
    rows.into_iter().next().unwrap_or_default()
}

/// What our client sends for an attempt, as bytes.
fn raw_request(attempt: &[Value]) -> Rc<[u8]> {
    let text = |at: usize| match attempt.get(at) {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    let url = text(5).trim_start_matches("http://");
    let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let (execution, correlation, body) = (text(0), text(2), text(8));
    let trace = correlation.replace('-', "");
    let parent = execution.replace('-', "");
    let parent = parent.get(16..).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: punctual/0.1.0\r\naccept: */*\r\n\
         content-type: application/json\r\nidempotency-key: {execution}\r\n\
         x-correlation-id: {correlation}\r\ntraceparent: 00-{trace}-{parent}-01\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
    .into()
}
