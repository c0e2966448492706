//! How an engine begins and ends, in good order and not.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use punctual::ports::{
    BatchResult, EventBusPort, MessageEnvelope, PortError, PortErrorKind, PublishOutcome,
    Subscribe, Subscription,
};
use punctual::testing::{ClockPort, FakeClock};
use punctual::{CancelOutcome, ErrorKind, Punctual, Running, Timer};
use tokio::sync::{Notify, mpsc};

use crate::fixture::{Heard, SECOND, at, clock, in_memory, key};

#[tokio::test]
async fn it_starts_once() {
    let (_clock, _heard, punctual, _running) = in_memory().await;
    let error = punctual.start().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
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
    let _ = punctual
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

/// An engine on a file whose last engine may be closing still.
async fn once_it_is_free(path: &Path, heard: &Heard, clock: &FakeClock) -> Punctual {
    loop {
        let builder = heard.builder().sqlite(path).fake_clock(clock.clone());
        match builder.build().await {
            Ok(punctual) => return punctual,
            Err(error) if error.kind() == ErrorKind::InUse => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
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
    let _ = punctual
        .schedule(Timer::after(key("a"), Duration::from_hours(1)))
        .await
        .unwrap();
    drop((punctual, running));

    let clock = FakeClock::new(at("2100-01-01T00:00:00Z"));
    let punctual = once_it_is_free(&path, &heard, &clock).await;
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
    let _ = punctual
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

/// What is acknowledged after that would be in a file that nobody finds again.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_file_was_replaced_promises_nothing_and_stops() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let heard = Heard::default();
    let (punctual, running) = on_disk(&path, &heard).await;
    let timer = || Timer::after(key("a"), Duration::from_hours(1));
    let _ = punctual.schedule(timer()).await.unwrap();
    std::fs::copy(&path, folder.path().join("backup")).unwrap();
    std::fs::rename(folder.path().join("backup"), &path).unwrap();
    let refused = punctual.schedule(timer()).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Broken | ErrorKind::Stopped),
        "{refused}"
    );
    // Nothing is due and nobody asks any more: it notices by itself.
    let why = running.stopped().await;
    assert_eq!(why.kind(), ErrorKind::Broken, "{why}");
    assert!(
        why.to_string().contains("renamed, removed or replaced"),
        "{why}"
    );
    let error = running.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken);
}

/// The host goes on, the engine does not, and everybody can know why.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_file_breaks_stops_and_tells_why() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let (punctual, running) = on_disk(&path, &Heard::default()).await;
    let _ = punctual
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

/// A bus that does what it is told.
#[derive(Clone, Default)]
struct OddBus {
    refuses: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
}

struct Subscribed;

#[async_trait]
impl Subscription for Subscribed {
    async fn stop(&self) {}
}

#[async_trait]
impl EventBusPort for OddBus {
    async fn publish(&self, _: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        panic!("this bus panics")
    }

    async fn subscribe(&self, _: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            let kind = PortErrorKind::Unavailable;
            return Err(PortError::new(kind, "subscribe", "not now"));
        }
        Ok(Box::new(Subscribed))
    }
}

#[tokio::test]
async fn a_start_that_the_bus_refused_can_be_repeated() {
    let bus = OddBus::default();
    bus.refuses.store(true, Ordering::SeqCst);
    let builder = Heard::default().builder().bus(bus.clone());
    let punctual = builder.in_memory(clock()).build().await.unwrap();
    let error = punctual.start().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    bus.refuses.store(false, Ordering::SeqCst);
    let _running = punctual.start().await.unwrap();
}

#[tokio::test]
async fn a_start_that_was_broken_off_can_be_repeated() {
    let bus = OddBus::default();
    bus.hangs.store(true, Ordering::SeqCst);
    let builder = Heard::default().builder().bus(bus.clone());
    let punctual = builder.in_memory(clock()).build().await.unwrap();
    let start = punctual.start().now_or_never();
    assert!(start.is_none(), "it waits for the bus");
    bus.hangs.store(false, Ordering::SeqCst);
    let _running = punctual.start().await.unwrap();
}

/// Nobody fires any more, so nobody may be told that what it schedules will be fired by this engine.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panicked_has_stopped_and_gives_its_file_back() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let builder = Punctual::builder().bus(OddBus::default()).sqlite(&path);
    let punctual = builder.build().await.unwrap();
    let running = punctual.start().await.unwrap();
    let timer = || Timer::after(key("a"), Duration::ZERO);
    let _ = punctual.schedule(timer()).await.unwrap();
    let why = running.stopped().await;
    assert!(why.to_string().contains("panicked"), "{why}");
    let error = punctual.schedule(timer()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
    let error = running.shutdown().await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    once_it_is_free(&path, &Heard::default(), &clock()).await;
}

#[test]
fn an_engine_whose_runtime_is_gone_has_stopped_and_gives_its_file_back() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let (punctual, running) = first.block_on(on_disk(&path, &Heard::default()));
    drop(first);
    runtime().block_on(async {
        let why = running.stopped().await;
        // An interrupted poll may be the first to report it.
        assert_eq!(why.kind(), ErrorKind::Stopped, "{why}");
        let error = punctual.find(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
        once_it_is_free(&path, &Heard::default(), &clock()).await;
    });
    drop(running);
}

/// Also on a fake clock, and although somebody keeps a clone of it.
#[tokio::test]
async fn a_dropped_running_gives_its_file_back_while_clones_live() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let clock = clock();
    let kept = once_it_is_free(&path, &Heard::default(), &clock).await;
    drop(kept.start().await.unwrap());
    once_it_is_free(&path, &Heard::default(), &clock).await;
    drop(kept);
}

/// Somebody had not the patience to wait for a handler.
#[tokio::test]
async fn a_shutdown_that_is_dropped_gives_the_file_back_while_clones_live() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let clock = clock();
    let builder = Punctual::builder().sqlite(&path).fake_clock(clock.clone());
    let sleeps_on = clock.clone();
    let builder = builder.on_due(move |_| {
        let clock = sleeps_on.clone();
        async move {
            clock.sleep_for(Duration::from_hours(1)).await;
            Ok(())
        }
    });
    let kept = builder.build().await.unwrap();
    let running = kept.start().await.unwrap();
    let timer = Timer::after(key("a"), Duration::ZERO);
    let _ = kept.schedule(timer).await.unwrap();
    clock.advance(SECOND).await;
    assert!(running.shutdown().now_or_never().is_none());
    once_it_is_free(&path, &Heard::default(), &clock).await;
    drop(kept);
}

/// Another program's lock, as readiness tells of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_written_is_told_and_its_end_too() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("timers.db");
    let heard = Heard::default();
    let (punctual, running) = on_disk(&path, &heard).await;
    punctual.writable().await.unwrap();
    let other = punctual::rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA user_version = 7").unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let problem = loop {
        if let Err(problem) = punctual.writable().await {
            break problem;
        }
        tokio::task::yield_now().await;
    };
    assert!(problem.contains("timers.db"), "{problem}");
    assert!(problem.contains("lock"), "{problem}");
    other.execute_batch("ROLLBACK").unwrap();
    while punctual.writable().await.is_err() {
        tokio::task::yield_now().await;
    }
    let version = other.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    assert_eq!(version.unwrap(), 7, "what the host has there stays");
    running.shutdown().await.unwrap();
}
