//! The cost of an idle store, which must be negligible.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_sqlite::OnStatement;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, TimerQueuePort};

use crate::store::{OnFile, at, save_some, timer};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_poll_with_nothing_due_is_one_statement() {
    static STATEMENTS: AtomicUsize = AtomicUsize::new(0);
    let file = OnFile::with(|settings| {
        settings.on_statement = Some(OnStatement(|_| {
            _ = STATEMENTS.fetch_add(1, Ordering::SeqCst);
        }));
    });
    save_some(&file.store, 100..110).await;
    for second in 1..5 {
        let before = STATEMENTS.load(Ordering::SeqCst);
        let batch = file.store.claim_due(at(second), 5, LEASE).await.unwrap();
        assert_eq!(batch.next_due_at, Some(timer(100).due_at));
        assert_eq!(STATEMENTS.load(Ordering::SeqCst) - before, 1);
    }
    // The same if all due timers are in flight.
    let now = timer(101).due_at;
    let claimed = file.store.claim_due(now, 5, LEASE).await.unwrap();
    assert_eq!(claimed.claims.len(), 2);
    let before = STATEMENTS.load(Ordering::SeqCst);
    let batch = file.store.claim_due(now, 5, LEASE).await.unwrap();
    assert_eq!(batch.next_due_at, Some(timer(102).due_at));
    assert_eq!(STATEMENTS.load(Ordering::SeqCst) - before, 1);
}

#[tokio::test]
async fn without_writes_the_watch_for_foreign_commits_runs_no_statement() {
    static STATEMENTS: AtomicUsize = AtomicUsize::new(0);
    static NOTICED: AtomicUsize = AtomicUsize::new(0);
    let file = OnFile::with(|settings| {
        settings.on_statement = Some(OnStatement(|_| {
            _ = STATEMENTS.fetch_add(1, Ordering::SeqCst);
        }));
    });
    let opening = STATEMENTS.load(Ordering::SeqCst);
    let clock = FakeClock::new(Timestamp::MIN);
    let for_watch: Arc<dyn ClockPort> = Arc::new(clock.clone());
    let store = file.store.clone();
    let watching = tokio::spawn(async move {
        let on_commit = || _ = NOTICED.fetch_add(1, Ordering::SeqCst);
        store.watch_foreign_commits(for_watch, on_commit).await;
    });
    // The first check, and three more after the first change.
    pass_seconds_until(&clock, &STATEMENTS, opening + 4).await;
    for _ in 0..60 {
        pass_a_second(&clock).await;
    }
    assert_eq!(STATEMENTS.load(Ordering::SeqCst), opening + 4);
    assert_eq!(NOTICED.load(Ordering::SeqCst), 1);

    let outsider = file.outsider();
    outsider.execute_batch("CREATE TABLE mine (x)").unwrap();
    pass_seconds_until(&clock, &NOTICED, 2).await;
    file.store.close().await;
    pass_a_second(&clock).await;
    pass_a_second(&clock).await;
    watching.await.unwrap();
}

async fn pass_a_second(clock: &FakeClock) {
    clock.advance(Duration::from_secs(1)).await;
    tokio::task::yield_now().await;
}

/// Lets time pass while the writer's thread works.
async fn pass_seconds_until(clock: &FakeClock, counted: &AtomicUsize, wanted: usize) {
    for _ in 0..100_000 {
        if counted.load(Ordering::SeqCst) == wanted {
            return;
        }
        pass_a_second(clock).await;
    }
    panic!("{} of {wanted}", counted.load(Ordering::SeqCst));
}
