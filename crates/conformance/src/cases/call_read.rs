//! Finding calls by key and by request, and finding stuck ones.

use std::time::Duration;

use punctual_domain::TimerKey;
use punctual_domain::service_call::call::{GRACE, OVERDUE, UNHEARD};
use punctual_domain::service_call::{CallDetails, CallStep, ServiceCall};

use crate::CallStoreFixture;
use crate::calls::{Calls, TIMEOUT, correlated, details, number, running};
use crate::store::{at, correlation, key, key_of};

suite! { $ call_read_suite, call_read =>
    calls_are_found_in_the_order_of_their_keys,
    another_tenants_call_is_not_found,
    the_calls_of_a_request_are_paged_in_the_order_of_keys,
    calls_past_their_next_check_are_stuck_and_the_oldest_comes_first,
    a_running_call_is_stuck_when_its_state_says,
    a_call_is_stuck_by_the_store_s_clock_too,
    a_finished_call_is_never_stuck,
}

/// Each position has its answer, also those of unknown and repeated keys.
pub async fn calls_are_found_in_the_order_of_their_keys(store: Box<dyn CallStoreFixture>) {
    let one = store.submitted(details(key(1), 5_000)).await;
    let two = store.submitted(details(key(2), 6_000)).await;
    let keys = [2, 9, 1, 2].map(key).to_vec();
    let found = store.calls().find(keys).await.unwrap();
    let expected = [Some(two.clone()), None, Some(one), Some(two)];
    assert_eq!(found, expected);
    let none = store.calls().find(Vec::new()).await.unwrap();
    assert_eq!(none, []);
}

/// Not even by its own id.
pub async fn another_tenants_call_is_not_found(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    assert_eq!(store.find(key_of("tenant-b", 1)).await, None);
}

/// Up to the limit, through all tenants.
pub async fn the_calls_of_a_request_are_paged_in_the_order_of_keys(
    store: Box<dyn CallStoreFixture>,
) {
    let call = |key: TimerKey, submitted_at: i64, request: u128| CallDetails {
        submitted_at: at(submitted_at),
        ..correlated(details(key, 50_000), request)
    };
    let calls = vec![
        call(key(1), 3_000, 5),
        call(key_of("tenant-b", 2), 1_000, 5),
        call(key(3), 2_000, 5),
        call(key(4), 1_500, 6),
    ];
    store.submit_all(calls).await;
    for (after, limit, expected) in [
        (None, 10, vec![1, 3, 2]),
        (None, 2, vec![1, 3]),
        (Some(key(1)), 1, vec![3]),
        (Some(key(2)), 10, vec![3, 2]),
        (Some(key(3)), 10, vec![2]),
        (Some(key_of("tenant-b", 2)), 10, vec![]),
        (None, 0, vec![]),
    ] {
        let calls = store.calls();
        let found = calls
            .find_by_correlation(correlation(5), after, limit)
            .await;
        let ids = found.unwrap().iter().map(number).collect::<Vec<_>>();
        assert_eq!(ids, expected);
    }
}

/// Of all tenants, with the time of the next check.
pub async fn calls_past_their_next_check_are_stuck_and_the_oldest_comes_first(
    store: Box<dyn CallStoreFixture>,
) {
    store
        .submit_all(vec![
            details(key(1), 3_000),
            details(key_of("tenant-b", 2), 1_000),
            details(key(3), 2_000),
            details(key(4), 9_000),
        ])
        .await;
    let check = |millis: i64| at(millis).saturating_add(OVERDUE);
    let calls = store.calls();
    for (now, limit, expected, next) in [
        (at(900), 10, vec![], check(1_000)),
        (check(1_000), 10, vec![2], check(2_000)),
        (check(3_000), 10, vec![2, 3, 1], check(9_000)),
        (check(3_000), 2, vec![2, 3], check(9_000)),
    ] {
        let found = calls.find_stuck(now, limit).await.unwrap();
        let ids: Vec<u128> = found.calls.iter().map(|it| number(&it.call)).collect();
        assert_eq!((ids, found.next), (expected, Some(next)), "{now}");
    }
    let all = calls.find_stuck(check(9_000), 10).await.unwrap();
    assert_eq!((all.calls.len(), all.next), (4, None));
    let stored = store.found(key(4)).await;
    assert_eq!(all.calls[3], stored, "with the version to change it by");
}

/// No module has answered its command, or its attempt has no result.
pub async fn a_running_call_is_stuck_when_its_state_says(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    let stored = store.started(key(1)).await;
    let calls = store.calls();
    let unheard = at(5_000).saturating_add(UNHEARD);
    let before = unheard.saturating_sub(Duration::from_millis(1));
    let found = calls.find_stuck(before, 10).await.unwrap();
    assert_eq!((found.calls, found.next), (vec![], Some(unheard)));
    let found = calls.find_stuck(unheard, 10).await.unwrap();
    assert_eq!(found.calls, std::slice::from_ref(&stored));
    let began = running(&stored).attempt_started(at(6_000));
    let step = CallStep {
        call: ServiceCall::Running(began),
        outgoing: Vec::new(),
    };
    store.change(stored.version, step, 6_000).await;
    let found = calls.find_stuck(unheard, 10).await.unwrap();
    let over = at(6_000).saturating_add(TIMEOUT + GRACE);
    assert_eq!((found.calls, found.next), (vec![], Some(over)));
}

/// However far ahead the caller's clock is, a call is started by neither early.
pub async fn a_call_is_stuck_by_the_store_s_clock_too(store: Box<dyn CallStoreFixture>) {
    if !store.has_store_clock() {
        return;
    }
    store.submitted(details(key(1), 5_000)).await;
    let (check, calls) = (at(5_000).saturating_add(OVERDUE), store.calls());
    let millisecond = Duration::from_millis(1);
    let (before, after) = (check.saturating_sub(millisecond), check.next());
    for (caller, stores, count) in [
        (after, before, 0),
        (before, after, 0),
        (after, check, 1),
        (check, after, 1),
    ] {
        store.set_store_clock(Some(stores));
        let found = calls.find_stuck(caller, 10).await.unwrap();
        assert_eq!(found.as_of, caller.min(stores));
        assert_eq!(found.calls.len(), count, "{caller} {stores}");
        assert_eq!(found.next, (count == 0).then_some(check));
    }
}

/// It has no next check.
pub async fn a_finished_call_is_never_stuck(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    store.ended(key(1), 9_000).await;
    let found = store.calls().find_stuck(at(99_000_000_000), 10).await;
    let found = found.unwrap();
    assert_eq!((found.calls, found.next), (vec![], None));
}
