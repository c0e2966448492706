//! SUBMIT: taking service calls, over HTTP and by calling the use case.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_api::{ApiParts, ApiSettings, CallsApi, Tokens};
use punctual_domain::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::calls::{
    AT_ONCE, BareCalls, Engine, TENANTS, Transcript, converse, empty_file, submission_json,
    submissions, submit,
};
use crate::ours::{join, shares};
use crate::report::{Measure, Unit};
use crate::rows::tenants;
use crate::stats::rate;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "service calls taken over HTTP, and by calling the use case";

/// Nothing is due while it is measured.
const AHEAD: Duration = Duration::from_hours(1);

/// Where the requests would go to.
const URL: &str = "http://127.0.0.1:9/reminders";

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let count = bench.size(20_000, 4_000);
    let rounds = bench.size(5, 3);
    let calls = first_run(bench, count)?;
    let [http, called, answered, bare] = bench.take_turns(
        rounds,
        [
            &|bench| over_http(bench, count, false),
            &|bench| called(bench, count),
            &|bench| over_http(bench, count, true),
            &|bench| bare(bench, &calls),
        ],
    )?;
    let measure = |what: &str, ours, than, which: &str| {
        let on = format!(
            "{} calls of {TENANTS} tenants onto an empty file, synchronous FULL; bare is {which}",
            grouped(count)
        );
        Measure::of(what, Unit::PerSecond, ours, &on).ratio_to(than)
    };
    let to_case = "64 connections that stay open ÷ 64 tasks calling the use case";
    let to_loop = "64 tasks calling the use case ÷ bare, 64 a transaction";
    let all = "64 connections that stay open ÷ bare, 64 a transaction";
    let to_refused = "64 connections that stay open ÷ the same refused before the store";
    let same_rows = "the loop that inserts the same rows";
    let alone = "the API alone: whole requests whose last field is wrong";
    Ok(vec![
        measure(to_case, &http, &called, "the use case")?,
        measure(to_loop, &called, &bare, same_rows)?,
        measure(all, &http, &bare, same_rows)?.at_least(0.75),
        measure(to_refused, &http, &answered, alone)?,
    ])
}

/// One run that is not measured, whose rows the bare loop inserts.
fn first_run(bench: &mut Bench, count: usize) -> Outcome<Transcript> {
    let copy = empty_file(bench)?;
    submit_directly(bench, &copy.path(), count)?;
    let transcript = Transcript::read(&copy.path())?;
    if transcript.len() != count {
        return Err(format!("{count} submissions made {} calls", transcript.len()).into());
    }
    Ok(transcript)
}

fn called(bench: &mut Bench, count: usize) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let took = submit_directly(bench, &copy.path(), count)?;
    Ok(rate(count, took))
}

fn submit_directly(bench: &Bench, path: &std::path::Path, count: usize) -> Outcome<Duration> {
    let calls = submissions(count, URL, bench.now().saturating_add(AHEAD))?;
    bench.runtime.block_on(async {
        let engine = Engine::open(path, false).await?;
        let started = Instant::now();
        submit(&engine.submit, calls).await?;
        let took = started.elapsed();
        engine.punctual.close().await;
        Outcome::Ok(took)
    })
}

fn bare(bench: &mut Bench, calls: &Transcript) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let mut bare = BareCalls::open(&copy.path())?;
    let started = Instant::now();
    bare.submit(calls, AT_ONCE)?;
    Ok(rate(calls.len(), started.elapsed()))
}

/// Sends requests that are stored, or whole ones that are refused for one field at the end.
fn over_http(bench: &mut Bench, count: usize, refused: bool) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let due_at = bench.now().saturating_add(AHEAD);
    let requests = requests(count, due_at, refused)?;
    let (to_store, wanted) = if refused {
        (0, "HTTP/1.1 4")
    } else {
        (count, "HTTP/1.1 202")
    };
    let clock = bench.clock.clone();
    let took = bench.runtime.block_on(async {
        let engine = Engine::open(&copy.path(), false).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let asked = async { drop(stopped.await) };
        let (parts, settings) = (parts(&engine, &clock)?, ApiSettings::default());
        let router = punctual_api::router(parts);
        let serving = punctual_api::serve(listener, router, settings, Arc::new(clock), asked);
        let serving = tokio::spawn(serving);
        let took = send(address, requests, wanted).await?;
        drop(stop);
        serving.await?;
        engine.punctual.close().await;
        Outcome::Ok(took)
    })?;
    let stored = Transcript::read(&copy.path())?;
    if stored.len() != to_store {
        return Err(format!("{} calls are stored, not {to_store}", stored.len()).into());
    }
    Ok(rate(count, took))
}

fn parts(engine: &Engine, clock: &SystemClock) -> Outcome<ApiParts> {
    let calls = engine.punctual.calls().ok_or("there are no calls")?;
    Ok(ApiParts {
        calls: Some(CallsApi {
            submit: calls.submit,
            read: calls.read,
        }),
        timers: None,
        tokens: Tokens::none(),
        readiness: Arc::new(|| Box::pin(async { Vec::new() })),
        instances: Arc::new(|| Box::pin(async { Ok(Vec::new()) })),
        metrics: Arc::new(String::new),
        ids: Arc::new(UuidIds),
        clock: Arc::new(clock.clone()),
        settings: ApiSettings::default(),
    })
}

/// The requests as bytes, the tenants in turn.
fn requests(count: usize, due_at: Timestamp, refused: bool) -> Outcome<Vec<Vec<u8>>> {
    let mut json = submission_json(URL, due_at);
    if refused {
        json["tags"] = serde_json::json!(["bench", ""]);
    }
    let body = json.to_string();
    let tenants = tenants(TENANTS)?;
    let requests = tenants.iter().cycle().take(count).map(|tenant| {
        format!(
            "POST /api/tenants/{tenant}/service-calls HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    Ok(requests.collect())
}

/// Sends requests on connections that stay open, each waiting for its answer.
async fn send(to: SocketAddr, requests: Vec<Vec<u8>>, wanted: &'static str) -> Outcome<Duration> {
    let mut connections = Vec::new();
    for share in shares(requests, AT_ONCE) {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        connections.push((stream, share));
    }
    let started = Instant::now();
    let mut running = JoinSet::new();
    for (mut stream, share) in connections {
        running.spawn(async move {
            let mut answer = Vec::with_capacity(2_048);
            for request in share {
                converse(&mut stream, &request, &mut answer).await?;
                if !answer.starts_with(wanted.as_bytes()) {
                    let said = String::from_utf8_lossy(&answer).into_owned();
                    return Err(format!("a submission was answered {said}").into());
                }
            }
            Outcome::Ok(())
        });
    }
    join(running).await?;
    Ok(started.elapsed())
}
