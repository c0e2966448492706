//! Other programs on the same file: lockers, writers, and clients that delete.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_sqlite::{SchemaSet, SqliteTimerStore};
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{
    ClockPort, DeleteOutcome, FiredTimer, MarkOutcome, PortErrorKind, SaveOutcome,
    TimerPersistencePort, TimerQueuePort,
};

use crate::store::{OnFile, at, save_some, timer, with_end};

async fn delete(store: &SqliteTimerStore, key: TimerKey, now: i64) -> DeleteOutcome {
    store
        .delete(vec![key], at(now))
        .await
        .unwrap()
        .remove(0)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn short_locks_of_other_programs_cause_no_errors() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let (stop, stopped) = mpsc::channel::<()>();
    let mut outsider = file.outsider();
    let locker = std::thread::spawn(move || {
        let mut locked = 0;
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let lock = outsider
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                .unwrap();
            lock.execute("CREATE TABLE IF NOT EXISTS mine (x)", [])
                .unwrap();
            lock.commit().unwrap();
            locked += 1;
        }
        locked
    });
    let savers: Vec<_> = (0..8)
        .map(|saver| {
            let store = file.store.clone();
            tokio::spawn(async move {
                for number in 0..100 {
                    let timer = timer(saver * 100 + number);
                    let saved = store.save(vec![timer], at(0)).await.unwrap();
                    assert_eq!(*saved[0].as_ref().unwrap(), SaveOutcome::Created);
                }
            })
        })
        .collect();
    for saver in savers {
        saver.await.unwrap();
    }
    stop.send(()).unwrap();
    assert!(locker.join().unwrap() > 0);
}

#[tokio::test]
async fn a_lock_that_is_not_released_is_a_retryable_busy_error() {
    let file = OnFile::with(|settings| settings.busy_timeout = Duration::from_millis(20));
    let mut outsider = file.outsider();
    let lock = outsider
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .unwrap();
    let refused = file.store.save(vec![timer(1)], at(0)).await.unwrap_err();
    assert_eq!(refused.kind(), PortErrorKind::Busy);
    assert!(refused.is_retryable());
    let claimed = file
        .store
        .claim_due(at(0), 10, Duration::from_secs(30))
        .await;
    assert!(claimed.is_ok(), "firing does not wait for the lock");
    drop(lock);
    save_some(&file.store, 1..2).await;
}

#[tokio::test]
async fn a_client_that_ends_does_not_checkpoint_the_log() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let client = file.client();
    save_some(&client, 0..1).await;
    client.close().await;
    // A complete checkpoint would wait for every reader while it holds the write lock.
    let log = std::fs::metadata(with_end(file.path(), "-wal")).unwrap();
    assert!(log.len() > 0);
}

#[tokio::test]
async fn what_another_program_commits_is_noticed_and_our_own_commits_are_not() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let client = file.client();
    let clock = FakeClock::new(Timestamp::MIN);
    let noticed = Arc::new(AtomicUsize::new(0));
    let (store, shared) = (file.store.clone(), Arc::clone(&noticed));
    let for_watch: Arc<dyn ClockPort> = Arc::new(clock.clone());
    let watching = tokio::spawn(async move {
        let on_commit = || _ = shared.fetch_add(1, Ordering::SeqCst);
        store.watch_foreign_commits(for_watch, on_commit).await;
    });
    let mut expected = 1; // The first call.
    until(&clock, &noticed, expected).await;
    for number in 0..3 {
        save_some(&client, number..number + 1).await;
        expected += 1;
        until(&clock, &noticed, expected).await;
    }
    save_some(&file.store, 10..20).await;
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1)).await;
        // The watch waits for the writer's thread, and so does this test.
        file.store.delete(vec![timer(99).key], at(0)).await.unwrap();
    }
    assert_eq!(noticed.load(Ordering::SeqCst), expected);
    file.store.close().await;
    clock.advance(Duration::from_secs(2)).await;
    watching.await.unwrap();
}

async fn until(clock: &FakeClock, noticed: &AtomicUsize, expected: usize) {
    for _ in 0..100_000 {
        if noticed.load(Ordering::SeqCst) == expected {
            return;
        }
        clock.advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    panic!("{} of {expected}", noticed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_client_deletes_nothing_that_the_other_process_may_be_firing() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let client = file.client();
    save_some(&file.store, 0..100).await;
    let (soon, later) = (timer(15).key, timer(60).key);
    assert_eq!(
        delete(&client, soon.clone(), 10_000).await,
        DeleteOutcome::Firing
    );
    assert_eq!(delete(&client, later, 10_000).await, DeleteOutcome::Deleted);
    assert_eq!(
        delete(&file.store, soon, 10_000).await,
        DeleteOutcome::Deleted
    );
}

#[tokio::test]
async fn a_client_alone_on_the_file_deletes_what_is_due() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..10).await;
    file.store.close().await;
    let client = file.client();
    assert_eq!(
        delete(&client, timer(5).key, 9_000).await,
        DeleteOutcome::Deleted
    );
}

#[tokio::test]
async fn a_timer_that_another_program_reschedules_can_be_claimed_again() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let client = file.client();
    save_some(&file.store, 5..6).await;
    let lease = Duration::from_mins(10);
    let first = file.store.claim_due(at(5_000), 10, lease).await.unwrap();
    let mut moved = timer(5);
    moved.due_at = at(7_000);
    client.save(vec![moved], at(6_000)).await.unwrap();
    let second = file.store.claim_due(at(7_000), 10, lease).await.unwrap();
    assert_eq!(
        second.claims.len(),
        1,
        "the claim of the old schedule has no lease"
    );
    let released = file.store.release(vec![first.claims[0].reference()]).await;
    assert_eq!(
        *released.unwrap()[0].as_ref().unwrap(),
        punctual_ports::ClaimOutcome::Lost
    );
}

#[tokio::test]
async fn a_firing_marks_neither_a_rescheduled_timer_nor_one_that_reuses_its_rowid() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let client = file.client();
    save_some(&file.store, 5..7).await;
    let lease = Duration::from_mins(10);
    let claims = file
        .store
        .claim_due(at(6_000), 10, lease)
        .await
        .unwrap()
        .claims;
    let mut moved = timer(5);
    moved.due_at = at(7_000);
    client.save(vec![moved], at(6_000)).await.unwrap();
    // The last row of the table is removed, so the next one gets its rowid.
    let outsider = file.outsider();
    let removed = outsider.execute(
        "DELETE FROM timer_schedules WHERE service_call_id = ?1",
        [timer(6).key.service_call_id.to_string()],
    );
    assert_eq!(removed.unwrap(), 1);
    let mut other = timer(6);
    other.key = timer(66).key;
    client.save(vec![other], at(0)).await.unwrap();

    let marks = claims.iter().map(|claim| FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: at(6_000),
    });
    let marked = file.store.mark_fired(marks.collect()).await.unwrap();
    let marked: Vec<_> = marked.into_iter().map(Result::unwrap).collect();
    assert_eq!(marked, [MarkOutcome::Moved, MarkOutcome::NotFound]);
    let again = file.store.claim_due(at(7_000), 10, lease).await.unwrap();
    let keys: Vec<_> = again
        .claims
        .into_iter()
        .map(|claim| claim.timer.key)
        .collect();
    assert_eq!(keys, [timer(66).key, timer(5).key]);
}

/// The locks of this process on a file, as one reading of `/proc/locks` has them. They are the
/// process's: closing any descriptor of the file drops them all, and the last of others to close
/// would then remove the log under us.
///
/// The kernel gives that list a page at a time. If other processes take or drop locks between two
/// pages, a line of ours is given twice or not at all, so a single reading proves no absence.
#[cfg(target_os = "linux")]
fn locks_on(path: &std::path::Path) -> BTreeSet<String> {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let owner = format!(" {} ", std::process::id());
    let all = std::fs::read_to_string("/proc/locks").unwrap();
    let ours = all
        .lines()
        .filter(|line| line.contains(&inode) && line.contains(&owner));
    ours.filter_map(|line| line.split_once(": "))
        .map(|(_, lock)| lock.to_owned())
        .collect()
}

/// All locks that a number of readings show: a lock that is held is in one of them.
#[cfg(target_os = "linux")]
fn locks_seen_on(path: &std::path::Path) -> BTreeSet<String> {
    (0..20).flat_map(|_| locks_on(path)).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn opening_a_file_once_more_keeps_the_locks_that_this_process_has_on_it() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..1).await;
    let before = locks_seen_on(file.path());
    assert!(!before.is_empty(), "it is in use");
    let client = file.client();
    client.close().await;
    let refused = SqliteTimerStore::open(&file.settings, at(0));
    assert!(refused.is_err(), "its role is taken");
    assert_eq!(locks_seen_on(file.path()), before);
}
