//! A connection for one kind of work, which is established again whenever it was lost.
//!
//! Work that shares a connection waits for its turn, so a store has several lanes: a slow commit delays no
//! claim, and a claim no commit. Each piece of work is a task of its own: a caller that no longer waits
//! leaves no open transaction behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join, join_all, join3};
use punctual_ports::{ClockPort, PortError};
use tokio::sync::{Mutex, Notify};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::connect::{Connected, connect};
use crate::health::Health;
use crate::port_errors::{Failure, stopped};
use crate::{PostgresUrl, metric_names};

/// An established connection.
pub(crate) type Session = Connected;

/// How often a transaction is repeated that another one was in the way of.
const CONFLICT_TRIES: usize = 3;

/// How all connections of a store are established, and whether they still may be.
pub(crate) struct Connector {
    pub(crate) url: PostgresUrl,
    /// Where the tables are.
    pub(crate) schema: String,
    pub(crate) clock: Arc<dyn ClockPort>,
    /// How long a piece of work may take, with the wait for its turn and for a connection.
    pub(crate) time_limit: Duration,
    pub(crate) is_closed: AtomicBool,
    /// Tells when it was closed.
    pub(crate) closing: Notify,
    /// Of the writes on all connections.
    pub(crate) health: Health,
}

impl Connector {
    /// When a piece of work that begins now is given up, on the monotonic clock.
    fn deadline(&self) -> Duration {
        self.clock.monotonic().saturating_add(self.time_limit)
    }

    /// Gives a part of it up then.
    async fn limited<T>(
        &self,
        deadline: Duration,
        part: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let left = deadline.saturating_sub(self.clock.monotonic());
        tokio::select! {
            biased;
            outcome = part => outcome,
            () = self.clock.sleep_for(left) => Err(Failure::TimedOut),
        }
    }
}

/// Work on a connection.
pub(crate) type Work<T> =
    dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<T, Failure>> + Send + Sync;

/// A connection for one kind of work.
#[derive(Clone)]
pub(crate) struct Lane {
    connector: Arc<Connector>,
    purpose: &'static str,
    is_durable: bool,
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl Lane {
    pub(crate) fn new(connector: &Arc<Connector>, purpose: &'static str) -> Self {
        Self {
            connector: Arc::clone(connector),
            purpose,
            is_durable: false,
            session: Arc::default(),
        }
    }

    /// A lane for writes that must not be lost: what becomes of them tells the health of the store.
    pub(crate) fn durable(connector: &Arc<Connector>, purpose: &'static str) -> Self {
        let is_durable = true;
        Self {
            is_durable,
            ..Self::new(connector, purpose)
        }
    }

    /// Does a piece of work, again if another transaction was in its way.
    ///
    /// If it fails, its transaction was not committed, unless the connection was lost: then that is
    /// unknown.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Fn(Arc<Session>) -> BoxFuture<'static, Result<T, Failure>> + Send + Sync + 'static,
    ) -> Result<T, PortError> {
        let lane = self.clone();
        let working = tokio::spawn(async move { lane.work(operation, &work).await });
        let answer = working.await.unwrap_or_else(|_| Err(stopped(operation)));
        match &answer {
            Ok(_) if self.is_durable => self.connector.health.committed(),
            Err(error) if self.is_durable => self.connector.health.failed(error),
            _ => {}
        }
        answer
    }

    async fn work<T>(&self, operation: &'static str, work: &Work<T>) -> Result<T, PortError> {
        let deadline = self.connector.deadline();
        let locked = async { Ok(self.session.lock().await) };
        let locked = self.connector.limited(deadline, locked).await;
        let mut place = locked.map_err(|it| it.during(operation))?;
        let mut tries = 0;
        loop {
            if self.connector.is_closed.load(Ordering::Acquire) {
                *place = None;
                return Err(stopped(operation));
            }
            tries += 1;
            // Taken out: a panic or a lost task leaves no connection with an open transaction.
            let kept = place.take().filter(|it| !it.client.is_closed());
            let session = if let Some(session) = kept {
                session
            } else {
                let connecting = Box::pin(self.connect());
                let connected = self.connector.limited(deadline, connecting).await;
                connected.map_err(|it| it.during(operation))?
            };
            let cancelled = session.driver.cancelled_sync_waits();
            let working = work(Arc::clone(&session));
            let answer = self.connector.limited(deadline, working).await;
            let answer = answer.and_then(|answer| {
                let is_replicated = session.driver.cancelled_sync_waits() == cancelled;
                is_replicated
                    .then_some(answer)
                    .ok_or(Failure::NotReplicated)
            });
            match answer {
                Ok(answer) => {
                    *place = Some(session);
                    return Ok(answer);
                }
                Err(failure) => {
                    if !failure.ends_the_connection() {
                        *place = Some(session);
                    }
                    if failure.is_conflict() && tries < CONFLICT_TRIES {
                        continue;
                    }
                    return Err(failure.during(operation));
                }
            }
        }
    }

    async fn connect(&self) -> Result<Arc<Session>, Failure> {
        let connector = &self.connector;
        let connected = connect(
            &connector.url,
            Some(&connector.schema),
            connector.clock.as_ref(),
            self.purpose,
        )
        .await;
        match connected {
            Ok(mut session) => {
                session.statement_timeout = statement_timeout(connector.time_limit);
                tracing::debug!(purpose = self.purpose, "connected to the database");
                metrics::counter!(metric_names::CONNECTIONS).increment(1);
                Ok(Arc::new(session))
            }
            Err(error) => Err(Failure::NotConnected(error.to_string())),
        }
    }

    /// Waits until the connection, if there is one, is known to have ended.
    pub(crate) async fn ended(&self) {
        if let Some(session) = self.session.lock().await.as_ref() {
            session.driver.ended().await;
        }
    }

    /// Whether nobody is using it at the moment.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.try_lock().is_ok()
    }

    /// Ends the connection once the work in progress is done.
    pub(crate) async fn close(&self) {
        *self.session.lock().await = None;
    }
}

/// How long the server may work on a statement of an operation: what waits for its turn before it and for its
/// answer has the rest, so that the server ends it before we give it up, and nobody waits for its locks.
fn statement_timeout(operation: Duration) -> Duration {
    operation * 4 / 5
}

impl Session {
    /// A beginning with the limit of this session's statements.
    fn limited(&self, begin: &str) -> String {
        let millis = self.statement_timeout.as_millis();
        format!("{begin}; SET LOCAL statement_timeout = {millis}")
    }
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A statement with its parameters.
pub(crate) type Statement<'a> = (&'a str, Vec<Parameter<'a>>);

/// How a transaction begins. Settings are local to it: a pooler may give the connection to others after.
///
/// The planner would otherwise read whole tables once it believes them to be small. Each statement must see
/// what was committed before it, whatever the database has as its default: a deletion sees the claim that it
/// has waited for. And an instance that is suspended between two round trips must not hold its locks for longer
/// than its leases.
macro_rules! begin {
    ($more:literal) => {
        concat!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; \
             SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL enable_seqscan = off; \
             SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off",
            $more
        )
    };
}

/// A transaction whose commit is as durable as the server is set to.
///
/// A wait in a queue is two waits, for the turn and for the row: both end before the statement's time is up,
/// so that it is busy and not unavailable.
pub const BEGIN_DURABLE: &str = begin!("; SET LOCAL lock_timeout = '3s'");
/// The same for many callers: they do not wait long because of one of them.
pub(crate) const BEGIN_GROUPED: &str = begin!("; SET LOCAL lock_timeout = '500ms'");
/// The same for a part of them, which is tried because they did wait.
pub(crate) const BEGIN_SPLIT: &str = begin!("; SET LOCAL lock_timeout = '100ms'");
/// A durable transaction for one try of a deletion: those of other timers wait for their turn meanwhile.
pub(crate) const BEGIN_TRY: &str = begin!("; SET LOCAL lock_timeout = '250ms'");
/// A transaction whose loss in a crash is a duplicate: its commit does not wait for the disk.
pub const BEGIN_QUICK: &str = begin!("; SET LOCAL synchronous_commit = off");
/// The same, and it does not wait long for a transaction of somebody else's.
pub(crate) const BEGIN_IMPATIENT: &str =
    begin!("; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '250ms'");
/// A transaction that only reads.
pub const BEGIN_READ: &str = begin!("; SET TRANSACTION READ ONLY");

/// As [`BEGIN_GROUPED`], once for a session that is ours alone.
const SETTINGS_GROUPED: &str = "\
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
    SET enable_seqscan = off; SET enable_bitmapscan = off; \
    SET jit = off; SET lock_timeout = '500ms'";

/// The one statement of a session that is ours alone, as a transaction by itself: settings and plan are made
/// once, and not for every few rows. Returns its rows.
pub(crate) async fn grouped(
    session: &Session,
    text: &str,
    params: &[Parameter<'_>],
) -> Result<Vec<Row>, Failure> {
    let client = &session.client;
    let prepare = async || {
        let millis = session.statement_timeout.as_millis();
        let settings = format!("{SETTINGS_GROUPED}; SET statement_timeout = {millis}");
        client.batch_execute(&settings).await?;
        let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
        client.prepare_typed(text, &types).await
    };
    let prepared = session.prepared.get_or_try_init(prepare).await?;
    let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
    Ok(client.query(prepared, &values).await?)
}

/// A whole transaction, sent at once: one round trip. Returns the rows of each statement.
pub(crate) async fn transaction(
    session: &Session,
    begin: &str,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, Failure> {
    let (client, begin) = (&session.client, session.limited(begin));
    let whole = join3(
        client.batch_execute(&begin),
        queries(client, statements),
        client.batch_execute("COMMIT"),
    );
    let (started, answers, commit) = whole.await;
    started?;
    // After a failed statement the commit is a rollback, and succeeds as such.
    let answers = answers?;
    commit?;
    Ok(answers)
}

/// The first part of a transaction, sent at once; [`rest`] or [`roll_back`] has to follow.
pub(crate) async fn beginning(
    session: &Session,
    begin: &str,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, Failure> {
    let (client, begin) = (&session.client, session.limited(begin));
    let both = join(client.batch_execute(&begin), queries(client, statements));
    let (started, answers) = both.await;
    let answers = started.and(answers);
    if answers.is_err() {
        roll_back(client).await;
    }
    Ok(answers?)
}

/// The rest of a transaction and its commit.
pub(crate) async fn rest(
    client: &Client,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, Failure> {
    let both = join(queries(client, statements), client.batch_execute("COMMIT"));
    let (answers, commit) = both.await;
    let answers = answers?;
    commit?;
    Ok(answers)
}

/// The rows of each statement, all of which are sent at once.
async fn queries(
    client: &Client,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
    let sent = statements
        .iter()
        .map(|(sql, params)| client.query_typed(sql, params));
    join_all(sent).await.into_iter().collect()
}

/// Ends a transaction without a trace. If that fails, so does the next one.
pub(crate) async fn roll_back(client: &Client) {
    if let Err(error) = client.batch_execute("ROLLBACK").await {
        tracing::debug!(%error, "a transaction ended with its connection");
    }
}
