//! That no tenant waits for another's backlog, and fresh timers not for old ones.

use std::collections::BTreeSet;

use punctual_domain::{TenantId, TimerKey};
use punctual_ports::{Claim, SaveTimer};

use crate::TimerStoreFixture;
use crate::store::{Store, direct, key, key_of};

suite! { $ timer_fairness_suite, timer_fairness =>
    a_shared_claim_is_full,
    no_tenant_waits_for_another_s_backlog,
    many_tenants_are_served_in_turn,
    a_claim_of_one_goes_round_the_tenants,
    the_newest_due_timer_is_among_the_claimed,
    a_backlog_is_drained_to_its_end_and_each_timer_once,
    what_is_put_off_is_in_nobody_s_way,
}

async fn backlog<F: TimerStoreFixture>(store: &Store<F>, tenant: &str, count: u128) {
    let batch: Vec<SaveTimer> = (0..count)
        .map(|n| direct(key_of(tenant, n), 100 + i64::try_from(n).unwrap_or(0)))
        .collect();
    store.save_all(batch, 0).await;
}

fn tenants(claims: &[Claim]) -> BTreeSet<TenantId> {
    claims
        .iter()
        .map(|claim| claim.timer.key.tenant_id.clone())
        .collect()
}

/// Sharing costs no place.
pub async fn a_shared_claim_is_full(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "big", 200).await;
    backlog(&store, "small", 1).await;
    for limit in [1, 2, 3, 5, 16, 64] {
        let batch = store.claim_batch(9_000, limit).await;
        assert_eq!((batch.claims.len(), batch.more_due), (limit, true));
    }
}

/// The small tenant's timer is due after all of the big one's, and still comes with the first
/// claims.
pub async fn no_tenant_waits_for_another_s_backlog(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "big", 500).await;
    backlog(&store, "other", 500).await;
    store.save(direct(key_of("small", 1), 300), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..=(3 / (16 / 8) + 1) {
        served.extend(tenants(&store.claim(9_000, 16).await));
    }
    assert!(served.contains(&key_of("small", 1).tenant_id), "{served:?}");
}

/// Forty small tenants behind a big one are all served within the contract's number of claims.
pub async fn many_tenants_are_served_in_turn(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "big", 800).await;
    let small = (0..40).map(|n| direct(key_of(&format!("small-{n}"), 1), 5_000));
    store.save_all(small.collect(), 0).await;
    // Newer than the small ones, so that the share of the newest does not help them.
    let newest = (1_000..1_300).map(|n| direct(key_of("big", n), 6_000));
    store.save_all(newest.collect(), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..=(41 / (32 / 8)) {
        served.extend(tenants(&store.claim(9_000, 32).await));
    }
    assert_eq!(served.len(), 41);
}

/// Even the smallest claim is shared, one after another.
pub async fn a_claim_of_one_goes_round_the_tenants(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "big", 50).await;
    for n in 0..3 {
        store
            .save(direct(key_of(&format!("small-{n}"), 1), 5_000), 0)
            .await;
    }
    let mut served = BTreeSet::new();
    for _ in 0..5 {
        served.extend(tenants(&store.claim(9_000, 1).await));
    }
    assert_eq!(served.len(), 4);
}

/// A timer that has just become due does not queue behind a night's downtime.
pub async fn the_newest_due_timer_is_among_the_claimed(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "tenant-a", 300).await;
    for n in 1_000..1_010 {
        let due_at = 5_000 + i64::try_from(n).unwrap_or(0);
        store.save(direct(key(n), due_at), 0).await;
        let claims = store.claim(due_at, 8).await;
        assert!(claims.iter().any(|claim| claim.timer.key == key(n)));
    }
}

/// Sharing loses none and repeats none.
pub async fn a_backlog_is_drained_to_its_end_and_each_timer_once(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    for tenant in ["a", "b", "c"] {
        backlog(&store, tenant, 100).await;
    }
    let mut seen: Vec<TimerKey> = Vec::new();
    loop {
        let claims = store.claim(9_000, 13).await;
        if claims.is_empty() {
            break;
        }
        seen.extend(claims.into_iter().map(|claim| claim.timer.key));
    }
    assert_eq!(seen.len(), 300);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 300);
}

/// A hundred failing timers wait for their retry time outside the queue.
pub async fn what_is_put_off_is_in_nobody_s_way(fixture: impl TimerStoreFixture) {
    let store = Store::new(fixture);
    backlog(&store, "failing", 100).await;
    for claim in store.claim(1_000, 100).await {
        store.retry(&claim, 60_000).await;
    }
    store.save(direct(key_of("healthy", 1), 2_000), 0).await;
    let batch = store.claim_batch(2_000, 10).await;
    assert_eq!(batch.claims.len(), 1);
    assert!(!batch.more_due);
}
