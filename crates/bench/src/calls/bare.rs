//! The bare loop: the rows and requests of calls on one thread, from a transcript, with plain rusqlite
//! and raw bytes.
//!
//! It keeps the order that makes a call safe, with a commit wherever something must be durable before
//! what follows, for a whole batch at a time. It reads nothing back, makes no text, has no channel and
//! no outcome for each call, and nothing goes on at the same time.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::transcript::{CallRecord, MESSAGES_OF_A_CALL};
use super::{AT_ONCE, Client, Transcript};
use crate::Outcome;
use crate::bare::Bare;

const TAKE: &str = "\
    INSERT INTO submissions (tenant_id, service_call_id, idempotency_key, body_sha256, \
        correlation_id, submitted_at) \
    VALUES (?1, ?2, NULL, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
const INSERT_CALL: &str = "\
    INSERT INTO service_calls (tenant_id, service_call_id, name, submitted_at, due_at, \
        correlation_id, command_id, version, status, request_spec, next_check_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, 'Scheduled', ?8, ?5)";
/// A call that is due when it is submitted.
const INSERT_RUNNING: &str = "\
    INSERT INTO service_calls (tenant_id, service_call_id, name, submitted_at, due_at, \
        correlation_id, command_id, version, status, request_spec, next_check_at, started_at, \
        execution_id, caused_by, timeout_ms, dispatched_at, dispatch_count) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, 'Running', ?8, ?9, ?9, ?10, ?7, ?11, ?9, 1)";
const INSERT_TAG: &str = "\
    INSERT INTO service_call_tags (tenant_id, service_call_id, tag, due_at) \
    VALUES (?1, ?2, ?3, ?4)";
const APPEND: &str = "\
    INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at, \
        published_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const MARK_MESSAGE: &str = "UPDATE outbox SET published_at = ?2 WHERE id = ?1";
/// The command to make the request, which is kept without secrets.
const MARK_AND_REDACT: &str = "\
    UPDATE outbox SET published_at = ?2, event_payload = ?3 WHERE id = ?1";
const CHANGE_CALL: &str = "\
    UPDATE service_calls SET version = version + 1, status = ?3, request_spec = ?4, \
        next_check_at = ?5, started_at = ?6, finished_at = ?7, outcome_meta = ?8, \
        execution_id = ?9, caused_by = ?9, timeout_ms = ?10, attempt_began_at = ?11, \
        dispatched_at = ?12, dispatch_count = ?13 \
    WHERE tenant_id = ?1 AND service_call_id = ?2 AND status IN ('Scheduled', 'Running')";
const INSERT_ATTEMPT: &str = "\
    INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at, \
        correlation_id, timeout_ms, host, request_spec, request_url, request_method, \
        request_headers, request_body, state) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'Waiting')";
const BEGIN_ATTEMPT: &str = "\
    UPDATE http_execution_log SET state = 'Attempted', started_at = ?4 \
    WHERE tenant_id = ?1 AND service_call_id = ?2 AND execution_id = ?3 AND state = 'Waiting'";
const FINISH_ATTEMPT: &str = "\
    UPDATE http_execution_log SET state = 'Finished', finished_at = ?4, outcome_meta = ?5, \
        response_status = ?6, response_headers = ?7, response_body = ?8, error_message = NULL, \
        request_spec = NULL \
    WHERE tenant_id = ?1 AND service_call_id = ?2 AND execution_id = ?3 AND state = 'Attempted'";

/// What happens to a batch, one after the other; each is a transaction, but for the requests.
pub(crate) const PHASES: [&str; 7] = [
    "submit", "command", "begin", "REQUESTS", "finish", "began", "outcome",
];
/// Which of them is no transaction.
pub(crate) const REQUESTS: usize = 3;

/// The messages of a call, by their places.
const OF_SUBMISSION: std::ops::Range<usize> = 0..4;
const START_EXECUTION: usize = 3;
const OF_BEGINNING: std::ops::Range<usize> = 4..5;
const OF_END: std::ops::Range<usize> = 5..6;
const OF_OUTCOME: std::ops::Range<usize> = 6..7;

/// Whether nobody waits for a message: it is written as published.
fn is_told([event_type, ..]: &[Value; 3]) -> bool {
    matches!(event_type, Value::Text(text) if text.starts_with("ServiceCall"))
}

/// One connection, one client.
pub(crate) struct BareCalls {
    connection: Connection,
    client: Client,
    /// How long each phase took so far.
    pub(crate) spent: [Duration; PHASES.len()],
    pub(crate) commits: u64,
}

impl BareCalls {
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let connection = Bare::open(path)?.connection;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Self {
            connection,
            client: Client::new()?,
            spent: [Duration::ZERO; PHASES.len()],
            commits: 0,
        })
    }

    /// Takes all calls from their submission to their outcome, `batch` at a time.
    pub(crate) fn make(&mut self, calls: &Transcript, batch: usize, to: SocketAddr) -> Outcome<()> {
        for chunk in calls.calls.chunks(batch) {
            let first = self.next_message()?;
            for phase in 0..PHASES.len() {
                let started = Instant::now();
                if phase == REQUESTS {
                    let requests = chunk.iter().map(|record| record.request.clone());
                    let requests: Vec<_> = requests.collect();
                    self.client.send_all(to, &requests, AT_ONCE)?;
                } else {
                    self.transact(phase, chunk, first)?;
                }
                self.spent[phase] += started.elapsed();
            }
        }
        Ok(())
    }

    /// Only stores the submissions, `batch` in each transaction.
    pub(crate) fn submit(&mut self, calls: &Transcript, batch: usize) -> Outcome<()> {
        for chunk in calls.calls.chunks(batch) {
            self.transact(0, chunk, 0)?;
        }
        Ok(())
    }

    fn next_message(&self) -> Outcome<i64> {
        let sql = "SELECT coalesce(max(id), 0) + 1 FROM outbox";
        Ok(self.connection.query_row(sql, [], |row| row.get(0))?)
    }

    fn transact(&mut self, phase: usize, calls: &[CallRecord], first: i64) -> Outcome<()> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let batch = Batch {
            transaction: &transaction,
            calls,
            first,
        };
        match phase {
            0 => batch.submit(),
            1 => batch.command(),
            2 => batch.begin(),
            4 => batch.finish(),
            5 => batch.began(),
            _ => batch.outcome(),
        }?;
        transaction.commit()?;
        self.commits += 1;
        Ok(())
    }

    /// Fails unless `count` calls succeeded and all their events are in the outbox.
    pub(crate) fn check(&self, count: usize) -> Outcome<()> {
        let sql = "SELECT (SELECT count(*) FROM service_calls WHERE status = 'Succeeded'), \
                   (SELECT count(*) FROM outbox WHERE published_at IS NOT NULL)";
        let counts = |row: &rusqlite::Row<'_>| <(u32, u32)>::try_from(row);
        let (calls, messages) = self.connection.query_row(sql, [], counts)?;
        if (calls as usize, messages as usize) == (count, count * MESSAGES_OF_A_CALL) {
            return Ok(());
        }
        let sql = "SELECT outcome_meta FROM service_calls WHERE status <> 'Succeeded' LIMIT 1";
        let other = self.connection.query_row(sql, [], |row| row.get(0));
        let other: Option<Option<String>> = other.optional()?;
        let other = other.flatten().unwrap_or_else(|| "none".to_owned());
        Err(format!(
            "of {count} calls {calls} succeeded, and {messages} messages were published; \
             the outcome of another: {other}"
        )
        .into())
    }
}

/// A batch in one transaction. The messages of each phase have numbers of their own, which follow
/// those of the phase before.
struct Batch<'a> {
    transaction: &'a Transaction<'a>,
    calls: &'a [CallRecord],
    /// The number of the first message of the batch.
    first: i64,
}

impl Batch<'_> {
    fn submit(&self) -> Outcome<()> {
        let mut take = self.transaction.prepare_cached(TAKE)?;
        let mut insert = self.transaction.prepare_cached(INSERT_CALL)?;
        let mut start = self.transaction.prepare_cached(INSERT_RUNNING)?;
        let mut tag = self.transaction.prepare_cached(INSERT_TAG)?;
        for record in self.calls {
            take.execute(record.with(&record.submission[..3]))?;
            let (call, it) = (&record.call, &record.attempt);
            if it.is_empty() {
                insert.execute(record.with(&call[..6]))?;
            } else {
                let running = call[..7].iter().chain([&it[0], &it[3]]);
                start.execute(record.with(running))?;
            }
            for name in &record.tags {
                tag.execute(record.with([name, &record.call[2]]))?;
            }
            self.append(record, &OF_SUBMISSION)?;
        }
        Ok(())
    }

    fn command(&self) -> Outcome<()> {
        let mut insert = self.transaction.prepare_cached(INSERT_ATTEMPT)?;
        for record in self.calls {
            let (head, tail) = record.attempt[..9].split_at(5);
            let columns = head.iter().chain([&record.call[5]]).chain(tail);
            insert.execute(record.with(columns))?;
        }
        self.mark(&OF_SUBMISSION)
    }

    fn begin(&self) -> Outcome<()> {
        let mut begin = self.transaction.prepare_cached(BEGIN_ATTEMPT)?;
        for record in self.calls {
            begin.execute(record.with(&record.attempt[..2]))?;
            self.append(record, &OF_BEGINNING)?;
        }
        Ok(())
    }

    fn finish(&self) -> Outcome<()> {
        let mut finish = self.transaction.prepare_cached(FINISH_ATTEMPT)?;
        for record in self.calls {
            let columns = [&record.attempt[0]].into_iter();
            finish.execute(record.with(columns.chain(&record.attempt[9..14])))?;
            self.append(record, &OF_END)?;
        }
        Ok(())
    }

    /// The call hears that its attempt has started.
    fn began(&self) -> Outcome<()> {
        for record in self.calls.iter().filter(|it| it.heard_of_the_beginning()) {
            self.change(record, "Running", &record.attempt[1])?;
        }
        self.mark(&OF_BEGINNING)
    }

    fn outcome(&self) -> Outcome<()> {
        for record in self.calls {
            self.change(record, "Succeeded", &Value::Null)?;
            self.append(record, &OF_OUTCOME)?;
        }
        self.mark(&OF_END)
    }

    /// A call as it is while it runs, or as it is in the end.
    fn change(&self, record: &CallRecord, status: &str, began_at: &Value) -> Outcome<()> {
        let mut change = self.transaction.prepare_cached(CHANGE_CALL)?;
        let ([tenant, id], call, it) = (&record.key, &record.call, &record.attempt);
        let null = &Value::Null;
        let changed = if status == "Succeeded" {
            change.execute(params![
                tenant, id, status, call[5], null, call[6], call[7], call[8], null, null, null,
                null, null
            ])?
        } else {
            change.execute(params![
                tenant, id, status, call[5], call[6], call[6], null, null, it[0], it[3], began_at,
                call[6], 1
            ])?
        };
        if changed == 1 {
            return Ok(());
        }
        Err("a call of the transcript was not there to be changed".into())
    }

    fn append(&self, record: &CallRecord, which: &std::ops::Range<usize>) -> Outcome<()> {
        let mut append = self.transaction.prepare_cached(APPEND)?;
        // A call that was only submitted has fewer.
        for message in record.messages.iter().take(which.end).skip(which.start) {
            let at = if is_told(message) {
                &message[2]
            } else {
                &Value::Null
            };
            append.execute(record.with(message.iter().chain([at])))?;
        }
        Ok(())
    }

    /// Marks messages as published. They were appended call by call within their phase, and the
    /// phases one after the other.
    fn mark(&self, which: &std::ops::Range<usize>) -> Outcome<()> {
        let mut mark = self.transaction.prepare_cached(MARK_MESSAGE)?;
        let mut redact = self.transaction.prepare_cached(MARK_AND_REDACT)?;
        let calls = i64::try_from(self.calls.len())?;
        let mut number = self.first + calls * i64::try_from(which.start)?;
        for record in self.calls {
            for place in which.clone() {
                let message @ [_, payload, at] = &record.messages[place];
                let marked = if is_told(message) {
                    1
                } else if place == START_EXECUTION {
                    redact.execute(params![number, at, payload])?
                } else {
                    mark.execute(params![number, at])?
                };
                if marked != 1 {
                    return Err("a message of the transcript was not there to be marked".into());
                }
                number += 1;
            }
        }
        Ok(())
    }
}
