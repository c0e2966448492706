//! S20: two tenants hang on every slot that they may have, and a third one's calls are not late.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use punctual::CallOptions;
use punctual_adapters_sqlite::SqliteSettings;
use punctual_domain::service_call::Submission;
use punctual_domain::{TenantId, Timestamp};
use punctual_ports::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};

use crate::Outcome;
use crate::calls::{build, empty_file, submission, submission_json, submit};
use crate::lateness::{Lateness, percentile};
use crate::report::{Measure, Unit};
use crate::turns::Bench;

pub(super) const WHAT: &str = "calls beside two tenants whose targets never answer";

/// The hosts that never answer the two tenants.
const HOSTS: usize = 4;
/// Calls of each of them to each host: more than it may have under way there.
const HANGING: usize = 70;
/// The third tenant's calls, a second, and how long each takes.
const PER_SECOND: usize = 100;
const TAKES: Duration = Duration::from_millis(100);
/// Maximum wait for them: after it the two tenants' attempts would end.
const PATIENCE: Duration = Duration::from_secs(25);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let (rounds, seconds) = (bench.size(3, 1), bench.size(10, 3));
    let mut measures = Vec::new();
    for (host, where_to) in [("other", "another host"), ("hangs-0", "a host that hangs")] {
        let count = seconds * PER_SECOND;
        let [late] = bench.take_turns(rounds, [&|bench| one_round(bench, host, count)])?;
        let what = format!("a third tenant's calls to {where_to}, p99");
        let on = format!(
            "two tenants with {} calls each to {HOSTS} hosts that never answer, {PER_SECOND} calls a \
             second of the third for {seconds} s, each under way for {TAKES:?}; lateness from the due \
             time to the request, synchronous FULL, no network",
            HOSTS * HANGING
        );
        measures.push(Measure::of(what, Unit::Milliseconds, &late, &on).at_most(250.0));
    }
    Ok(measures)
}

/// How late the third tenant's calls were, in milliseconds.
fn one_round(bench: &mut Bench, host: &str, count: usize) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let http = Hanging {
        hanging: Arc::default(),
        late: Lateness::of(Timestamp::MIN, Timestamp::MAX),
    };
    let mut options = CallOptions::new(http.clone());
    options.settings.drain = Duration::ZERO;
    bench.runtime.block_on(async {
        let settings = SqliteSettings::service_calls(copy.path());
        let (punctual, calls) = build(settings, options).await?;
        let running = punctual.start().await?;
        let (now, mut hanging) = (bench.now(), Vec::new());
        for n in 0..2 * HOSTS * HANGING {
            let (tenant, host) = (["hangs-a", "hangs-b"][n % 2], n / 2 % HOSTS);
            hanging.push(call(tenant, &format!("hangs-{host}"), now)?);
        }
        submit(&calls, hanging).await?;
        http.wait_until_no_more_hang().await;
        let first = bench.now().saturating_add(Duration::from_secs(2));
        let step = Duration::from_secs(1) / u32::try_from(PER_SECOND)?;
        let others = (0..u32::try_from(count)?).map(|n| {
            let due_at = first.saturating_add(step * n);
            call("answers", host, due_at)
        });
        submit(&calls, others.collect::<Outcome<_>>()?).await?;
        let started = Instant::now();
        while http.late.count() < count {
            if started.elapsed() > PATIENCE {
                let made = http.late.count();
                return Err(format!("{made} of {count} calls were made in {PATIENCE:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        running.shutdown().await?;
        percentile(&http.late.sorted()?, 0.99)
    })
}

/// A call that says in its URL when it is due.
fn call(tenant: &str, host: &str, due_at: Timestamp) -> Outcome<Submission> {
    let json = submission_json(&format!("http://{host}.invalid/{due_at}"), due_at);
    submission(TenantId::new(tenant)?, &json)
}

/// A client without a network: it hangs for some tenants, and notes how late the others' requests are.
#[derive(Clone)]
struct Hanging {
    hanging: Arc<AtomicUsize>,
    late: Arc<Lateness>,
}

impl Hanging {
    async fn wait_until_no_more_hang(&self) {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.hanging.load(Ordering::Relaxed);
            if now == before && now > 0 {
                return;
            }
            before = now;
        }
    }
}

#[async_trait]
impl HttpClientPort for Hanging {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        if attempt.key.tenant_id.as_str() != "answers" {
            self.hanging.fetch_add(1, Ordering::Relaxed);
            return pending().await;
        }
        let path = attempt.request.url.path_and_query();
        if let Ok(due_at) = path.trim_start_matches('/').parse() {
            self.late.note(due_at);
        }
        tokio::time::sleep(TAKES).await;
        Ok(HttpResponse {
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
            truncated: false,
        })
    }
}
