//! The attempts of calls.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{Headers, Outcome, RequestBody, RequestSpec, ResponseMeta};
use punctual_domain::{CorrelationId, EnvelopeId, TimerKey, Timestamp};
use punctual_ports::{
    AbandonedExecution, AcceptOutcome, Execution, ExecutionClaim, ExecutionEntry, ExecutionKey,
    ExecutionOutcome, ExecutionState, FinishExecution, PortError,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Calls;
use super::apart::DELETIONS;
use super::changing::{changed, outcomes};
use super::grouping::{Committed, Write};
use super::outbox::Messages;
use super::reading::rows;
use super::rows::{
    PlacedKeys, envelope_id, json, outcome_json, place, places, readable, to_json, to_millis,
};
use super::starting::token;
use crate::lane::{BEGIN_DURABLE, Parameter, Session, Statement, transaction};
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column, instant, key, unreadable};
use crate::values::{Instant, sql_limit, sql_millis, storable};

impl Write for Execution {
    type Outcome = AcceptOutcome;
    const OPERATION: &'static str = "accept attempts";

    fn key(&self) -> &TimerKey {
        &self.key.call
    }

    fn bytes(&self) -> usize {
        let body = self.request.body.as_ref();
        2 * body.map_or(0, |body| body.as_str().len()) + 1_024
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(accept(calls, session, begin, group))
    }
}

async fn accept(
    calls: &Calls,
    session: &Session,
    begin: &'static str,
    group: &[Execution],
) -> Result<Vec<Result<AcceptOutcome, PortError>>, Failure> {
    let new = Accepted::of(group)?;
    let keys: PlacedKeys = group.iter().map(Write::key).collect();
    let mut statements: Vec<Statement<'_>> = Vec::with_capacity(3);
    if let Some(apart) = &calls.apart {
        statements.push((&apart.await_deletions, calls.turn_params(&DELETIONS)));
    }
    statements.push((&calls.sql.accept, new.params()));
    statements.push((&calls.sql.attempts_of, keys.params()));
    let answers = transaction(session, begin, &statements).await?;
    let [.., inserted, there] = answers.as_slice() else {
        return Err(Failure::Unreadable("an answer is missing".to_owned()));
    };
    let inserted: BTreeSet<TimerKey> = inserted.iter().map(key).collect::<Result<_, _>>()?;
    let attempt = |row: &Row| Ok((place(row)?, envelope_id(row, "execution_id")?));
    let there: HashMap<usize, EnvelopeId> =
        there.iter().map(attempt).collect::<Result<_, Failure>>()?;
    let outcome = |(place, execution): (usize, &Execution)| {
        Ok(match there.get(&place) {
            _ if inserted.contains(&execution.key.call) => AcceptOutcome::Accepted,
            Some(id) if *id == execution.key.execution_id => AcceptOutcome::AlreadyThere,
            Some(_) => AcceptOutcome::AnotherAttempt,
            None => AcceptOutcome::NoParent,
        })
    };
    Ok(group.iter().enumerate().map(outcome).collect())
}

/// New attempts, as arrays.
#[derive(Default)]
struct Accepted {
    keys: Keys,
    ids: Vec<Uuid>,
    started: Vec<Instant>,
    correlations: Vec<Uuid>,
    timeouts: Vec<i64>,
    hosts: Vec<String>,
    requests: Vec<String>,
    urls: Vec<String>,
    methods: Vec<&'static str>,
    headers: Vec<String>,
    bodies: Vec<Option<String>>,
}

impl Accepted {
    fn of(group: &[Execution]) -> Result<Self, Failure> {
        let mut new = Self::default();
        for execution in group {
            let redacted = execution.request.redacted();
            new.keys.add(&execution.key.call);
            new.ids.push(execution.key.execution_id.as_uuid());
            new.started.push(Instant(execution.accepted_at));
            new.correlations.push(execution.correlation_id.as_uuid());
            new.timeouts.push(to_millis(execution.timeout));
            new.hosts.push(execution.request.url.host_and_port());
            new.requests.push(to_json(&execution.request)?);
            new.urls.push(storable(redacted.url.as_str()));
            new.methods.push(redacted.method.as_str());
            new.headers.push(to_json(&redacted.headers)?);
            let body = redacted.body.as_ref().map(RequestBody::as_str);
            new.bodies.push(body.map(storable));
        }
        Ok(new)
    }

    fn params(&self) -> Vec<Parameter<'_>> {
        let mut params = self.keys.params();
        let others: [Parameter<'_>; 10] = [
            (&self.ids, Type::UUID_ARRAY),
            (&self.started, Type::TIMESTAMPTZ_ARRAY),
            (&self.correlations, Type::UUID_ARRAY),
            (&self.timeouts, Type::INT8_ARRAY),
            (&self.hosts, Type::TEXT_ARRAY),
            (&self.requests, Type::TEXT_ARRAY),
            (&self.urls, Type::TEXT_ARRAY),
            (&self.methods, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
        ];
        params.extend(others);
        params
    }
}

const OUTCOMES: (ExecutionOutcome, ExecutionOutcome) =
    (ExecutionOutcome::Applied, ExecutionOutcome::NotThere);

/// Claims as arrays.
struct Claims {
    places: Vec<i64>,
    tokens: Vec<i64>,
    keys: Keys,
    ids: Vec<Uuid>,
}

impl<'a> FromIterator<&'a ExecutionClaim> for Claims {
    fn from_iter<T: IntoIterator<Item = &'a ExecutionClaim>>(claims: T) -> Self {
        let (mut tokens, mut keys, mut ids) = (Vec::new(), Keys::default(), Vec::new());
        for claim in claims {
            tokens.push(claim.token.0.cast_signed());
            keys.add(&claim.key.call);
            ids.push(claim.key.execution_id.as_uuid());
        }
        Self {
            places: places(ids.len()),
            tokens,
            keys,
            ids,
        }
    }
}

impl Claims {
    fn params(&self) -> Vec<Parameter<'_>> {
        let mut params: Vec<Parameter<'_>> = vec![
            (&self.places, Type::INT8_ARRAY),
            (&self.tokens, Type::INT8_ARRAY),
        ];
        params.extend(self.keys.params());
        params.push((&self.ids, Type::UUID_ARRAY));
        params
    }
}

impl Write for FinishExecution {
    type Outcome = ExecutionOutcome;
    const OPERATION: &'static str = "finish attempts";

    fn key(&self) -> &TimerKey {
        &self.claim.key.call
    }

    fn bytes(&self) -> usize {
        16 * 1_024
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            let claims: Claims = group.iter().map(|it| &it.claim).collect();
            let ends = Ends::of(group)?;
            let mut params = ends.messages.params();
            params.extend(claims.params());
            params.extend(ends.params());
            let finished = changed(session, begin, &calls.sql.finish, params).await?;
            Ok(outcomes(group.len(), &finished, OUTCOMES))
        })
    }
}

/// How attempts ended, as arrays.
#[derive(Default)]
struct Ends {
    messages: Messages,
    finished: Vec<Instant>,
    outcomes: Vec<String>,
    statuses: Vec<Option<String>>,
    headers: Vec<Option<String>>,
    bodies: Vec<Option<String>>,
    errors: Vec<Option<String>>,
}

impl Ends {
    fn of(group: &[FinishExecution]) -> Result<Self, Failure> {
        let mut ends = Self::default();
        for (place, finish) in group.iter().enumerate() {
            let (response, error) = match &finish.outcome {
                Outcome::Succeeded(response) => (Some(response), None),
                Outcome::Failed(error) => (error.details.as_deref(), error.message.as_deref()),
            };
            ends.messages
                .add(place, &finish.outbox, Listeners::Anyone)?;
            ends.finished.push(Instant(finish.finished_at));
            ends.outcomes.push(outcome_json(&finish.outcome)?);
            ends.statuses
                .push(response.map(|response| response.status.to_string()));
            ends.headers.push(response.map(headers_json).transpose()?);
            let body = response.and_then(|response| response.body_snippet.as_deref());
            ends.bodies.push(body.map(storable));
            ends.errors.push(error.map(storable));
        }
        Ok(ends)
    }

    fn params(&self) -> [Parameter<'_>; 6] {
        [
            (&self.finished, Type::TIMESTAMPTZ_ARRAY),
            (&self.outcomes, Type::TEXT_ARRAY),
            (&self.statuses, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.errors, Type::TEXT_ARRAY),
        ]
    }
}

/// The headers as in the outcome.
fn headers_json(response: &ResponseMeta) -> Result<String, Failure> {
    let outcome = serde_json::to_value(response).map_err(|error| unreadable("a value", error))?;
    let headers = outcome.get("headers");
    Ok(headers.map_or("{}".to_owned(), ToString::to_string))
}

/// The renewal of a lease.
#[derive(Clone)]
pub(super) struct Renew {
    pub(super) claim: ExecutionClaim,
    pub(super) now: Timestamp,
    pub(super) lease: Duration,
}

impl Write for Renew {
    type Outcome = ExecutionOutcome;
    const OPERATION: &'static str = "renew the leases of attempts";
    // The lease before it lasts until the next renewal.
    const IS_DURABLE: bool = false;

    fn key(&self) -> &TimerKey {
        &self.claim.key.call
    }

    fn bytes(&self) -> usize {
        256
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            let claims: Claims = group.iter().map(|it| &it.claim).collect();
            let clocks: Vec<_> = group.iter().map(|it| calls.time.given(it.now)).collect();
            let leases: Vec<f64> = group.iter().map(|it| sql_millis(it.lease)).collect();
            let mut params = claims.params();
            params.push((&clocks, Type::TIMESTAMPTZ_ARRAY));
            params.push((&leases, Type::FLOAT8_ARRAY));
            let renewed = changed(session, begin, &calls.sql.renew, params).await?;
            Ok(outcomes(group.len(), &renewed, OUTCOMES))
        })
    }
}

/// Claims started attempts that nobody makes, without those that are held.
pub(super) async fn take_over(
    calls: &Arc<Calls>,
    held: BTreeSet<ExecutionKey>,
    now: Timestamp,
    lease: Duration,
    limit: usize,
) -> Result<Vec<AbandonedExecution>, PortError> {
    let (taking, held) = (Arc::clone(calls), Arc::new(held));
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, held) = (Arc::clone(&taking), Arc::clone(&held));
        Box::pin(async move {
            let (clock, lease) = (calls.time.given(now), sql_millis(lease));
            let limit = sql_limit(limit);
            let keys: Keys = held.iter().map(|it| &it.call).collect();
            let ids: Vec<Uuid> = held.iter().map(|it| it.execution_id.as_uuid()).collect();
            let mut params: Vec<Parameter<'_>> = vec![
                (&calls.instance, Type::UUID),
                (&clock, Type::TIMESTAMPTZ),
                (&lease, Type::FLOAT8),
                (&limit, Type::INT8),
            ];
            params.extend(keys.params());
            params.push((&ids, Type::UUID_ARRAY));
            let statement: [Statement<'_>; 1] = [(&calls.sql.take_over, params)];
            let taken = transaction(&session, BEGIN_DURABLE, &statement).await?;
            let read = |row: &Row| {
                Ok(AbandonedExecution {
                    claim: ExecutionClaim {
                        key: read_key(row)?,
                        token: token(row)?,
                    },
                    correlation_id: CorrelationId::from_uuid(column(row, "correlation_id")?),
                })
            };
            let taken = taken.iter().flatten().map(read);
            Ok(taken.filter_map(|it| readable("attempt", it)).collect())
        })
    };
    calls.writer().run("take over attempts", work).await
}

pub(super) fn read_key(row: &Row) -> Result<ExecutionKey, Failure> {
    Ok(ExecutionKey {
        call: key(row)?,
        execution_id: envelope_id(row, "execution_id")?,
    })
}

pub(super) async fn entries(
    calls: &Arc<Calls>,
    call: TimerKey,
    limit: usize,
) -> Result<Vec<ExecutionEntry>, PortError> {
    let reading = Arc::clone(calls);
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, key) = (Arc::clone(&reading), call.clone());
        Box::pin(async move {
            let (tenant, call) = (key.tenant_id.as_str(), key.service_call_id.as_uuid());
            let limit = sql_limit(limit);
            let params: Vec<Parameter<'_>> = vec![
                (&tenant, Type::TEXT),
                (&call, Type::UUID),
                (&limit, Type::INT8),
            ];
            let statement: [Statement<'_>; 1] = [(&calls.sql.entries, params)];
            let found = rows(&session, &statement).await?;
            let found = found.iter().flatten().map(read_entry);
            Ok(found.filter_map(|it| readable("attempt", it)).collect())
        })
    };
    calls
        .reader()
        .run("find the attempts of a call", work)
        .await
}

fn read_entry(row: &Row) -> Result<ExecutionEntry, Failure> {
    let text = |name| column::<&str>(row, name);
    let body: Option<&str> = column(row, "request_body")?;
    let request = RequestSpec {
        method: text("request_method")?
            .parse()
            .map_err(|error| unreadable("request_method", error))?,
        url: text("request_url")?
            .parse()
            .map_err(|error| unreadable("request_url", error))?,
        headers: json::<Headers>(row, "request_headers")?,
        body: body
            .map(RequestBody::new)
            .transpose()
            .map_err(|error| unreadable("request_body", error))?,
    };
    Ok(ExecutionEntry {
        key: read_key(row)?,
        started_at: instant(row, "started_at")?,
        request,
        state: read_state(row)?,
    })
}

fn read_state(row: &Row) -> Result<ExecutionState, Failure> {
    Ok(match column::<&str>(row, "state")? {
        "Waiting" => ExecutionState::Waiting,
        "Attempted" => ExecutionState::Attempted,
        _ => ExecutionState::Finished {
            finished_at: instant(row, "finished_at")?,
            outcome: read_outcome(row)?,
        },
    })
}

/// A response has a status; a failure has a kind.
fn read_outcome(row: &Row) -> Result<Outcome, Failure> {
    match json(row, "outcome_meta") {
        Ok(response) => Ok(Outcome::Succeeded(response)),
        Err(_) => json(row, "outcome_meta").map(Outcome::Failed),
    }
}
