//! No tenant waits for another's backlog, and no new timer for old ones.

use std::collections::BTreeSet;

use punctual_domain::{TenantId, TimerKey};
use punctual_ports::{Claim, RetryLater, SaveTimer};

use crate::TimerStoreFixture;
use crate::store::{Store, at, direct, key, key_of};

suite! { $ timer_fairness_suite, timer_fairness =>
    a_shared_claim_is_full,
    no_tenant_waits_for_another_s_backlog,
    many_tenants_are_served_in_turn,
    a_claim_of_one_goes_round_the_tenants,
    tenants_with_nothing_due_delay_no_turn,
    the_newest_due_timer_is_among_the_claimed,
    a_backlog_is_drained_to_its_end_and_each_timer_once,
    timers_in_backoff_delay_no_others,
    a_tenant_with_many_timers_in_backoff_has_its_turn,
    an_excluded_tenant_gets_nothing_and_the_others_get_all_of_theirs,
    a_claim_that_excludes_tenants_is_shared_among_the_others,
    a_tenant_is_excluded_from_one_claim_only,
    every_tenant_behind_an_excluded_one_is_reached_however_many_there_are,
}

async fn backlog(store: &dyn TimerStoreFixture, tenant: &str, count: u128) {
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

/// Sharing leaves no slot empty.
pub async fn a_shared_claim_is_full(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "big", 200).await;
    backlog(&store, "small", 1).await;
    for limit in [1, 2, 3, 5, 16, 64] {
        let batch = store.claim_batch(9_000, limit).await;
        assert_eq!((batch.claims.len(), batch.more_due), (limit, true));
    }
}

/// The small tenant's timer is due after all of the big one's, and still comes with the first
/// claims.
pub async fn no_tenant_waits_for_another_s_backlog(store: Box<dyn TimerStoreFixture>) {
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
pub async fn many_tenants_are_served_in_turn(store: Box<dyn TimerStoreFixture>) {
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
pub async fn a_claim_of_one_goes_round_the_tenants(store: Box<dyn TimerStoreFixture>) {
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

/// However many of them lie between a backlog and the next tenant.
pub async fn tenants_with_nothing_due_delay_no_turn(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "big", 500).await;
    let idle = (0..60).map(|n| direct(key_of(&format!("idle-{n}"), 1), 60_000_000));
    store.save_all(idle.collect(), 0).await;
    store.save(direct(key_of("small", 1), 5_000), 0).await;
    // Newer than the small one, so that the share of the newest does not help it.
    let newest = (1_000..1_200).map(|n| direct(key_of("big", n), 6_000));
    store.save_all(newest.collect(), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..=62 {
        served.extend(tenants(&store.claim(9_000, 8).await));
    }
    assert!(served.contains(&key_of("small", 1).tenant_id), "{served:?}");
}

/// A timer that has just become due does not queue behind a night's downtime.
pub async fn the_newest_due_timer_is_among_the_claimed(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "tenant-a", 300).await;
    for n in 1_000..1_010 {
        let due_at = 5_000 + i64::try_from(n).unwrap_or(0);
        store.save(direct(key(n), due_at), 0).await;
        let claims = store.claim(due_at, 8).await;
        assert!(claims.iter().any(|claim| claim.timer.key == key(n)));
    }
}

/// Sharing loses none and repeats none.
pub async fn a_backlog_is_drained_to_its_end_and_each_timer_once(
    store: Box<dyn TimerStoreFixture>,
) {
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
pub async fn timers_in_backoff_delay_no_others(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "failing", 100).await;
    for claim in store.claim(1_000, 100).await {
        store.retry(&claim, 60_000).await;
    }
    store.save(direct(key_of("healthy", 1), 2_000), 0).await;
    let batch = store.claim_batch(2_000, 10).await;
    assert_eq!(batch.claims.len(), 1);
    assert!(!batch.more_due);
}

/// However many of its timers are put off, a tenant's oldest that is due comes in its turn.
pub async fn a_tenant_with_many_timers_in_backoff_has_its_turn(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "failing", 600).await;
    let put_off = store.claim(1_000, 600).await;
    let put_off = put_off.iter().map(|claim| RetryLater {
        claim: claim.reference(),
        retry_at: at(60_000_000),
        reason: "on purpose".to_owned(),
    });
    let answers = store.queue().retry_later(put_off.collect()).await;
    assert_eq!(answers.expect("retry_later answers").len(), 600);
    store.save(direct(key_of("failing", 1_000), 5_000), 0).await;
    backlog(&store, "big", 200).await;
    // Newer, so that the share of the newest does not help.
    let newer = (1_000..1_100).map(|n| direct(key_of("big", n), 6_000));
    store.save_all(newer.collect(), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..2 {
        served.extend(tenants(&store.claim(9_000, 32).await));
    }
    assert!(served.contains(&key_of("failing", 0).tenant_id));
}

/// Whether few timers of theirs are in the way or many.
pub async fn an_excluded_tenant_gets_nothing_and_the_others_get_all_of_theirs(
    store: Box<dyn TimerStoreFixture>,
) {
    let slow = ["slow", "slow-too"];
    for (round, more) in [(0_u128, 20), (1, 800), (2, 0)] {
        let first = round * 1_000;
        let due = |tenant: &'static str, n: u128| direct(key_of(tenant, first + n), 100);
        let batch = (0..more).map(|n| due(slow[usize::from(n % 2 == 0)], n));
        store.save_all(batch.collect(), 0).await;
        let nothing = store.claim_except(9_000, 10, &slow).await;
        assert_eq!((nothing.claims.len(), nothing.more_due), (0, false));
        assert_eq!(nothing.next_due_at, None, "no other tenant has any");

        let mine: Vec<_> = ["a", "slow-tooo", "z"].map(|it| key_of(it, first)).into();
        for key in &mine {
            store.save(direct(key.clone(), 300), 0).await;
        }
        store.save(direct(key_of("a", 9_000), 99_000), 0).await;
        store.save(direct(key_of("slow", 9_000), 98_000), 0).await;
        let batch = store.claim_except(9_000, 3, &slow).await;
        let keys: BTreeSet<_> = batch.claims.iter().map(|it| it.timer.key.clone()).collect();
        assert_eq!(keys, mine.into_iter().collect());
        assert_eq!(
            (batch.more_due, batch.next_due_at),
            (false, Some(at(99_000)))
        );
        for key in [key_of("a", 9_000), key_of("slow", 9_000)] {
            store.delete(key, 0).await;
        }
    }
}

/// Full, in turn, and without timers of excluded tenants.
pub async fn a_claim_that_excludes_tenants_is_shared_among_the_others(
    store: Box<dyn TimerStoreFixture>,
) {
    backlog(&store, "slow", 700).await;
    backlog(&store, "big", 200).await;
    let small = (0..10).map(|n| direct(key_of(&format!("small-{n}"), 1), 5_000));
    store.save_all(small.collect(), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..=(12 / (32 / 8) + 1) {
        let batch = store.claim_except(9_000, 32, &["slow"]).await;
        assert_eq!((batch.claims.len(), batch.more_due), (32, true));
        served.extend(tenants(&batch.claims));
    }
    assert_eq!(served.len(), 11);
    assert!(!served.contains(&key_of("slow", 0).tenant_id));
    // The rest comes complete, and the others have no more.
    let rest = store.claim_except(9_000, 100, &["slow"]).await;
    assert_eq!((rest.claims.len(), rest.more_due), (210 - 5 * 32, false));
}

/// The next claim may give its timers.
pub async fn a_tenant_is_excluded_from_one_claim_only(store: Box<dyn TimerStoreFixture>) {
    backlog(&store, "slow", 600).await;
    assert_eq!(store.claim_except(9_000, 10, &["slow"]).await.claims, []);
    let batch = store.claim_except(9_000, 10, &["another"]).await;
    assert_eq!((batch.claims.len(), batch.more_due), (10, true));
    assert_eq!(store.claim(9_000, 1_000).await.len(), 590);
}

/// A claim may end before it has read all tenants; then it says so, and the next one goes on there.
pub async fn every_tenant_behind_an_excluded_one_is_reached_however_many_there_are(
    store: Box<dyn TimerStoreFixture>,
) {
    let later = (0..2_600).map(|n| direct(key_of(&format!("tenant-{n:04}"), 1), 900_000_000));
    store.save_all(later.collect(), 0).await;
    let due = ["a", "tenant-1300", "z"].map(|tenant| key_of(tenant, 2));
    for key in &due {
        store.save(direct(key.clone(), 50), 0).await;
    }
    // Newer and older, so that neither the first nor the newest are those of the others.
    for (first, due_at) in [(0, 10), (1_000, 100)] {
        let slow = (first..first + 1_000).map(|n| direct(key_of("slow", n), due_at));
        store.save_all(slow.collect(), 0).await;
    }
    let mut seen = BTreeSet::new();
    let (mut now, mut claims) = (9_000, 0);
    loop {
        let batch = store.claim_except(now, 10, &["slow"]).await;
        seen.extend(batch.claims.into_iter().map(|claim| claim.timer.key));
        if !batch.more_due {
            assert_eq!(batch.next_due_at, Some(at(900_000_000)));
            break;
        }
        let next = batch.next_due_at.expect("there is more to see");
        assert!(at(now) < next && next <= at(now + 100), "{next}");
        now += 100;
        claims += 1;
        if claims > 2_603 / 1_000 + 1 {
            break;
        }
    }
    assert_eq!(seen, due.into_iter().collect());
}
