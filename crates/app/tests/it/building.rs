//! Every mistake in putting an engine together is told at once, with what would be right.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use punctual::{ErrorKind, Punctual, SqliteSettings, WorkerSettings};

use crate::fixture::{Heard, clock};

async fn refusal(builder: punctual::Builder) -> String {
    let error = builder.build().await.expect_err("it must not build");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(!error.is_retryable());
    error.to_string()
}

#[tokio::test]
async fn all_that_is_missing_is_named_in_one_sentence() {
    let said = refusal(Punctual::builder()).await;
    assert!(said.contains("call `sqlite`"), "{said}");
    assert!(said.contains("call `on_due`, `bus`, or `nats`"), "{said}");
    assert!(!said.contains('\n'));
}

#[tokio::test]
async fn what_was_said_twice_is_refused() {
    let builder = Heard::default().builder();
    let said = refusal(builder.sqlite("a.db").in_memory(clock())).await;
    assert!(said.contains("more than one place"), "{said}");
    let builder = Heard::default().builder().in_memory(clock());
    let said = refusal(builder.on_due(|_| async { Ok(()) })).await;
    assert!(said.contains("more than one handler"), "{said}");
    assert!(!std::path::Path::new("a.db").exists(), "nothing was opened");
}

#[tokio::test]
async fn settings_that_make_no_sense_are_named() {
    let builder = || Heard::default().builder().in_memory(clock());
    let said = refusal(builder().polling_interval(Duration::ZERO)).await;
    assert!(
        said.contains("polling_interval is 0ns: give 10 ms"),
        "{said}"
    );
    let said = refusal(builder().keep_fired_for(Duration::from_secs(1))).await;
    assert!(said.contains("keep is 1s: give an hour"), "{said}");
    let settings = WorkerSettings {
        batch_size: 0,
        ..WorkerSettings::default()
    };
    let said = refusal(builder().worker(settings)).await;
    assert!(said.contains("batch_size is 0"), "{said}");
    let said = refusal(builder().take_commands()).await;
    assert!(said.contains("call `bus`"), "{said}");
}

#[tokio::test]
async fn a_client_fires_nothing_and_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let said = refusal(Heard::default().builder().sqlite_client(&path)).await;
    assert!(said.contains("fires nothing"), "{said}");
    let client = Punctual::builder().sqlite_client(&path);
    let client = client.build().await.unwrap();
    let error = client.start().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`sqlite_client`"), "{error}");
}

#[test]
fn without_a_runtime_it_says_so_instead_of_panicking() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let build = pin!(Heard::default().builder().sqlite(&path).build());
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = build.poll(&mut context) else {
        panic!("it must answer at once");
    };
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_told_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are no timers, but rather a text of mine").unwrap();
    let built = Heard::default().builder().sqlite(&path).build().await;
    let error = built.expect_err("it must not build");
    assert_eq!(error.kind(), ErrorKind::Unusable);
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert!(error.advice().contains("name another"));
}

#[tokio::test]
async fn a_file_has_one_engine_and_any_number_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let builder = || Heard::default().builder();
    let first = builder().sqlite(&path).build().await.unwrap();
    // On a fake clock nobody waits for the other one to end.
    let second = builder().fake_clock(clock()).sqlite(&path);
    let error = second.build().await.expect_err("the role is taken");
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.is_retryable());
    assert!(error.advice().contains("sqlite_client"));
    let client = SqliteSettings::client(&path);
    let client = Punctual::builder().sqlite_with(client).build().await;
    client.unwrap().close().await;
    first.close().await;
    let third = builder().fake_clock(clock()).sqlite(&path);
    third.build().await.expect("the role is free again");
}
