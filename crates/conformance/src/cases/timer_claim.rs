//! Which timers a worker claims, and that no other worker gets them.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::TimerKey;

use crate::TimerStoreFixture;
use crate::store::{LEASE, Store, at, direct, key, key_of, of_request, with_data};

suite! { $ timer_claim_suite, timer_claim =>
    the_backlog_counts_the_timers_of_all_tenants_and_those_in_flight,
    a_count_ends_at_its_limit,
    nothing_is_claimed_early,
    a_timer_is_claimed_at_its_instant,
    claims_come_by_due_time_through_all_tenants,
    a_claim_carries_all_of_its_timer,
    a_claimed_timer_is_claimed_by_no_other_worker,
    a_timer_whose_lease_has_ended_is_claimed_again_under_another_token,
    a_claim_takes_up_to_its_limit_and_says_if_more_is_due,
    a_claim_of_none_claims_nothing,
    the_next_due_time_is_that_of_the_next_unclaimed_timer,
    an_empty_queue_has_no_next_due_time,
    claims_end_with_a_crash,
    concurrent_claims_never_share_a_timer,
}

/// Not a millisecond.
pub async fn nothing_is_claimed_early(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let batch = store.claim_batch(999, 10).await;
    assert_eq!(batch.claims, []);
    assert!(!batch.more_due);
    assert_eq!(batch.next_due_at, Some(at(1_000)));
}

/// Nor a millisecond late.
pub async fn a_timer_is_claimed_at_its_instant(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    assert_eq!(store.claim_one(1_000).await.timer.key, key(1));
}

/// The oldest first.
pub async fn claims_come_by_due_time_through_all_tenants(store: Box<dyn TimerStoreFixture>) {
    let batch = vec![
        direct(key_of("tenant-b", 1), 3_000),
        direct(key_of("tenant-a", 2), 2_000),
        direct(key_of("tenant-c", 3), 1_000),
        direct(key_of("tenant-a", 4), 4_000),
    ];
    store.save_all(batch, 0).await;
    let claims = store.claim(5_000, 10).await;
    let dues: Vec<i64> = claims
        .iter()
        .map(|c| c.timer.registration.due_at.as_millis())
        .collect();
    assert_eq!(dues, [1_000, 2_000, 3_000, 4_000]);
}

/// The worker needs nothing else to fire it.
pub async fn a_claim_carries_all_of_its_timer(store: Box<dyn TimerStoreFixture>) {
    let timer = of_request(with_data(direct(key(1), 1_000), "{\"a\":\"☃\"}"), 9);
    store.save(timer, 10).await;
    let claim = store.claim_one(2_000).await;
    assert_eq!(claim.timer, store.scheduled(key(1)).await);
    assert_eq!(claim.attempts, 0);
    assert_eq!(claim.lease_until, at(2_000).saturating_add(LEASE));
}

/// As long as its lease lasts.
pub async fn a_claimed_timer_is_claimed_by_no_other_worker(store: Box<dyn TimerStoreFixture>) {
    store.claimed(key(1), 1_000).await;
    for now in [1_000, 1_001, 30_999] {
        let batch = store.claim_batch(now, 10).await;
        assert_eq!(batch.claims, []);
        assert!(!batch.more_due);
        assert_eq!(batch.next_due_at, None);
    }
}

/// Its worker is taken for dead.
pub async fn a_timer_whose_lease_has_ended_is_claimed_again_under_another_token(
    store: Box<dyn TimerStoreFixture>,
) {
    let first = store.claimed(key(1), 1_000).await;
    let second = store.claim_one(31_000).await;
    assert_eq!(first.timer, second.timer);
    assert_ne!(first.token, second.token);
}

/// `more_due` says whether the limit left any.
pub async fn a_claim_takes_up_to_its_limit_and_says_if_more_is_due(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save_many(0..10, 1_000).await;
    store.save(direct(key(99), 5_000), 0).await;
    let first = store.claim_batch(1_000, 6).await;
    assert_eq!((first.claims.len(), first.more_due), (6, true));
    let second = store.claim_batch(1_000, 4).await;
    assert_eq!((second.claims.len(), second.more_due), (4, false));
    assert_eq!(second.next_due_at, Some(at(5_000)));
}

/// It reports whether anything is due.
pub async fn a_claim_of_none_claims_nothing(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let batch = store.claim_batch(1_000, 0).await;
    assert_eq!(batch.claims, []);
    assert!(batch.more_due);
    store.claim_one(1_000).await;
}

/// Retry times count as due times.
pub async fn the_next_due_time_is_that_of_the_next_unclaimed_timer(
    store: Box<dyn TimerStoreFixture>,
) {
    let batch = vec![
        direct(key(1), 1_000),
        direct(key(2), 3_000),
        direct(key(3), 4_000),
    ];
    store.save_all(batch, 0).await;
    let claim = store.claim_one(1_000).await;
    assert_eq!(
        store.claim_batch(1_000, 10).await.next_due_at,
        Some(at(3_000))
    );
    store.retry(&claim, 2_000).await;
    assert_eq!(
        store.claim_batch(1_000, 10).await.next_due_at,
        Some(at(2_000))
    );
}

/// Nothing to wait for.
pub async fn an_empty_queue_has_no_next_due_time(store: Box<dyn TimerStoreFixture>) {
    let batch = store.claim_batch(1_000, 10).await;
    assert_eq!(
        (batch.claims.len(), batch.more_due, batch.next_due_at),
        (0, false, None)
    );
}

/// At once where claims live in the process, and with their lease where they are stored.
pub async fn claims_end_with_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    store.claimed(key(1), 1_000).await;
    store.crash_and_reopen().await;
    if store.claims_survive_a_crash() {
        assert_eq!(store.claim(30_999, 10).await, []);
        store.claim_one(31_000).await;
    } else {
        store.claim_one(1_000).await;
    }
}

/// Eight claimers, two thousand timers: each is claimed once.
pub async fn concurrent_claims_never_share_a_timer(store: Box<dyn TimerStoreFixture>) {
    let batch = (0..2_000).map(|n| direct(key_of(&format!("tenant-{}", n % 7), n), 1_000));
    store.save_all(batch.collect(), 0).await;
    let claimers: Vec<_> = (0..8)
        .map(|_| tokio::spawn(claim_all(store.queue())))
        .collect();
    let mut all: Vec<TimerKey> = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.expect("no panic"));
    }
    assert_eq!(all.len(), 2_000);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 2_000);
}

async fn claim_all(queue: Arc<dyn punctual_ports::TimerQueuePort>) -> Vec<TimerKey> {
    let mut keys = Vec::new();
    loop {
        let batch = queue
            .claim_due(at(1_000), 37, LEASE)
            .await
            .expect("claim_due answers");
        if batch.claims.is_empty() && !batch.more_due {
            return keys;
        }
        keys.extend(batch.claims.into_iter().map(|claim| claim.timer.key));
        tokio::task::yield_now().await;
    }
}

/// Fired timers are not counted.
pub async fn the_backlog_counts_the_timers_of_all_tenants_and_those_in_flight(
    store: Box<dyn TimerStoreFixture>,
) {
    let counted = async |now: i64| {
        let backlog = store.queue().backlog(at(now), 100).await;
        let backlog = backlog.expect("backlog answers");
        (backlog.pending, backlog.overdue)
    };
    assert_eq!(counted(0).await, (0, 0));
    store.save(direct(key(1), 1_000), 500).await;
    store.save(direct(key_of("other", 2), 2_000), 500).await;
    store.reached(key(3), 900).await;
    assert_eq!(counted(999).await, (2, 0));
    assert_eq!(counted(1_000).await, (2, 1));
    store.claim_one(1_000).await;
    assert_eq!(counted(2_000).await, (2, 2));
}

/// A count is bounded.
pub async fn a_count_ends_at_its_limit(store: Box<dyn TimerStoreFixture>) {
    for n in 1..=5 {
        store.save(direct(key(n), 1_000), 500).await;
    }
    let backlog = store.queue().backlog(at(1_000), 3).await;
    let backlog = backlog.expect("backlog answers");
    assert_eq!((backlog.pending, backlog.overdue), (3, 3));
}
