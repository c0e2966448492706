//! Claims are made on a snapshot while the writer commits: no timer whose deletion or mark was
//! acknowledged may be claimed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_adapters_sqlite::{SchemaSet, SqliteTimerStore};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey, Timestamp};
use punctual_ports::{
    Claim, DeleteOutcome, FiredTimer, SaveTimer, TimerPersistencePort, TimerQueuePort,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::store::{OnFile, at};

const NOW: i64 = 1_000_000;

fn key(number: usize) -> TimerKey {
    let tenant = TenantId::new(&format!("tenant-{}", number % 7)).unwrap();
    TimerKey::named(tenant, &number.to_string())
}

fn due_now(key: TimerKey) -> SaveTimer {
    SaveTimer {
        key,
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: at(NOW),
        data: None,
        origin: ScheduleOrigin::Direct,
    }
}

/// Claims until told to stop and nothing is left; returns every key it was given, with repetitions.
async fn claim_and_mark(store: SqliteTimerStore, stop: Arc<AtomicBool>) -> Vec<TimerKey> {
    let mut given = Vec::new();
    let mut marks = JoinSet::new();
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        let lease = Duration::from_secs(30);
        let batch = store.claim_due(at(NOW), 16, lease).await.unwrap();
        if stopping && batch.claims.is_empty() && !batch.more_due {
            while let Some(marked) = marks.join_next().await {
                marked.unwrap();
            }
            return given;
        }
        given.extend(batch.claims.iter().map(|claim| claim.timer.key.clone()));
        // Not awaited: the next poll runs while these are being committed.
        marks.spawn(mark(store.clone(), batch.claims));
        tokio::task::yield_now().await;
    }
}

async fn mark(store: SqliteTimerStore, claims: Vec<Claim>) {
    let marks = claims.iter().map(|claim| FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: at(NOW),
    });
    for marked in store.mark_fired(marks.collect()).await.unwrap() {
        marked.unwrap();
    }
}

fn run<T>(race: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
        .block_on(race)
}

#[test]
fn a_timer_whose_deletion_was_acknowledged_is_never_claimed() {
    run(async {
        let file = OnFile::new(SchemaSet::TimersOnly);
        let stop = Arc::new(AtomicBool::new(false));
        let claiming = tokio::spawn(claim_and_mark(file.store.clone(), Arc::clone(&stop)));
        let (mut deleted, mut too_late) = (HashSet::new(), 0);
        for number in 0..4_000 {
            let key = key(number);
            let saved = file.store.save(vec![due_now(key.clone())], at(NOW)).await;
            saved.unwrap().remove(0).unwrap();
            let outcome = file.store.delete(vec![key.clone()], at(NOW)).await;
            match outcome.unwrap().remove(0).unwrap() {
                DeleteOutcome::Deleted => drop(deleted.insert(key)),
                _ => too_late += 1,
            }
        }
        stop.store(true, Ordering::SeqCst);
        let given: HashSet<_> = claiming.await.unwrap().into_iter().collect();
        assert_eq!(given.intersection(&deleted).count(), 0);
        assert_eq!(
            given.len() + deleted.len(),
            4_000,
            "each was one or the other"
        );
        assert!(too_late > 0 && !deleted.is_empty(), "there was no race");
    });
}

#[test]
fn a_timer_that_was_marked_is_never_claimed_again() {
    run(async {
        let file = OnFile::new(SchemaSet::TimersOnly);
        let stop = Arc::new(AtomicBool::new(false));
        let claiming = tokio::spawn(claim_and_mark(file.store.clone(), Arc::clone(&stop)));
        for batch in 0..200 {
            let timers = (0..50).map(|number| due_now(key(batch * 50 + number)));
            file.store.save(timers.collect(), at(NOW)).await.unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        let given = claiming.await.unwrap();
        let distinct: HashSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), 10_000, "none was lost");
        assert_eq!(given.len(), 10_000, "none came twice");
    });
}

#[test]
fn a_reschedule_that_races_with_a_firing_fires_again() {
    run(async {
        let file = OnFile::new(SchemaSet::TimersOnly);
        let stop = Arc::new(AtomicBool::new(false));
        let claiming = tokio::spawn(claim_and_mark(file.store.clone(), Arc::clone(&stop)));
        for number in 0..2_000 {
            for _ in 0..2 {
                let saved = file.store.save(vec![due_now(key(number))], at(NOW)).await;
                saved.unwrap().remove(0).unwrap();
            }
        }
        stop.store(true, Ordering::SeqCst);
        let given: HashSet<_> = claiming.await.unwrap().into_iter().collect();
        assert_eq!(given.len(), 2_000);
        let left = file
            .store
            .claim_due(Timestamp::MAX, 1, Duration::from_secs(1));
        assert_eq!(
            left.await.unwrap().claims.len(),
            0,
            "all are reached in the end"
        );
    });
}
