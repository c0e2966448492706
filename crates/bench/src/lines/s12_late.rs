//! S12-LATE: calls to one host, more of them due within seconds than it may have in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use punctual::CallOptions;
use punctual_adapters_http::{HyperHttpClient, Roots};
use punctual_adapters_sqlite::SqliteSettings;
use punctual_domain::Timestamp;
use punctual_domain::service_call::Submission;
use punctual_ports::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};

use crate::calls::{TENANTS, Target, build, empty_file, submission, submission_json, submit};
use crate::lateness::{Lateness, percentile};
use crate::report::{Measure, Unit};
use crate::rows::tenants;
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "lateness of service calls to one host";

/// Due times a second.
const PER_SECOND: usize = 2_000;
/// From the first submission to the first due time, for each second of due times: submitting is over
/// by then.
const AHEAD: Duration = Duration::from_millis(1_200);
/// Maximum wait for the last request, after its due time.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let (rounds, seconds) = (bench.size(3, 1), bench.size(10, 2));
    let target = Target::start()?;
    let late = bench.in_turns(rounds, 1, |bench, _| one_round(bench, seconds, &target))?;
    let [late] = late.as_slice() else {
        return Err("one side was measured and has no rounds".into());
    };
    let on = format!(
        "{} calls of {TENANTS} tenants to one host, due evenly within {seconds} s, submitted before, the \
         limits of an engine that nobody configured; lateness from the due time to the request, a target \
         in this process that answers at once, synchronous FULL",
        grouped(seconds * PER_SECOND)
    );
    let of = |share: f64| Rounds::of(late, |round: &Vec<f64>| percentile(round, share));
    let measure = |what, late: &Rounds| Measure::of(what, Unit::Milliseconds, late, &on);
    Ok(vec![
        measure("calls to one host, p99", &of(0.99)?).at_most(500.0),
        measure("calls to one host, p50", &of(0.5)?),
    ])
}

/// How late the requests were, in milliseconds, the least late first.
fn one_round(bench: &mut Bench, seconds: usize, target: &Target) -> Outcome<Vec<f64>> {
    let copy = empty_file(bench)?;
    let client = HyperHttpClient::new("127.0.0.0/8".parse()?, Roots::none())?;
    let http = Noting {
        client: Arc::new(client),
        late: Lateness::of(Timestamp::MIN, Timestamp::MAX),
    };
    let count = seconds * PER_SECOND;
    target.answered();
    bench.runtime.block_on(async {
        let settings = SqliteSettings::service_calls(copy.path());
        let (punctual, calls) = build(settings, CallOptions::new(http.clone())).await?;
        let running = punctual.start().await?;
        let first = bench.now().saturating_add(AHEAD * u32::try_from(seconds)?);
        submit(&calls, due_from(first, count, target)?).await?;
        if bench.now() > first {
            return Err("the calls were due before all of them were submitted".into());
        }
        let last = Duration::from_secs(seconds as u64) + AHEAD * u32::try_from(seconds)?;
        let started = Instant::now();
        let mut answered = 0;
        while answered < count {
            if started.elapsed() > last + PATIENCE {
                return Err(format!("{answered} of {count} calls were answered").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            answered += target.answered();
        }
        running.shutdown().await?;
        let late = http.late.sorted()?;
        if late.len() != count {
            return Err(format!("{count} calls were {} requests", late.len()).into());
        }
        Ok(late)
    })
}

/// Calls that say in their URL when they are due, evenly from the first on, the tenants in turn.
fn due_from(first: Timestamp, count: usize, target: &Target) -> Outcome<Vec<Submission>> {
    let step = Duration::from_secs(1) / u32::try_from(PER_SECOND)?;
    let tenants = tenants(TENANTS)?;
    let calls = (0..u32::try_from(count)?).zip(tenants.iter().cycle());
    calls
        .map(|(n, tenant)| {
            let due_at = first.saturating_add(step * n);
            let json = submission_json(&format!("http://{}/{due_at}", target.address), due_at);
            submission(tenant.clone(), &json)
        })
        .collect()
}

/// The real client, noting how late each request begins.
#[derive(Clone)]
struct Noting {
    client: Arc<HyperHttpClient>,
    late: Arc<Lateness>,
}

#[async_trait]
impl HttpClientPort for Noting {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        let path = attempt.request.url.path_and_query();
        if let Ok(due_at) = path.trim_start_matches('/').parse() {
            self.late.note(due_at);
        }
        self.client.attempt(attempt).await
    }
}
