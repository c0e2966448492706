//! Which calls retention removes, and which it never touches.

use punctual_ports::{FiredTimer, SubmitOutcome};

use crate::CallStoreFixture;
use crate::calls::{Calls, details, execution, new_call, tagged, with_key};
use crate::store::{LEASE, at, direct, key, key_of};

suite! { $ call_purge_suite, call_purge =>
    calls_finished_before_the_instant_are_removed_with_all_their_rows,
    a_call_that_has_not_finished_stays_however_old_it_is,
    a_purge_removes_up_to_its_limit_and_returns_how_many,
    an_id_and_a_key_stay_taken_until_their_tombstone_is_purged,
    a_purge_covers_all_tenants_without_mixing_them,
    the_claim_on_a_purged_calls_timer_ends,
}

/// Before, and not at.
pub async fn calls_finished_before_the_instant_are_removed_with_all_their_rows(
    store: Box<dyn CallStoreFixture>,
) {
    for (n, ended_at) in [(1, 8_999), (2, 9_000)] {
        store.submitted(tagged(key(n), 5_000, &["a"])).await;
        let timers = store.timers();
        let timer = direct(key(n), 5_000);
        timers.save(vec![timer], at(1_000)).await.unwrap();
        let saved = timers.find(key(n)).await.unwrap().expect("it is there");
        let fired = FiredTimer {
            firing_id: saved.timer().firing_id(),
            reached_at: at(5_000),
        };
        timers.mark_fired(vec![fired]).await.unwrap();
        store.accept(execution(key(n), "example.com", 5_000)).await;
        store.ended(key(n), ended_at).await;
    }
    assert_eq!(store.purge(9_000, 10_000, 100).await, 1);
    assert_eq!(store.find(key(1)).await, None);
    assert!(store.find(key(2)).await.is_some());
    let attempts = store.attempts();
    assert_eq!(attempts.entries(key(1), 10).await.unwrap(), []);
    assert_eq!(attempts.entries(key(2), 10).await.unwrap().len(), 1);
    let timers = store.timers();
    assert_eq!(timers.find(key(1)).await.unwrap(), None);
    assert!(timers.find(key(2)).await.unwrap().is_some());
}

/// It still has to be made.
pub async fn a_call_that_has_not_finished_stays_however_old_it_is(
    store: Box<dyn CallStoreFixture>,
) {
    store.submitted(details(key(1), 5_000)).await;
    store.submitted(details(key(2), 5_000)).await;
    store.started(key(2)).await;
    assert_eq!(store.purge(99_000_000, 99_000_000, 100).await, 0);
    assert!(store.find(key(1)).await.is_some());
    assert!(store.find(key(2)).await.is_some());
}

/// The next purge removes the rest.
pub async fn a_purge_removes_up_to_its_limit_and_returns_how_many(
    store: Box<dyn CallStoreFixture>,
) {
    for n in 1..=3 {
        store.submitted(details(key(n), 5_000)).await;
        store.ended(key(n), 9_000).await;
    }
    assert_eq!(store.purge(10_000, 20_000, 0).await, 0);
    assert_eq!(store.purge(10_000, 20_000, 2).await, 2);
    assert_eq!(store.purge(10_000, 20_000, 2).await, 1);
    assert_eq!(store.purge(10_000, 20_000, 2).await, 0);
    // Their tombstones count like calls.
    assert_eq!(store.purge(20_001, 30_000, 2).await, 2);
    assert_eq!(store.purge(20_001, 30_000, 2).await, 1);
}

/// A deleted call's since it was deleted, a purged one's since it was purged.
pub async fn an_id_and_a_key_stay_taken_until_their_tombstone_is_purged(
    store: Box<dyn CallStoreFixture>,
) {
    let new = |n: u128| with_key(new_call(details(key(n), 5_000)), &format!("k{n}"));
    for n in [1, 2, 3] {
        store.submit(new(n)).await;
    }
    store.ended(key(1), 9_000).await;
    store.purge(9_001, 20_000, 100).await;
    let stored = store.found(key(2)).await;
    store.delete(key(2), stored.version, 20_000).await;
    for before in [9_001, 20_000] {
        store.purge(before, 21_000, 100).await;
        for n in [1, 2] {
            let again = store.submit(new(n)).await;
            assert!(matches!(again, SubmitOutcome::Repeated(_)), "{again:?}");
        }
        let keys = [1, 2, 3, 4].map(key).to_vec();
        let known = store.calls().was_submitted(keys).await.unwrap();
        assert_eq!(known, [true, true, true, false]);
    }
    assert_eq!(store.purge(20_001, 21_000, 100).await, 2);
    let keys = vec![key(3), key(1), key_of("tenant-b", 3), key(3)];
    let known = store.calls().was_submitted(keys).await.unwrap();
    assert_eq!(known, [true, false, false, true]);
    for n in [1, 2] {
        let again = store.submit(new(n)).await;
        assert!(matches!(again, SubmitOutcome::Accepted(_)), "{again:?}");
    }
    // A call that is stored keeps its id and key.
    let third = store.submit(new(3)).await;
    assert!(matches!(third, SubmitOutcome::Repeated(_)), "{third:?}");
}

/// Retention knows no tenants, and yet does not mix them up.
pub async fn a_purge_covers_all_tenants_without_mixing_them(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    store.submitted(details(key_of("tenant-b", 1), 5_000)).await;
    store.ended(key_of("tenant-b", 1), 9_000).await;
    assert_eq!(store.purge(9_001, 10_000, 100).await, 1);
    assert!(store.find(key(1)).await.is_some());
    assert_eq!(store.find(key_of("tenant-b", 1)).await, None);
}

/// The call was started without it, and has ended long ago.
pub async fn the_claim_on_a_purged_calls_timer_ends(store: Box<dyn CallStoreFixture>) {
    let (timers, queue) = (store.timers(), store.queue());
    store.submitted(details(key(1), 5_000)).await;
    let timer = direct(key(1), 5_000);
    timers.save(vec![timer], at(1_000)).await.unwrap();
    let claimed = queue.claim_due(at(5_000), 10, LEASE).await.unwrap();
    assert_eq!(claimed.claims.len(), 1);
    store.ended(key(1), 5_001).await;
    assert_eq!(store.purge(5_002, 5_002, 10).await, 1);
    assert_eq!(timers.find(key(1)).await.unwrap(), None);
    // It may get the row id of the purged one.
    store.submitted(details(key(2), 5_000)).await;
    let timer = direct(key(2), 5_000);
    timers.save(vec![timer], at(5_003)).await.unwrap();
    let claimed = queue.claim_due(at(5_004), 10, LEASE).await.unwrap();
    let keys: Vec<_> = claimed.claims.iter().map(|it| &it.timer.key).collect();
    assert_eq!(keys, [&key(2)]);
}
