//! A store of one's own gets the same builder, handle, hints and shutdown as SQLite.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual::conformance::TimerStoreFixture;
use punctual::ports::{
    Backend, Capabilities, ClockPort, OnChange, PortError, PortErrorKind, SaveTimer,
    ScheduleOrigin, TimerPersistencePort, TimerStores, WriteHealth,
};
use punctual::testing::MemoryTimerStore;
use punctual::{
    CallOptions, DueTimeReached, ErrorKind, NotReady, Punctual, Timer, TimerKey, TimerState,
    Timestamp, http,
};
use punctual_adapters_memory::faults::{Call, Fault, Faults, Faulty};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::fixture::{Heard, SECOND, at, clock, key};

const A_REQUEST: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";

/// What the change feed of [`Mine`] reports.
enum Report {
    Changed,
    Broken,
}

/// Timers in memory, with a change feed, a health and an end that a test has in its hands. Clones share
/// all of it.
#[derive(Clone)]
struct Mine {
    timers: MemoryTimerStore,
    capabilities: Capabilities,
    feed: UnboundedSender<Report>,
    reports: Arc<tokio::sync::Mutex<UnboundedReceiver<Report>>>,
    problem: Arc<Mutex<Option<PortError>>>,
    /// Of the queue.
    faults: Faults,
    closed: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Mine {
    fn new() -> Self {
        let (feed, reports) = unbounded_channel();
        Self {
            timers: MemoryTimerStore::new(),
            capabilities: Capabilities::default(),
            feed,
            reports: Arc::new(tokio::sync::Mutex::new(reports)),
            problem: Arc::default(),
            faults: Faults::new(Arc::new(clock())),
            closed: Arc::default(),
            dropped: Arc::default(),
        }
    }

    fn report(&self, report: Report) {
        assert!(self.feed.send(report).is_ok());
    }

    /// What somebody else commits, past the engine.
    async fn commit_elsewhere(&self, key: TimerKey, due_at: Timestamp) {
        let timer = SaveTimer {
            key,
            correlation_id: A_REQUEST.parse().unwrap(),
            due_at,
            data: None,
            origin: ScheduleOrigin::Direct,
        };
        let saved = TimerPersistencePort::save(&self.timers, vec![timer], Timestamp::MIN).await;
        saved.unwrap().remove(0).unwrap();
    }
}

#[async_trait]
impl Backend for Mine {
    fn timer_stores(&self) -> TimerStores {
        let stores = TimerStores::new(self.timers.clone());
        TimerStores {
            queue: Arc::new(Faulty::new(Arc::new(self.timers.clone()), &self.faults)),
            ..stores
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn name(&self) -> String {
        "my store".to_owned()
    }

    async fn watch(&self, _clock: Arc<dyn ClockPort>, on_change: OnChange) -> PortError {
        let mut reports = self.reports.lock().await;
        while let Some(Report::Changed) = reports.recv().await {
            on_change();
        }
        PortError::new(PortErrorKind::Broken, "rely on the store", "it is gone")
    }

    fn write_health(&self) -> WriteHealth {
        WriteHealth {
            commits: 0,
            problem: self.problem.lock().unwrap().clone(),
        }
    }

    async fn probe_write(&self) -> Result<(), PortError> {
        match self.problem.lock().unwrap().clone() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    async fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    fn close_soon(&self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// On the machine's clock, with a poll that no test waits for.
async fn running(
    mine: &Mine,
) -> (
    Punctual,
    punctual::Running,
    UnboundedReceiver<DueTimeReached>,
) {
    let (fired, firings) = unbounded_channel();
    let built = Punctual::builder()
        .store(mine.clone())
        .on_due(move |due| std::future::ready(fired.send(due).map_err(Into::into)))
        .polling_interval(Duration::from_hours(1))
        .build()
        .await;
    let punctual = built.unwrap();
    let running = punctual.start().await.unwrap();
    (punctual, running, firings)
}

#[tokio::test]
async fn it_keeps_timers_fires_them_and_is_closed_in_the_end() {
    let (mine, clock, heard) = (Mine::new(), clock(), Heard::default());
    let builder = heard
        .builder()
        .store(mine.clone())
        .fake_clock(clock.clone());
    let punctual = builder.build().await.unwrap();
    assert_eq!(punctual.readiness(), Err(NotReady::NotStarted));
    let running = punctual.start().await.unwrap();
    let _ = punctual
        .schedule(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 1);
    let kept = mine.timers.find(key("a")).await.unwrap().unwrap();
    assert_eq!(kept.state(), TimerState::Reached);
    assert_eq!(mine.closed.load(Ordering::SeqCst), 0);
    running.shutdown().await.unwrap();
    assert_eq!(mine.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn its_change_feed_wakes_the_worker() {
    let mine = Mine::new();
    let (punctual, running, mut firings) = running(&mine).await;
    let now = punctual.now();
    let _ = punctual
        .schedule(Timer::at(key("ours"), now))
        .await
        .unwrap();
    assert_eq!(firings.recv().await.unwrap().key(), key("ours"));
    mine.commit_elsewhere(key("theirs"), now).await;
    mine.report(Report::Changed);
    assert_eq!(firings.recv().await.unwrap().key(), key("theirs"));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_engine_stops_as_broken_when_its_store_cannot_be_relied_on() {
    let mine = Mine::new();
    let (punctual, running, _firings) = running(&mine).await;
    mine.report(Report::Broken);
    let why = running.stopped().await;
    assert_eq!(why.kind(), ErrorKind::Broken);
    assert!(why.to_string().contains("it is gone"), "{why}");
    let refused = punctual.ensure(Timer::after(key("a"), SECOND)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Stopped);
    let error = running.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken);
    assert_eq!(mine.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn dropping_what_runs_closes_it_without_waiting() {
    let mine = Mine::new();
    let (_punctual, running, _firings) = running(&mine).await;
    drop(running);
    assert!(mine.dropped.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn why_it_takes_nothing_new_is_said_with_its_name() {
    let (mine, clock) = (Mine::new(), clock());
    let builder = Heard::default().builder().store(mine.clone());
    let punctual = builder.fake_clock(clock.clone()).build().await.unwrap();
    assert_eq!(punctual.writable().await, Ok(()));
    let full = PortError::new(PortErrorKind::StorageFull, "save timers", "no room");
    *mine.problem.lock().unwrap() = Some(full);
    let why = punctual.writable().await.unwrap_err();
    assert_eq!(why, "my store: failed to save timers: no room");
    *mine.problem.lock().unwrap() = None;
    clock.advance(2 * SECOND).await;
    assert_eq!(punctual.writable().await, Ok(()));
}

#[tokio::test]
async fn an_engine_whose_polls_fail_for_more_than_five_seconds_is_not_ready() {
    let (mine, clock) = (Mine::new(), clock());
    let builder = Heard::default().builder().store(mine.clone());
    let punctual = builder.fake_clock(clock.clone()).build().await.unwrap();
    let running = punctual.start().await.unwrap();
    clock.advance(60 * SECOND).await;
    assert_eq!(punctual.readiness(), Ok(()));
    let fails = Fault::FailBefore(PortErrorKind::Unavailable);
    let is_claim = |operation: &str| operation.starts_with("claim_due");
    let decide = move |call: Call| is_claim(call.operation).then_some(fails);
    mine.faults.decide(decide);
    // The first one fails when time begins to pass.
    clock.advance(5 * SECOND).await;
    assert_eq!(punctual.readiness(), Ok(()));
    clock.advance(SECOND).await;
    let why = "my store: no poll for due timers has succeeded for 6 s".to_owned();
    assert_eq!(punctual.readiness(), Err(NotReady::Polls(why)));
    assert_eq!(punctual.writable().await, Ok(()));
    mine.faults.clear();
    clock.advance(5 * SECOND).await;
    assert_eq!(punctual.readiness(), Ok(()));
    running.shutdown().await.unwrap();
}

/// A handler commits a timer past the handle while time passes, and announces it.
#[tokio::test]
async fn an_announced_timer_is_found_at_its_instant_long_before_the_next_poll() {
    let (mine, clock, heard) = (Mine::new(), clock(), Heard::default());
    let (theirs, hearing) = (mine.clone(), heard.clone());
    let next = at("2026-12-24T00:20:00Z");
    let built = Punctual::builder()
        .on_due_with(move |due, punctual| {
            let (theirs, is_first) = (theirs.clone(), due.key() == key("first"));
            hearing.hear(due);
            async move {
                if is_first {
                    theirs.commit_elsewhere(key("next"), next).await;
                    punctual.expect_due_at(next);
                }
                Ok(())
            }
        })
        .store(mine)
        .fake_clock(clock.clone())
        .build()
        .await;
    let punctual = built.unwrap();
    let _running = punctual.start().await.unwrap();
    let first = Timer::after(key("first"), Duration::from_mins(10));
    let _ = punctual.schedule(first).await.unwrap();
    clock.advance(Duration::from_mins(30)).await;
    let heard = heard.all();
    assert_eq!(heard.len(), 2, "the poll is an hour away");
    assert_eq!(heard[1].reached_at, next);
}

#[tokio::test]
async fn one_that_does_not_fire_is_a_client() {
    let mut mine = Mine::new();
    mine.capabilities.fires = false;
    let refused = Heard::default().builder().store(mine.clone()).build().await;
    let error = refused.expect_err("it fires nothing");
    assert!(error.to_string().contains("fires nothing"), "{error}");
    let client = Punctual::builder().store(mine).build().await.unwrap();
    assert_eq!(client.readiness(), Ok(()));
    let error = client.start().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn service_calls_need_a_store_that_keeps_them() {
    let mine = Mine::new();
    let http = http::HyperHttpClient::new(http::AllowedNets::default(), http::Roots::none());
    let calls = CallOptions::new(http.unwrap());
    let builder = Punctual::builder().store(mine.clone()).service_calls(calls);
    let error = builder.build().await.expect_err("it keeps no calls");
    assert_eq!(error.kind(), ErrorKind::Config);
    let said = error.to_string();
    assert!(said.contains("my store keeps no service calls"), "{said}");
    assert_eq!(mine.closed.load(Ordering::SeqCst), 1, "nothing stays open");
}

#[async_trait]
impl TimerStoreFixture for Mine {
    fn timer_stores(&self) -> TimerStores {
        Backend::timer_stores(self)
    }

    async fn crash_and_reopen(&mut self) {
        self.timers.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
    }
}

/// The suites run as they come with the library; the store itself is tested where it is.
mod contract {
    use super::Mine;
    punctual::conformance::dead_letter_suite!(Mine::new());
}
