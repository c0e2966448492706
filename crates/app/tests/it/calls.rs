//! Service calls on an engine, as an embedder has them: on a fake clock, in memory and on a file.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual::ports::PortErrorKind;
use punctual::service_calls::{
    CallStatus, DeleteCallOutcome, ErrorKind, HttpAttempt, HttpClientPort, HttpFailure,
    HttpResponse, Outcome, ServiceCall, Submission, SubmitOutcome, UnknownFields,
};
use punctual::testing::{ClockPort, FakeClock};
use punctual::{
    CallOptions, Punctual, ServiceCalls, SqliteSettings, TenantId, TimerKey, Timestamp,
};
use punctual_adapters_system::{Handlers, InProcessBus};

/// A target that writes down when it was asked, and answers by path.
#[derive(Clone)]
struct Target {
    clock: FakeClock,
    seen: Arc<Mutex<Vec<(Timestamp, String)>>>,
}

impl Target {
    fn new(clock: &FakeClock) -> Self {
        Self {
            clock: clock.clone(),
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> Vec<(Timestamp, String)> {
        self.seen.lock().unwrap().clone()
    }
}

#[async_trait]
impl HttpClientPort for Target {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        let path = attempt.request.url.path_and_query().into_owned();
        self.seen
            .lock()
            .unwrap()
            .push((self.clock.now(), path.clone()));
        if path == "/hangs" {
            std::future::pending::<()>().await;
        }
        Ok(HttpResponse {
            truncated: false,
            status: if path == "/bad" { 503 } else { 200 },
            headers: Vec::new(),
            body: b"done".to_vec(),
        })
    }
}

fn submission(path: &str, due_at: Timestamp) -> Submission {
    let json = serde_json::json!({
        "name": "call", "dueAt": due_at, "tags": ["a"],
        "requestSpec": {"method": "GET", "url": format!("http://target{path}")},
    });
    Submission::read(TenantId::default(), &json, UnknownFields::Refused).unwrap()
}

async fn submit(calls: &ServiceCalls, path: &str, due_at: Timestamp) -> TimerKey {
    let accepted = calls.submit.submit(submission(path, due_at), None).await;
    match accepted.unwrap() {
        SubmitOutcome::Accepted(receipt) => {
            TimerKey::new(TenantId::default(), receipt.service_call_id)
        }
        other => panic!("{other:?}"),
    }
}

async fn found(calls: &ServiceCalls, key: &TimerKey) -> ServiceCall {
    calls.read.find(key.clone()).await.unwrap().unwrap().call
}

/// The whole life of some calls on an engine.
async fn lives(builder: punctual::Builder, clock: &FakeClock) {
    let target = Target::new(clock);
    let punctual = builder
        .service_calls(CallOptions::new(target.clone()))
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let calls = punctual.calls().unwrap();
    let start = clock.now();
    let due_at = start.saturating_add(Duration::from_hours(2));
    let good = submit(&calls, "/good", due_at).await;
    let bad = submit(&calls, "/bad", due_at).await;
    let hangs = submit(&calls, "/hangs", due_at).await;
    let gone = submit(&calls, "/gone", due_at).await;
    let past = submit(
        &calls,
        "/past",
        start.saturating_sub(Duration::from_hours(1)),
    )
    .await;
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(found(&calls, &past).await.status(), CallStatus::Succeeded);
    assert_eq!(found(&calls, &good).await.status(), CallStatus::Scheduled);
    let deleted = calls.submit.delete(gone.clone(), None).await.unwrap();
    assert_eq!(deleted, DeleteCallOutcome::Deleted);
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(found(&calls, &good).await.status(), CallStatus::Succeeded);
    assert_eq!(found(&calls, &hangs).await.status(), CallStatus::Running);
    clock.advance(Duration::from_mins(1)).await;
    for (key, kind) in [(&bad, ErrorKind::HttpStatus), (&hangs, ErrorKind::Timeout)] {
        let ServiceCall::Finished(call) = found(&calls, key).await else {
            panic!("{key} has no end");
        };
        match call.outcome() {
            Outcome::Failed(error) => assert_eq!(error.kind, kind),
            Outcome::Succeeded(_) => panic!("{key} succeeded"),
        }
    }
    assert!(calls.read.find(gone).await.unwrap().is_none());
    let mut seen = target.seen();
    seen.sort_by(|a, b| a.1.cmp(&b.1));
    let paths: Vec<&str> = seen.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["/bad", "/good", "/hangs", "/past"]);
    assert!(
        seen.iter()
            .all(|(at, path)| path == "/past" || *at == due_at),
        "{seen:?}"
    );
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_lives_its_life_in_memory() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    lives(Punctual::builder().in_memory(clock.clone()), &clock).await;
}

#[tokio::test]
async fn a_call_lives_its_life_on_a_file() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let settings = SqliteSettings::service_calls(folder.path().join("calls.db"));
    let builder = Punctual::builder()
        .sqlite_with(settings)
        .fake_clock(clock.clone());
    lives(builder, &clock).await;
}

#[tokio::test]
async fn calls_and_timers_may_have_a_file_each() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let calls = SqliteSettings::calls_alone(folder.path().join("calls.db"));
    let builder = Punctual::builder()
        .sqlite(folder.path().join("timers.db"))
        .calls_in(calls)
        .fake_clock(clock.clone());
    lives(builder, &clock).await;
}

/// What is told of a call that was submitted, and whether it is published, before anything runs.
async fn told(builder: punctual::Builder, clock: &FakeClock) -> Vec<(&'static str, bool)> {
    let options = CallOptions::new(Target::new(clock));
    let punctual = builder.service_calls(options).build().await.unwrap();
    let calls = punctual.calls().unwrap();
    let submission = submission("/now", clock.now());
    let accepted = calls.submit.submit(submission, None).await.unwrap();
    let SubmitOutcome::Accepted(receipt) = accepted else {
        panic!("{accepted:?}");
    };
    let trace = calls.read.trace(receipt.correlation_id, None, 10);
    let steps = trace.await.unwrap().steps.into_iter();
    steps
        .map(|step| (step.what, step.published_at.is_some()))
        .collect()
}

#[tokio::test]
async fn what_nobody_can_hear_is_not_published_and_on_your_own_bus_everything_is() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let builder = || Punctual::builder().in_memory(clock.clone());
    let bus = InProcessBus::new(Handlers::Inline);
    for (builder, is_published) in [(builder(), true), (builder().bus(bus), false)] {
        assert_eq!(
            told(builder, &clock).await,
            [
                ("ServiceCallSubmitted", is_published),
                ("ServiceCallScheduled", is_published),
                ("ServiceCallRunning", is_published),
                ("StartExecution", false),
            ]
        );
    }
}

/// Fills an engine with calls up to the limit of its files: each of them still comes to its end.
async fn fills_up_and_finishes(builder: punctual::Builder, clock: &FakeClock, folder: &Path) {
    let target = Target::new(clock);
    let options = CallOptions::new(target.clone());
    let punctual = builder.service_calls(options).build().await.unwrap();
    let running = punctual.start().await.unwrap();
    let calls = punctual.calls().unwrap();
    let due_at = clock.now().saturating_add(Duration::from_hours(2));
    let mut accepted = Vec::new();
    let refused = loop {
        let path = format!(
            "/{}?{}",
            accepted.len(),
            "x".repeat(accepted.len() % 4 * 500)
        );
        match calls.submit.submit(submission(&path, due_at), None).await {
            Ok(SubmitOutcome::Accepted(receipt)) => {
                let id = receipt.service_call_id;
                accepted.push(TimerKey::new(TenantId::default(), id));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        assert!(accepted.len() < 10_000, "there is no limit");
    };
    assert_eq!(refused.kind(), PortErrorKind::StorageFull, "{refused}");
    assert!(accepted.len() > 20, "{}", accepted.len());
    assert!(punctual.writable().await.is_err());
    // Once some are deleted, there is room for others.
    for key in accepted.drain(..10) {
        let deleted = calls.submit.delete(key, None).await.unwrap();
        assert_eq!(deleted, DeleteCallOutcome::Deleted);
    }
    accepted.push(submit(&calls, "/again", due_at).await);
    clock.advance(Duration::from_hours(3)).await;
    for key in &accepted {
        let call = found(&calls, key).await;
        assert_eq!(call.status(), CallStatus::Succeeded, "{call:?}");
    }
    assert_eq!(target.seen().len(), accepted.len());
    let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let largest = files.map(|file| file.metadata().unwrap().len()).max();
    assert!(largest.unwrap() <= LIMIT * 9 / 8, "{largest:?}");
    running.shutdown().await.unwrap();
}

const LIMIT: u64 = 2 * 1024 * 1024;

#[tokio::test]
async fn what_a_file_accepted_up_to_its_limit_comes_to_its_end() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut settings = SqliteSettings::service_calls(folder.path().join("calls.db"));
    settings.max_file_bytes = Some(LIMIT);
    let builder = Punctual::builder()
        .sqlite_with(settings)
        .fake_clock(clock.clone());
    fills_up_and_finishes(builder, &clock, folder.path()).await;
}

#[tokio::test]
async fn what_two_files_accepted_up_to_their_limit_comes_to_its_end() {
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut calls = SqliteSettings::calls_alone(folder.path().join("calls.db"));
    calls.max_file_bytes = Some(LIMIT);
    let mut timers = SqliteSettings::timers(folder.path().join("timers.db"));
    // The timers of accepted calls find their place also in a file that is full.
    timers.max_file_bytes = Some(1);
    let builder = Punctual::builder()
        .sqlite_with(timers)
        .calls_in(calls)
        .fake_clock(clock.clone());
    fills_up_and_finishes(builder, &clock, folder.path()).await;
}
