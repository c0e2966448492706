//! Our side: the engine as the program runs it, with calls and timers in one file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use punctual::{CallOptions, Punctual, Running};
use punctual_adapters_http::{HyperHttpClient, Roots};
use punctual_adapters_sqlite::{OnStatement, SqliteSettings};
use punctual_domain::service_call::Submission;
use punctual_ports::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse, SubmitOutcome};
use punctual_workflows::calls::SubmitCalls;
use rusqlite::Connection;
use rusqlite::trace::TraceEvent;
use tokio::task::JoinSet;

use super::{AT_ONCE, Target};
use crate::Outcome;
use crate::bare::Bare;
use crate::machine::on_a_processor;
use crate::ours::{join, shares};
use crate::stats::float;

/// Interval of the polls for completion, once the target has answered everything.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Calls that take longer are lost.
const LONGEST: Duration = Duration::from_mins(5);

/// Whether anything is left to do: both sides of it are the first entry of an index.
const LEFT: &str = "\
    SELECT EXISTS (SELECT 1 FROM service_calls WHERE next_check_at IS NOT NULL) \
        OR EXISTS (SELECT 1 FROM outbox WHERE published_at IS NULL) \
        OR EXISTS (SELECT 1 FROM timer_schedules WHERE state = 'Scheduled')";

/// Statements on all connections that were opened to be counted.
static STATEMENTS: AtomicU64 = AtomicU64::new(0);
static COMMITS: AtomicU64 = AtomicU64::new(0);

/// Statements so far, and those of them that ended a transaction that writes, for each of `calls`
/// calls.
pub(crate) fn statements_of_each(calls: usize) -> (f64, f64) {
    let each = |total: &AtomicU64| float(total.load(Ordering::Relaxed)) / float(calls as u64);
    (each(&STATEMENTS), each(&COMMITS))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "this is how the store calls it"
)]
fn count_statement(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(_, text) = event {
        STATEMENTS.fetch_add(1, Ordering::Relaxed);
        // Readers end theirs with ROLLBACK.
        if text == "COMMIT" {
            COMMITS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An engine with service calls.
pub(crate) struct Engine {
    pub(crate) punctual: Punctual,
    pub(crate) submit: SubmitCalls,
    http: TimedHttp,
}

/// What making calls took.
pub(crate) struct Worked {
    /// From the first submission until the last row is written.
    pub(crate) took: Duration,
    /// From the first submission until the last one was answered.
    pub(crate) submitting: Duration,
    /// For how long of it any request was under way.
    pub(crate) requesting: Duration,
    /// For how long of it the writing thread was on a processor.
    pub(crate) writing: Duration,
}

impl Engine {
    /// Opens a file; counts its statements only if that is wanted, since it costs time.
    pub(crate) async fn open(path: &Path, counts: bool) -> Outcome<Self> {
        let mut settings = SqliteSettings::service_calls(path);
        settings.on_statement = counts.then_some(OnStatement(count_statement));
        let client = HyperHttpClient::new("127.0.0.0/8".parse()?, Roots::none())?;
        let http = TimedHttp::new(client);
        let mut options = CallOptions::new(http.clone());
        // Half of the slots are kept free for tenants that have none.
        options.settings.attempts_per_host = 2 * AT_ONCE;
        let (punctual, submit) = build(settings, options).await?;
        Ok(Self {
            punctual,
            submit,
            http,
        })
    }

    /// Submits calls that are due, and waits until nothing is left to do for any of them.
    pub(crate) async fn make(
        &self,
        path: &Path,
        calls: Vec<Submission>,
        target: &Target,
    ) -> Outcome<Worked> {
        let count = calls.len();
        target.answered();
        let running: Running = self.punctual.start().await?;
        let reader = Bare::open(path)?.connection;
        let writing = on_a_processor(WRITER);
        let started = Instant::now();
        submit(&self.submit, calls).await?;
        let submitting = started.elapsed();
        let mut answered = 0;
        while answered < count || is_left(&reader)? {
            if started.elapsed() > LONGEST {
                return Err(format!("{count} calls were not over after {LONGEST:?}").into());
            }
            tokio::time::sleep(POLL_EVERY).await;
            answered += target.answered();
        }
        let worked = Worked {
            took: started.elapsed(),
            submitting,
            requesting: self.http.under_way().busy,
            writing: on_a_processor(WRITER).saturating_sub(writing),
        };
        drop(reader);
        running.shutdown().await?;
        if answered != count {
            return Err(format!("{count} calls were {answered} requests").into());
        }
        Ok(worked)
    }
}

/// An engine with service calls on a file, and how to submit some.
pub(crate) async fn build(
    settings: SqliteSettings,
    options: CallOptions,
) -> Outcome<(Punctual, SubmitCalls)> {
    let builder = Punctual::builder().sqlite_with(settings);
    let punctual = builder.service_calls(options).build().await?;
    let calls = punctual.calls().ok_or("the engine takes no calls")?;
    Ok((punctual, calls.submit))
}

/// The thread that writes, as the store names it.
const WRITER: &str = "punctual-writer";

fn is_left(connection: &Connection) -> Outcome<bool> {
    let mut left = connection.prepare_cached(LEFT)?;
    Ok(left.query_row([], |row| row.get(0))?)
}

/// Submits calls, each by a submission of its own; returns when the last is durable.
pub(crate) async fn submit(submit: &SubmitCalls, calls: Vec<Submission>) -> Outcome<()> {
    let mut running = JoinSet::new();
    for share in shares(calls, AT_ONCE) {
        let submit = submit.clone();
        running.spawn(async move {
            for call in share {
                match submit.submit(call, None).await? {
                    SubmitOutcome::Accepted(_) => {}
                    other => return Err(format!("a new call was answered {other:?}").into()),
                }
            }
            Outcome::Ok(())
        });
    }
    join(running).await
}

/// The real client, and for how long anything was under way in it. Clones share both.
#[derive(Clone)]
struct TimedHttp {
    client: Arc<HyperHttpClient>,
    under_way: Arc<Mutex<UnderWay>>,
}

struct UnderWay {
    count: usize,
    /// When the first of those under way began.
    since: Instant,
    /// How long it was busy before.
    busy: Duration,
}

impl TimedHttp {
    fn new(client: HyperHttpClient) -> Self {
        let (count, since, busy) = (0, Instant::now(), Duration::ZERO);
        Self {
            client: Arc::new(client),
            under_way: Arc::new(Mutex::new(UnderWay { count, since, busy })),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        let locked = self.under_way.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self) {
        let mut under_way = self.under_way();
        under_way.count += 1;
        if under_way.count == 1 {
            under_way.since = Instant::now();
        }
    }

    fn ends(&self) {
        let mut under_way = self.under_way();
        under_way.count -= 1;
        if under_way.count == 0 {
            let busy = under_way.since.elapsed();
            under_way.busy += busy;
        }
    }
}

#[async_trait]
impl HttpClientPort for TimedHttp {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        self.begins();
        let answered = self.client.attempt(attempt).await;
        self.ends();
        answered
    }
}
