//! A full disk, a damaged file, a reader that never ends.

use std::fs::OpenOptions;
use std::time::Duration;

use punctual_adapters_sqlite::{SchemaSet, SqliteTimerStore};
use punctual_domain::TimerData;
use punctual_ports::{
    FiredTimer, MarkOutcome, PortErrorKind, SaveTimer, TimerPersistencePort, TimerQueuePort,
};

use crate::store::{OnFile, at, save_some, timer, with_end};

const KIB: u64 = 1024;

fn large(number: usize) -> SaveTimer {
    let mut timer = timer(number);
    timer.data = Some(TimerData::of(&"x".repeat(8_000)).unwrap());
    timer
}

/// Saves large timers until there is no room; returns how many there was room for.
async fn fill(store: &SqliteTimerStore) -> usize {
    for number in 0..10_000 {
        match store.save(vec![large(number)], at(0)).await {
            Ok(saved) => drop(saved[0].as_ref().unwrap()),
            Err(full) => {
                assert_eq!(full.kind(), PortErrorKind::StorageFull, "{full}");
                assert!(full.is_retryable());
                return number;
            }
        }
    }
    panic!("there was room for everything");
}

#[tokio::test]
async fn a_full_disk_refuses_new_timers_fires_the_stored_ones_and_recovers() {
    let file = OnFile::with(|settings| settings.max_file_bytes = Some(512 * KIB));
    let stored = fill(&file.store).await;
    assert!(stored > 10);
    let due = at(100_000_000);
    let lease = Duration::from_secs(30);
    let batch = file.store.claim_due(due, 1_000, lease).await.unwrap();
    assert_eq!(
        batch.claims.len(),
        stored,
        "what was acknowledged is there, and nothing else"
    );
    let marks = batch.claims.iter().map(|claim| FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: due,
    });
    for marked in file.store.mark_fired(marks.collect()).await.unwrap() {
        assert_eq!(marked.unwrap(), MarkOutcome::Marked);
    }
    let purged = file.store.purge(at(100_000_001), 1_000).await.unwrap();
    assert_eq!(purged, stored);
    save_some(&file.store, 20_000..20_010).await;
}

#[tokio::test]
async fn only_writes_of_a_full_group_that_need_room_fail() {
    let file = OnFile::with(|settings| settings.max_file_bytes = Some(512 * KIB));
    save_some(&file.store, 0..10).await;
    let claims = file.store.claim_due(at(0), 1, Duration::from_secs(30));
    let claim = claims.await.unwrap().claims.remove(0);
    let mark = FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: at(0),
    };
    // More than the file has room for, in one command: SQLite itself finds the end, in the middle.
    let too_many = (100..1_100).map(large).collect();
    let (refused, marked, saved) = tokio::join!(
        file.store.save(too_many, at(0)),
        file.store.mark_fired(vec![mark]),
        file.store.save(vec![timer(20)], at(0)),
    );
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), PortErrorKind::StorageFull, "{refused}");
    assert_eq!(*marked.unwrap()[0].as_ref().unwrap(), MarkOutcome::Marked);
    saved.unwrap();
    assert!(file.store.find(timer(20).key).await.unwrap().is_some());
    let left = file.store.find(timer(100).key).await.unwrap();
    assert_eq!(left, None, "nothing of a refused command is left");
}

#[tokio::test]
async fn a_damaged_file_stops_the_store_permanently() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..5_000).await;
    // Everything into the file itself, so that what is cut off is not in the log as well.
    file.outsider()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let whole = std::fs::read(file.path()).unwrap();
    let bytes = OpenOptions::new().write(true).open(file.path()).unwrap();
    bytes.set_len(3 * 4096).unwrap();
    let broken = file
        .store
        .save((5_000..6_000).map(timer).collect(), at(0))
        .await
        .unwrap_err();
    assert_eq!(broken.kind(), PortErrorKind::Broken, "{broken}");
    let length = bytes.metadata().unwrap().len();
    assert_eq!(length, 3 * 4096, "nothing was written over it");

    // Even if the file is intact again: the store's cache may be wrong.
    std::fs::write(file.path(), whole).unwrap();
    let after = file.store.save(vec![timer(7_000)], at(0)).await;
    let after = after.unwrap_err();
    assert_eq!(after.kind(), PortErrorKind::Broken, "it never carries on");
    assert_eq!(after.operation(), "save timers");
}

#[tokio::test]
async fn a_reader_that_never_ends_bounds_the_log_and_not_the_firing() {
    let limit = 256 * KIB;
    let file = OnFile::with(|settings| settings.max_log_bytes = limit);
    save_some(&file.store, 0..50).await;
    let outsider = file.outsider();
    outsider.execute_batch("BEGIN").unwrap();
    let seen = "SELECT count(*) FROM timer_schedules";
    let count = || {
        outsider
            .query_row(seen, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(count(), 50);

    let mut refused = None;
    for number in 0..10_000 {
        if let Err(error) = file.store.save(vec![large(100 + number)], at(0)).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.kind(), PortErrorKind::StorageFull);
    assert!(
        refused.to_string().contains("read transaction"),
        "{refused}"
    );
    let log = || {
        std::fs::metadata(with_end(file.path(), "-wal"))
            .unwrap()
            .len()
    };
    assert!(log() < 2 * limit, "{}", log());

    let claims = file
        .store
        .claim_due(at(50_000), 10, Duration::from_secs(30));
    let claim = claims.await.unwrap().claims.remove(0);
    let mark = FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: at(50_000),
    };
    let marked = file.store.mark_fired(vec![mark]).await.unwrap();
    assert_eq!(*marked[0].as_ref().unwrap(), MarkOutcome::Marked);

    assert_eq!(count(), 50, "the reader had its snapshot all along");
    outsider.execute_batch("COMMIT").unwrap();
    save_some(&file.store, 60..70).await;
}

#[tokio::test]
async fn without_such_a_reader_the_log_stays_short() {
    let limit = 256 * KIB;
    let file = OnFile::with(|settings| settings.max_log_bytes = limit);
    for number in 0..300 {
        file.store.save(vec![large(number)], at(0)).await.unwrap();
    }
    let log = std::fs::metadata(with_end(file.path(), "-wal"))
        .unwrap()
        .len();
    assert!(log < 2 * limit, "{log}");
}
