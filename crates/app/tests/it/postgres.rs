//! Timers in a PostgreSQL database: one engine, several, clients, and addresses that are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use punctual::ports::ClockPort;
use punctual::service_calls::{
    CallStatus, HttpAttempt, HttpClientPort, HttpFailure, HttpResponse, Submission, SubmitOutcome,
    UnknownFields,
};
use punctual::testing::FakeClock;
use punctual::{
    CallOptions, Error, ErrorKind, PostgresSettings, PostgresUrl, Punctual, TenantId, Timer,
    TimerKey,
};
use punctual_adapters_system::SystemClock;
use punctual_test_servers::{SharedDatabase, SharedSchema, shared_postgres_url};
use tokio::sync::{Notify, mpsc};

use crate::fixture::key;

fn settings(schema: &SharedSchema) -> PostgresSettings {
    PostgresSettings {
        schema: Some(schema.name().to_owned()),
        ..PostgresSettings::timers(PostgresUrl::new(schema.url()).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_takes_the_place_of_a_file() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let (fired, mut heard) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .postgres(database.url())
        .on_due(move |due| std::future::ready(fired.send(due.key()).map_err(Into::into)))
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let timer = Timer::after(key("tea"), Duration::from_millis(50));
    let _ = punctual.schedule(timer).await.unwrap();
    assert_eq!(heard.recv().await, Some(key("tea")));
    assert_eq!(running.shutdown().await.unwrap().unfinished, 0);
    let gone = punctual.schedule(Timer::after(key("tea"), Duration::ZERO));
    assert_eq!(gone.await.unwrap_err().kind(), ErrorKind::Stopped);

    // A client reads what the engine has fired, and fires nothing.
    let client = Punctual::builder().postgres_client(database.url());
    let client = client.build().await.unwrap();
    let entry = client.find(&key("tea")).await.unwrap().unwrap();
    assert!(entry.reached_at().is_some());
    let error = client.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_releases_when_it_stops_is_fired_by_another_at_once() {
    let Some(schema) = SharedSchema::create() else {
        return;
    };
    let (started, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, held) = (Arc::clone(&started), Arc::clone(&release));
    let hanging = Punctual::builder()
        .postgres_with(settings(&schema))
        .on_due(move |_| {
            let (counted, held) = (Arc::clone(&counted), Arc::clone(&held));
            async move {
                counted.fetch_add(1, Ordering::AcqRel);
                held.notified().await;
                Ok(())
            }
        })
        .build()
        .await
        .unwrap();
    let timers = (0..100).map(|n| Timer::after(key(&n.to_string()), Duration::ZERO));
    hanging.schedule_all(timers).await.unwrap();
    let stopping = hanging.start().await.unwrap();
    // As many as one tenant may have.
    while started.load(Ordering::Acquire) < 64 {
        tokio::task::yield_now().await;
    }
    let (fired, mut heard) = mpsc::unbounded_channel();
    let other = Punctual::builder()
        .postgres_with(settings(&schema))
        .on_due(move |due| std::future::ready(fired.send(due.key()).map_err(Into::into)))
        .build()
        .await
        .unwrap();
    let running = other.start().await.unwrap();
    let clock = SystemClock::start().unwrap();
    let stopped_at = clock.monotonic();
    let shutdown = tokio::spawn(stopping.shutdown());
    for _ in 64..100 {
        heard.recv().await.unwrap();
    }
    let took = clock.monotonic().saturating_sub(stopped_at);
    // Far less than a lease, and twice what is promised: the machine has other things to do.
    assert!(took < Duration::from_secs(2), "{took:?}");
    release.notify_waiters();
    assert_eq!(shutdown.await.unwrap().unwrap().unfinished, 0);
    running.shutdown().await.unwrap();
    assert!(heard.try_recv().is_err(), "each was fired once");
}

#[tokio::test]
async fn a_fake_clock_drives_timers_in_a_database() {
    let Some(schema) = SharedSchema::create() else {
        return;
    };
    let clock = FakeClock::new("2026-12-24T18:00:00Z".parse().unwrap());
    let (fired, mut heard) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .postgres_with(settings(&schema))
        .fake_clock(clock.clone())
        .on_due(move |due| std::future::ready(fired.send(due.due_at).map_err(Into::into)))
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let timer = Timer::after(key("tea"), Duration::from_hours(72));
    let _ = punctual.schedule(timer).await.unwrap();
    clock.advance(Duration::from_hours(71)).await;
    assert!(heard.try_recv().is_err(), "never early");
    clock.advance(Duration::from_hours(1)).await;
    let fired = heard.try_recv().unwrap().to_string();
    assert_eq!(fired, "2026-12-27T18:00:00.000Z");
    running.shutdown().await.unwrap();
}

async fn refusal(url: &str) -> Error {
    let built = Punctual::builder()
        .postgres(url)
        .on_due(|_| async { Ok(()) })
        .build()
        .await;
    let error = built.unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    error
}

#[tokio::test]
async fn a_wrong_address_is_one_sentence_when_it_is_built() {
    let error = refusal("postgres://me:hunter2@/timers").await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().starts_with("cannot build: host"),
        "{error}"
    );
    let error = refusal("postgres://me:hunter2@127.0.0.1:1/timers").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let sentence = "the database postgres://me@127.0.0.1:1/timers does not answer: ";
    assert!(error.to_string().starts_with(sentence), "{error}");
    let Some(server) = shared_postgres_url() else {
        return;
    };
    let error = refusal(&format!("{server}_absent")).await;
    assert_eq!(error.kind(), ErrorKind::Unusable);
    assert!(
        error.to_string().contains("there is no database"),
        "{error}"
    );
    let absent = PostgresSettings {
        schema: Some("absent".to_owned()),
        ..PostgresSettings::timers(PostgresUrl::new(&server).unwrap())
    };
    let built = Punctual::builder().postgres_with(absent);
    let built = built.on_due(|_| async { Ok(()) }).build().await;
    let error = built.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unusable);
    assert!(
        error.to_string().contains("CREATE SCHEMA absent"),
        "{error}"
    );
}

/// Both at once have nowhere to put a timer.
#[tokio::test]
async fn a_file_and_a_database_are_one_too_many() {
    let built = Punctual::builder()
        .sqlite("timers.db")
        .postgres("postgres://me@host/timers")
        .on_due(|_| async { Ok(()) })
        .build()
        .await;
    let error = built.unwrap_err().to_string();
    assert!(error.contains("more than one place"), "{error}");
}

/// A target that says who was asked by whom.
struct Target(
    &'static str,
    mpsc::UnboundedSender<(&'static str, TimerKey)>,
);

#[async_trait]
impl HttpClientPort for Target {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        self.1.send((self.0, attempt.key)).unwrap();
        Ok(HttpResponse {
            truncated: false,
            status: 200,
            headers: Vec::new(),
            body: b"done".to_vec(),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_make_the_calls_of_one_database_each_once() {
    let Some(schema) = SharedSchema::create() else {
        return;
    };
    let (made, mut heard) = mpsc::unbounded_channel();
    let mut engines = Vec::new();
    for name in ["one", "two"] {
        let settings = PostgresSettings {
            set: PostgresSettings::service_calls(PostgresUrl::new(schema.url()).unwrap()).set,
            ..settings(&schema)
        };
        let engine = Punctual::builder()
            .postgres_with(settings)
            .service_calls(CallOptions::new(Target(name, made.clone())))
            .build()
            .await
            .unwrap();
        engines.push((engine.start().await.unwrap(), engine));
    }
    let mut submitted = Vec::new();
    for n in 0..20 {
        let calls = engines[n % 2].1.calls().unwrap();
        let due_at = SystemClock::start().unwrap().now();
        let due_at = due_at.saturating_add(Duration::from_millis(n as u64 % 3 * 100));
        let json = serde_json::json!({
            "name": "call", "dueAt": due_at,
            "requestSpec": {"method": "GET", "url": "http://target/"},
        });
        let call = Submission::read(TenantId::default(), &json, UnknownFields::Refused).unwrap();
        let accepted = calls.submit.submit(call, None).await.unwrap();
        let SubmitOutcome::Accepted(receipt) = accepted else {
            panic!("{accepted:?}");
        };
        submitted.push(TimerKey::new(TenantId::default(), receipt.service_call_id));
    }
    let mut asked = Vec::new();
    while asked.len() < submitted.len() {
        asked.push(heard.recv().await.unwrap().1);
    }
    asked.sort();
    submitted.sort();
    assert_eq!(asked, submitted);
    let reading = engines[0].1.calls().unwrap();
    for key in submitted {
        while {
            let found = reading.read.find(key.clone()).await.unwrap();
            found.unwrap().call.status() != CallStatus::Succeeded
        } {
            tokio::task::yield_now().await;
        }
    }
    for (running, _) in engines {
        assert_eq!(running.shutdown().await.unwrap().unfinished, 0);
    }
    assert!(heard.try_recv().is_err(), "none was made twice");
}
