//! The start of attempts, which is durable before anything is sent.
//!
//! One instance chooses at a time, and keeps the turn until what it has chosen is committed: otherwise all
//! would choose the same, and all but one in vain.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_domain::messages::Listeners;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    BatchResult, ClaimToken, ClaimedExecution, Execution, ExecutionKey, PortErrorKind,
    StartExecution, WaitingQuery,
};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::grouping::{Committed, Write, write_all};
use super::outbox::Messages;
use super::rows::{place, places};
use super::{Calls, turns};
use crate::lane::{
    BEGIN_DURABLE, Parameter, Session, Statement, beginning, rest, roll_back, transaction,
};
use crate::port_errors::Failure;
use crate::timer_store::rows::{Keys, column};
use crate::values::{Instant, sql_millis};

const START: &str = "start attempts";
/// Of claims of attempts, among the locks that programs give numbers to.
const TURN: i32 = 0x5045_0002;

/// The start of an attempt.
#[derive(Clone)]
struct Begin {
    execution: Execution,
    started_at: Timestamp,
    lease: Duration,
    outbox: Vec<MessageEnvelope>,
}

/// What asks whether attempts start, and the answer.
type Question = (Vec<Execution>, oneshot::Sender<Vec<Begin>>);

/// Starts waiting attempts in one transaction: while it chooses, nobody else does.
pub(super) async fn claim(
    calls: &Arc<Calls>,
    query: WaitingQuery,
    now: Timestamp,
    lease: Duration,
    start: &mut StartExecution<'_>,
) -> BatchResult<ClaimedExecution> {
    let (ask, mut asked) = mpsc::channel::<Question>(1);
    let (claiming, query) = (Arc::clone(calls), Arc::new(query));
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, query, ask) = (Arc::clone(&claiming), Arc::clone(&query), ask.clone());
        Box::pin(async move { claim_on(&calls, &session, &query, ask).await })
    };
    let lane = calls.writer().clone();
    let mut claimed = std::pin::pin!(lane.run(START, work));
    // A transaction that another one was in the way of is repeated, but nothing is asked twice.
    let mut decided: HashMap<ExecutionKey, Option<Vec<MessageEnvelope>>> = HashMap::new();
    let mut chosen = Vec::new();
    let claimed = loop {
        tokio::select! {
            biased;
            claimed = &mut claimed => break claimed,
            Some((waiting, answer)) = asked.recv() => {
                chosen.clear();
                for execution in waiting {
                    let decision = decided
                        .entry(execution.key.clone())
                        .or_insert_with(|| start(&execution));
                    if let Some(outbox) = decision.clone() {
                        chosen.push(Begin { execution, started_at: now, lease, outbox });
                    }
                }
                let _ = answer.send(chosen.clone());
            }
        }
    };
    match claimed {
        Ok(claimed) => Ok(claimed.into_iter().map(Ok).collect()),
        // One of them cannot be started: each by itself.
        Err(error) if error.kind() == PortErrorKind::Rejected && !chosen.is_empty() => {
            let begun = write_all(calls, chosen).await;
            Ok(begun.into_iter().filter_map(Result::transpose).collect())
        }
        Err(error) => Err(error),
    }
}

async fn claim_on(
    calls: &Calls,
    session: &Session,
    query: &WaitingQuery,
    ask: mpsc::Sender<Question>,
) -> Result<Vec<ClaimedExecution>, Failure> {
    let turn: [Statement<'_>; 1] = [(&calls.sql.await_turn, calls.turn_params(&TURN))];
    beginning(session, BEGIN_DURABLE, &turn).await?;
    let chosen = async {
        let waiting = turns::waiting(calls, session, query).await?;
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        // A caller that no longer waits starts nothing.
        let _ = ask.send((waiting, answer)).await;
        Ok::<_, Failure>(answered.await.unwrap_or_default())
    };
    let begun = match chosen.await {
        Ok(chosen) if chosen.is_empty() => Ok(Vec::new()),
        Ok(chosen) => match Beginnings::of(calls, &chosen) {
            Ok(beginnings) => return beginnings.finish(calls, session, chosen).await,
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    roll_back(&session.client).await;
    begun
}

/// Attempts that start, as arrays. All have the same time and lease.
struct Beginnings {
    places: Vec<i64>,
    keys: Keys,
    ids: Vec<Uuid>,
    started: Vec<Instant>,
    messages: Messages,
    lease: f64,
    clock: Option<Instant>,
}

impl Beginnings {
    fn of(calls: &Calls, group: &[Begin]) -> Result<Self, Failure> {
        let mut messages = Messages::default();
        for (place, begin) in group.iter().enumerate() {
            messages.add(place, &begin.outbox, Listeners::Anyone)?;
        }
        let ids = group
            .iter()
            .map(|it| it.execution.key.execution_id.as_uuid());
        Ok(Self {
            places: places(group.len()),
            keys: group.iter().map(Write::key).collect(),
            ids: ids.collect(),
            started: group.iter().map(|it| Instant(it.started_at)).collect(),
            messages,
            lease: group.first().map_or(0.0, |it| sql_millis(it.lease)),
            clock: group.first().and_then(|it| calls.time.given(it.started_at)),
        })
    }

    fn params<'a>(&'a self, calls: &'a Calls) -> Vec<Parameter<'a>> {
        let mut params = self.messages.params();
        params.push((&calls.instance, Type::UUID));
        params.push((&self.clock, Type::TIMESTAMPTZ));
        params.push((&self.lease, Type::FLOAT8));
        params.push((&self.places, Type::INT8_ARRAY));
        params.extend(self.keys.params());
        params.push((&self.ids, Type::UUID_ARRAY));
        params.push((&self.started, Type::TIMESTAMPTZ_ARRAY));
        params
    }

    /// Ends the transaction in which they were chosen.
    async fn finish(
        self,
        calls: &Calls,
        session: &Session,
        chosen: Vec<Begin>,
    ) -> Result<Vec<ClaimedExecution>, Failure> {
        let statement: [Statement<'_>; 1] = [(&calls.sql.begin, self.params(calls))];
        let begun = rest(&session.client, &statement).await?;
        let tokens = tokens(&begun)?;
        let chosen = chosen.into_iter().enumerate();
        let claimed = chosen.filter_map(|(place, it)| claimed(it, tokens.get(&place)));
        Ok(claimed.collect())
    }
}

fn tokens(answers: &[Vec<Row>]) -> Result<HashMap<usize, ClaimToken>, Failure> {
    let token = |row: &Row| Ok((place(row)?, token(row)?));
    answers.iter().flatten().map(token).collect()
}

pub(super) fn token(row: &Row) -> Result<ClaimToken, Failure> {
    let token: i64 = column(row, "claim_token")?;
    Ok(ClaimToken(token.cast_unsigned()))
}

/// `None` if it did not wait any more.
fn claimed(begin: Begin, token: Option<&ClaimToken>) -> Option<ClaimedExecution> {
    token.map(|token| ClaimedExecution {
        execution: begin.execution,
        token: *token,
    })
}

/// Starts each by itself, where they could not be started together.
impl Write for Begin {
    type Outcome = Option<ClaimedExecution>;
    const OPERATION: &'static str = START;

    fn key(&self) -> &TimerKey {
        &self.execution.key.call
    }

    fn bytes(&self) -> usize {
        1_024
    }

    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self> {
        Box::pin(async move {
            let beginnings = Beginnings::of(calls, group)?;
            let statement: [Statement<'_>; 1] = [(&calls.sql.begin, beginnings.params(calls))];
            let tokens = tokens(&transaction(session, begin, &statement).await?)?;
            let group = group.iter().cloned().enumerate();
            let claimed = group.map(|(place, it)| Ok(claimed(it, tokens.get(&place))));
            Ok(claimed.collect())
        })
    }
}
