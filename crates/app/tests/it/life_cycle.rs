//! How an engine begins and ends, in good order and not.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::{CancelOutcome, ErrorKind, Punctual, Running, Timer};
use tokio::sync::{Notify, mpsc};

use crate::fixture::{Heard, SECOND, at, clock, in_memory, key};

#[tokio::test]
async fn it_starts_once() {
    let (_clock, _heard, punctual, _running) = in_memory().await;
    let error = punctual.start().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains("started before"), "{error}");
}

#[tokio::test]
async fn every_call_after_a_shutdown_is_told_so() {
    let (_clock, _heard, punctual, running) = in_memory().await;
    let report = running.shutdown().await.unwrap();
    assert_eq!(report.unfinished, 0);
    let timer = || Timer::after(key("a"), SECOND);
    let answers = [
        punctual.schedule(timer()).await.map(drop),
        punctual.replace(timer()).await.map(drop),
        punctual.cancel(&key("a")).await.map(drop),
        punctual.find(&key("a")).await.map(drop),
        punctual.dead_letters(None, 1).await.map(drop),
        punctual.start().await.map(drop),
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert!(error.to_string().contains("it was shut down"), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_running_fires_no_more_and_says_why() {
    let (clock, heard, punctual, running) = in_memory().await;
    punctual
        .schedule(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    drop(running);
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(heard.count(), 0);
    let error = punctual.find(&key("a")).await.unwrap_err();
    assert!(
        error.to_string().contains("`Running` was dropped"),
        "{error}"
    );
}

async fn on_disk(path: &Path, heard: &Heard) -> (Punctual, Running) {
    let punctual = heard.builder().sqlite(path).build().await.unwrap();
    let running = punctual.start().await.unwrap();
    (punctual, running)
}

/// Dropped without a word, as in a panic of the caller's: the next engine opens the file and fires
/// what was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_an_engine_that_was_dropped() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let heard = Heard::default();
    let (punctual, running) = on_disk(&path, &heard).await;
    punctual
        .schedule(Timer::after(key("a"), Duration::from_hours(1)))
        .await
        .unwrap();
    drop((punctual, running));

    let clock = FakeClock::new(at("2100-01-01T00:00:00Z"));
    let builder = || heard.builder().sqlite(&path).fake_clock(clock.clone());
    // The first engine may be closing still.
    let punctual = loop {
        match builder().build().await {
            Ok(punctual) => break punctual,
            Err(error) if error.kind() == ErrorKind::InUse => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let running = punctual.start().await.unwrap();
    clock.advance(Duration::ZERO).await;
    assert_eq!(heard.count(), 1);
    running.shutdown().await.unwrap();
}

/// A handler that has begun is finished, and its timer does not fire again.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_handler_in_flight() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let finish = Arc::new(Notify::new());
    let may_finish = Arc::clone(&finish);
    let punctual = Punctual::builder()
        .sqlite(&path)
        .on_due(move |_| {
            let (begun, may_finish) = (begun.clone(), Arc::clone(&may_finish));
            async move {
                begun.send(())?;
                may_finish.notified().await;
                Ok(())
            }
        })
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    punctual
        .schedule(Timer::after(key("a"), Duration::ZERO))
        .await
        .unwrap();
    beginnings.recv().await.unwrap();
    let cancelled = punctual.cancel(&key("a")).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Firing);
    let shutdown = tokio::spawn(running.shutdown());
    finish.notify_one();
    assert_eq!(shutdown.await.unwrap().unwrap().unfinished, 0);
    drop(punctual);

    let heard = Heard::default();
    let clock = clock();
    let builder = heard.builder().sqlite(&path).fake_clock(clock.clone());
    let punctual = builder.build().await.unwrap();
    let entry = punctual.find(&key("a")).await.unwrap().unwrap();
    assert!(entry.reached_at().is_some(), "its mark was waited for, too");
}

/// The host goes on, the engine does not, and everybody can know why.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_file_breaks_stops_and_tells_why() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let (punctual, running) = on_disk(&path, &Heard::default()).await;
    punctual
        .schedule(Timer::after(key("a"), Duration::from_hours(1)))
        .await
        .unwrap();
    damage(&path);
    let timer = Timer::after(key("b"), Duration::ZERO);
    // Whether this one is stored depends on what was read before.
    let _ = punctual.schedule(timer).await;
    let why = running.stopped().await;
    assert_eq!(why.kind(), ErrorKind::Broken, "{why}");
    let later = punctual.find(&key("a")).await.unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Stopped, "{later}");
    let error = running.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken);
}

/// Overwrites the file and its log, as a bad disk or a wrong copy would.
fn damage(path: &Path) {
    for suffix in ["", "-wal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let file = OpenOptions::new().write(true).open(name).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        file.write_all_at(&vec![0x5a; length], 0).unwrap();
    }
}
