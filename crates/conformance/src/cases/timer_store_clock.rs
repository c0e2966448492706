//! A store with a clock of its own: what is due by both clocks is claimed, and all else is by the store's.
//!
//! A fixture without such a clock has nothing to show here, and each case ends at once.

use punctual_ports::{ClaimOutcome, DeleteOutcome, MarkOutcome, SaveOutcome};

use crate::TimerStoreFixture;
use crate::instances::{Other, assert_announced, other_or_return};
use crate::store::{Store, at, command, direct, key};

suite! { $ timer_store_clock_suite, timer_store_clock =>
    no_timer_is_claimed_early_by_either_clock,
    instances_whose_clocks_are_ten_seconds_off_fire_each_timer_once_and_none_early,
    leases_are_measured_on_the_store_s_clock,
    registrations_and_deletions_are_by_the_store_s_clock,
}

/// Whichever is ahead, and nobody who waits until `next_due_at` polls in a busy loop.
pub async fn no_timer_is_claimed_early_by_either_clock(store: Box<dyn TimerStoreFixture>) {
    if !store.has_store_clock() {
        return;
    }
    let set = |millis: i64| store.set_store_clock(Some(at(millis)));
    set(100_000);
    store.save(direct(key(1), 105_000), 100_000).await;
    // The caller's clock is ten seconds ahead.
    for (storage, caller) in [(100_000, 110_000), (104_999, 114_999)] {
        set(storage);
        let batch = store.claim_batch(caller, 10).await;
        assert_eq!((batch.claims, batch.more_due), (vec![], false));
        assert_eq!(batch.next_due_at, Some(at(115_000)));
    }
    // It is ten seconds behind.
    for (storage, caller) in [(110_000, 100_000), (114_999, 104_999)] {
        set(storage);
        let batch = store.claim_batch(caller, 10).await;
        assert_eq!((batch.claims, batch.more_due), (vec![], false));
        assert_eq!(batch.next_due_at, Some(at(105_000)));
    }
    set(105_000);
    let claim = store.claim_one(115_000).await;
    assert_eq!(claim.lease_until, at(145_000));
    store.release(&claim).await;
    set(115_000);
    let claim = store.claim_one(105_000).await;
    assert_eq!(claim.lease_until, at(135_000));
    // A retry time is a due time here.
    store.retry(&claim, 120_000).await;
    set(119_999);
    let batch = store.claim_batch(129_999, 10).await;
    let next = Some(at(130_000));
    assert_eq!((batch.claims, batch.next_due_at), (vec![], next));
    set(130_000);
    store.claim_one(120_000).await;
}

/// One clock for all instances: however wrong theirs are, none takes over early, and none waits longer.
pub async fn leases_are_measured_on_the_store_s_clock(store: Box<dyn TimerStoreFixture>) {
    if !store.has_store_clock() {
        return;
    }
    let other = other_or_return!(second of store);
    let set = |millis: i64| store.set_store_clock(Some(at(millis)));
    set(100_000);
    store.save(direct(key(1), 50_000), 100_000).await;
    let claim = store.claim_one(110_000).await;
    // An instance whose clock is behind, one whose clock is ahead: the lease ends at 130 s.
    for (caller, end) in [(90_000, 120_000), (110_000, 140_000)] {
        let batch = other.claim_batch(caller, 10).await;
        assert_announced(&batch, caller, end);
    }
    set(129_999);
    assert_eq!(other.claim(139_999, 10).await, []);
    assert_eq!(other.delete(key(1), 139_999).await, DeleteOutcome::Firing);
    assert_eq!(store.renew(&claim, 139_999).await, ClaimOutcome::Applied);
    set(159_998);
    assert_eq!(other.claim(169_998, 10).await, []);
    set(159_999);
    let taken_over = other.claim_one(149_999).await;
    assert_eq!(taken_over.lease_until, at(179_999));
    assert_eq!(store.renew(&claim, 169_999).await, ClaimOutcome::Lost);
}

/// So that instances whose clocks differ agree on what is newer.
pub async fn registrations_and_deletions_are_by_the_store_s_clock(
    store: Box<dyn TimerStoreFixture>,
) {
    if !store.has_store_clock() {
        return;
    }
    let set = |millis: i64| store.set_store_clock(Some(at(millis)));
    let registered = async |n| store.scheduled(key(n)).await.registration.registered_at;
    set(100_000);
    for (n, now) in [(1, 110_000), (2, 90_000)] {
        store.save(direct(key(n), 900_000), now).await;
        assert_eq!(registered(n).await, at(100_000));
    }
    // A command counts from when it was sent, but not from later than the store's time.
    for (n, sent_at, expected) in [(3, 105_000, 100_000), (4, 99_000, 99_000)] {
        store.save(command(key(n), sent_at, 900_000), 110_000).await;
        assert_eq!(registered(n).await, at(expected));
    }
    assert_eq!(
        store.delete(key(4), 90_000).await,
        DeleteOutcome::Deleted,
        "deleted at 100 s"
    );
    set(100_002);
    let saved = store.save(command(key(4), 99_500, 900_000), 90_001).await;
    assert_eq!(saved, SaveOutcome::Stale);
    let saved = store.save(command(key(4), 100_001, 900_000), 90_001).await;
    assert_eq!(saved, SaveOutcome::Created);
    assert_eq!(registered(4).await, at(100_001));
}

/// One is ahead and one behind, and the one that is right by the store is the first to get a timer.
pub async fn instances_whose_clocks_are_ten_seconds_off_fire_each_timer_once_and_none_early(
    store: Box<dyn TimerStoreFixture>,
) {
    if !store.has_store_clock() {
        return;
    }
    let other = other_or_return!(second of store);
    store.set_store_clock(Some(at(100_000)));
    for n in 0..20 {
        let due_at = 100_500 + i64::try_from(n).expect("a small number") * 1_000;
        store.save(direct(key(n), due_at), 100_000).await;
    }
    let mut fired = 0;
    for now in (100_000..131_000).step_by(500) {
        store.set_store_clock(Some(at(now)));
        let (behind, ahead) = (now - 10_000, now + 10_000);
        for claim in other.claim(behind, 10).await {
            assert!(claim.timer.registration.due_at <= at(behind));
            assert_eq!(other.mark(&claim.timer, behind).await, MarkOutcome::Marked);
            fired += 1;
        }
        // Only now and then, so that the other one gets some of them.
        if now % 15_000 == 0 {
            for claim in store.claim(ahead, 10).await {
                assert!(claim.timer.registration.due_at <= at(now));
                assert_eq!(store.mark(&claim.timer, ahead).await, MarkOutcome::Marked);
                fired += 1;
            }
        }
    }
    assert_eq!(fired, 20);
}
