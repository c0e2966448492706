//! Several instances at once: nothing is claimed twice, nothing is both deleted and claimed, and nothing is
//! lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_adapters_postgres::{PostgresSettings, PostgresTimerStore};
use punctual_domain::{FiringId, TenantId, TimerKey, TimerState, Timestamp};
use punctual_ports::{
    Claim, DeleteOutcome, FiredTimer, MarkOutcome, PortErrorKind, SaveOutcome,
    TimerPersistencePort, TimerQueuePort,
};
use punctual_test_servers::PgBouncer;
use tokio::task::JoinSet;

use crate::scratch::{Scratch, client_settings, now, open, settings, timer_of};

const LEASE: Duration = Duration::from_mins(2);

fn key_of(number: usize) -> TimerKey {
    let tenant = TenantId::new(&format!("tenant-{}", number % 7)).unwrap();
    TimerKey::named(tenant, &number.to_string())
}

/// Due long ago, each at another instant.
fn due(number: usize) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + i64::try_from(number).unwrap()).unwrap()
}

/// Claims until told to stop and nothing is left; returns every firing that it was given.
async fn fire_all(store: PostgresTimerStore, stop: Arc<AtomicBool>) -> Vec<FiringId> {
    let mut given = Vec::new();
    let mut marks = JoinSet::new();
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        let batch = store.claim_due(now(), 250, LEASE).await.unwrap();
        if stopping && batch.claims.is_empty() && !batch.more_due {
            marks.join_all().await;
            return given;
        }
        given.extend(batch.claims.iter().map(|claim| claim.timer.firing_id()));
        // Not awaited: the next poll runs while these are being committed.
        marks.spawn(mark(store.clone(), batch.claims));
    }
}

async fn mark(store: PostgresTimerStore, claims: Vec<Claim>) {
    let reached_at = now();
    let mut marks: Vec<_> = claims
        .iter()
        .map(|claim| FiredTimer {
            firing_id: claim.timer.firing_id(),
            reached_at: reached_at.max(claim.timer.registration.due_at),
        })
        .collect();
    while !marks.is_empty() {
        let outcomes = store.mark_fired(marks.clone()).await.unwrap();
        let mut busy = Vec::new();
        for (mark, outcome) in marks.into_iter().zip(outcomes) {
            match outcome {
                // It was rescheduled meanwhile, if it was not marked.
                Ok(MarkOutcome::Marked | MarkOutcome::Moved) => {}
                // It is being rescheduled, or its deletion is being refused.
                Err(error) if error.kind() == PortErrorKind::Busy => busy.push(mark),
                other => panic!("{other:?}"),
            }
        }
        marks = busy;
    }
}

/// Deletes every tenth timer, a few at a time, and returns what was deleted.
async fn delete_some(store: PostgresTimerStore, count: usize) -> HashSet<TimerKey> {
    let mut deleted = HashSet::new();
    let numbers: Vec<usize> = (0..count).rev().filter(|it| it % 10 == 3).collect();
    for some in numbers.chunks(5) {
        let keys: Vec<_> = some.iter().copied().map(key_of).collect();
        let outcomes = store.delete(keys.clone(), now()).await.unwrap();
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            if outcome.unwrap() == DeleteOutcome::Deleted {
                deleted.insert(key);
            }
        }
    }
    deleted
}

/// Reschedules every tenth timer, a few at a time, and returns what has a second schedule.
async fn reschedule_some(store: PostgresTimerStore, count: usize) -> HashSet<TimerKey> {
    let mut moved = HashSet::new();
    let numbers: Vec<usize> = (0..count).rev().filter(|it| it % 10 == 6).collect();
    for some in numbers.chunks(5) {
        let again = some.iter().map(|it| timer_of(key_of(*it), due(*it).next()));
        let outcomes = store.save(again.collect(), now()).await.unwrap();
        for (number, outcome) in some.iter().zip(outcomes) {
            if outcome.unwrap() == SaveOutcome::Rescheduled {
                moved.insert(key_of(*number));
            }
        }
    }
    moved
}

async fn race(fires: &PostgresSettings, beside: &PostgresSettings, count: usize) {
    let setup = open(fires).await.unwrap();
    for first in (0..count).step_by(1_000) {
        let timers = (first..count.min(first + 1_000)).map(|it| timer_of(key_of(it), due(it)));
        for outcome in setup.save(timers.collect(), now()).await.unwrap() {
            assert_eq!(outcome.unwrap(), SaveOutcome::Created);
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let client = open(beside).await.unwrap();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(fires).await.unwrap());
    }
    let deleting = tokio::spawn(delete_some(client.clone(), count));
    let moving = tokio::spawn(reschedule_some(client.clone(), count));
    let mut instances = JoinSet::new();
    for store in stores {
        instances.spawn(fire_all(store, Arc::clone(&stop)));
    }
    let (deleted, moved) = (deleting.await.unwrap(), moving.await.unwrap());
    stop.store(true, Ordering::SeqCst);
    let given: Vec<FiringId> = instances.join_all().await.into_iter().flatten().collect();

    let distinct: HashSet<_> = given.iter().collect();
    assert_eq!(distinct.len(), given.len(), "a firing was claimed twice");
    let mut firings: HashMap<&TimerKey, usize> = HashMap::new();
    for firing in &given {
        *firings.entry(&firing.key).or_default() += 1;
    }
    for key in &deleted {
        assert_eq!(firings.get(key), None, "{key:?} was deleted and claimed");
    }
    for number in 0..count {
        let key = key_of(number);
        let times = firings.get(&key).copied().unwrap_or_default();
        // The first schedule of one that was moved may have been claimed, too.
        let allowed = if moved.contains(&key) { 1..=2 } else { 1..=1 };
        let is_right = deleted.contains(&key) || allowed.contains(&times);
        assert!(is_right, "{key:?} fired {times} times");
    }
    assert!(
        !deleted.is_empty() && !moved.is_empty(),
        "there was no race"
    );
    let backlog = setup.backlog(now(), 10).await.unwrap();
    assert_eq!(backlog.pending, 0);
    for key in moved.iter().take(20) {
        let entry = setup.find(key.clone()).await.unwrap().unwrap();
        assert_eq!(entry.state(), TimerState::Reached);
    }
    purge_with_two(&setup, &client, count).await;
}

/// Two purgers remove each row once: tombstones and reached ones.
async fn purge_with_two(one: &PostgresTimerStore, two: &PostgresTimerStore, count: usize) {
    let before = now().saturating_add(Duration::from_secs(1));
    let mut purgers = JoinSet::new();
    for store in [one, two] {
        let store = store.clone();
        purgers.spawn(async move {
            let mut removed = 0;
            loop {
                let now_removed = store.purge(before, 500).await.unwrap();
                removed += now_removed;
                if now_removed == 0 {
                    return removed;
                }
            }
        });
    }
    // One that finds all rows locked ends, and leaves the rest to the other.
    let removed: usize = purgers.join_all().await.into_iter().sum();
    assert_eq!(removed, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_instances_fire_twenty_thousand_timers_once_each_beside_deletions_and_reschedules() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let beside = client_settings(&scratch.url());
    race(&scratch.settings(), &beside, 20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_behind_a_pooler_that_shares_few_connections() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let few = [("default_pool_size", "5")];
    let Some(pooler) = PgBouncer::start_with(&scratch.url(), &few) else {
        return;
    };
    let beside = client_settings(&pooler.url());
    race(&settings(&pooler.url()), &beside, 4_000).await;
}
