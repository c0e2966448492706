//! Which timers a reader sees, and in which order.

use std::collections::BTreeSet;

use punctual_domain::{TimerEntry, TimerKey, TimerState};
use punctual_ports::{PageCursor, PortErrorKind, SaveTimer, TimerPageQuery};

use crate::TimerStoreFixture;
use crate::store::{Store, at, correlation, direct, key, key_of, of_request, timers_of as query};

suite! { $ timer_read_suite, timer_read =>
    a_tenant_sees_only_its_own_timers,
    a_timer_is_due_at_its_instant_and_not_before,
    due_timers_come_by_due_time_up_to_the_limit,
    a_claimed_timer_is_still_due_for_readers,
    a_request_is_traced_through_all_tenants_in_the_order_of_keys,
    a_trace_goes_on_after_a_key_and_sees_each_timer_once,
    a_rescheduled_timer_belongs_to_its_new_request_alone,
    pages_follow_each_other_by_due_time,
    timers_of_one_instant_are_each_seen_once,
    a_page_can_be_of_one_state,
    the_last_page_has_no_cursor,
    changes_between_pages_disturb_no_other_timer,
    a_cursor_of_no_page_is_rejected,
    tenants_whose_names_share_a_beginning_are_kept_apart,
}

/// Follows the cursors to the end.
async fn all_pages(store: &dyn TimerStoreFixture, mut query: TimerPageQuery) -> Vec<TimerEntry> {
    let mut seen = Vec::new();
    for _ in 0..1_000 {
        let page = store.page(query.clone()).await;
        assert!(page.timers.len() <= query.limit);
        seen.extend(page.timers);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return seen,
        }
    }
    panic!("the pages never end");
}

fn keys(timers: &[TimerEntry]) -> Vec<TimerKey> {
    timers
        .iter()
        .map(|entry| entry.timer().key.clone())
        .collect()
}

/// In every method that takes a tenant.
pub async fn a_tenant_sees_only_its_own_timers(store: Box<dyn TimerStoreFixture>) {
    let (a, b) = (key_of("tenant-a", 1), key_of("tenant-b", 2));
    store
        .save_all(vec![direct(a.clone(), 1_000), direct(b.clone(), 1_000)], 0)
        .await;
    let due = store.due("tenant-a", 2_000, 10).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].key, a);
    assert_eq!(keys(&all_pages(&store, query("tenant-a", 10)).await), [a]);
    assert_eq!(store.find(key_of("tenant-a", 2)).await, None);
    assert_eq!(store.due("tenant-c", 2_000, 10).await, []);
}

/// The comparison includes the instant itself.
pub async fn a_timer_is_due_at_its_instant_and_not_before(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    assert_eq!(store.due("tenant-a", 999, 10).await, []);
    assert_eq!(store.due("tenant-a", 1_000, 10).await.len(), 1);
}

/// The oldest first.
pub async fn due_timers_come_by_due_time_up_to_the_limit(store: Box<dyn TimerStoreFixture>) {
    let dues = [5_000, 1_000, 4_000, 2_000, 3_000];
    let batch: Vec<SaveTimer> = (1..)
        .zip(dues)
        .map(|(n, due)| direct(key(n), due))
        .collect();
    store.save_all(batch, 0).await;
    let due = store.due("tenant-a", 4_500, 3).await;
    let dues: Vec<i64> = due
        .iter()
        .map(|t| t.registration.due_at.as_millis())
        .collect();
    assert_eq!(dues, [1_000, 2_000, 3_000]);
    assert_eq!(store.due("tenant-a", 4_500, 10).await.len(), 4);
}

/// Until it is marked, it is scheduled and due.
pub async fn a_claimed_timer_is_still_due_for_readers(store: Box<dyn TimerStoreFixture>) {
    store.claimed(key(1), 1_000).await;
    assert_eq!(store.due("tenant-a", 1_000, 10).await.len(), 1);
}

/// One request may touch many tenants.
pub async fn a_request_is_traced_through_all_tenants_in_the_order_of_keys(
    store: Box<dyn TimerStoreFixture>,
) {
    let of = |tenant: &str, n, due, id| of_request(direct(key_of(tenant, n), due), id);
    let batch = vec![
        of("tenant-b", 1, 3_000, 7),
        of("tenant-a", 2, 2_000, 7),
        of("tenant-c", 3, 1_000, 7),
        of("tenant-a", 4, 1_500, 8),
    ];
    store.save_all(batch, 0).await;
    assert_eq!(traced(&store, 10).await, [2_000, 3_000, 1_000]);
    assert_eq!(traced(&store, 2).await, [2_000, 3_000]);
}

/// Also if timers before and after the key are moved, created or deleted meanwhile.
pub async fn a_trace_goes_on_after_a_key_and_sees_each_timer_once(
    store: Box<dyn TimerStoreFixture>,
) {
    let of = |n: u128| of_request(direct(key(n), 9_000 - i64::try_from(n).unwrap_or(0)), 7);
    store.save_all((1..=9).map(of).collect(), 0).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let persistence = store.persistence();
        let page = persistence.find_by_correlation(correlation(7), after.clone(), 4);
        let page = page.await.expect("find_by_correlation answers");
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.timer().key.clone());
        seen.extend(page.iter().map(|entry| entry.timer().key.clone()));
        store.save(of(seen.len() as u128), 10).await;
        store
            .save(direct(key(100 + seen.len() as u128), 1), 10)
            .await;
    }
    assert_eq!(seen, (1..=9).map(key).collect::<Vec<_>>());
}

/// The old request's trace ends where the new one's begins.
pub async fn a_rescheduled_timer_belongs_to_its_new_request_alone(
    store: Box<dyn TimerStoreFixture>,
) {
    let of = |id| of_request(direct(key(1), 1_000), id);
    store.save(of(7), 0).await;
    store.save(of(8), 10).await;
    assert!(traced(&store, 10).await.is_empty());
    store.save(of(7), 20).await;
    assert_eq!(traced(&store, 10).await, [1_000]);
}

async fn traced(store: &dyn TimerStoreFixture, limit: usize) -> Vec<i64> {
    let persistence = store.persistence();
    let found = persistence
        .find_by_correlation(correlation(7), None, limit)
        .await;
    let found = found.expect("find_by_correlation answers");
    let due_at = |entry: &TimerEntry| entry.timer().registration.due_at.as_millis();
    found.iter().map(due_at).collect()
}

/// Page after page, as one list would be.
pub async fn pages_follow_each_other_by_due_time(store: Box<dyn TimerStoreFixture>) {
    let batch: Vec<SaveTimer> = (0..25_u32)
        .map(|n| direct(key(u128::from(n)), i64::from(n * 7 % 25)))
        .collect();
    store.save_all(batch, 0).await;
    store.reached(key(99), 12).await;
    let seen = all_pages(&store, query("tenant-a", 4)).await;
    assert_eq!(seen.len(), 26);
    let dues: Vec<_> = seen.iter().map(|e| e.timer().registration.due_at).collect();
    assert!(dues.is_sorted(), "{dues:?}");
}

/// Equal due times are no reason to skip or to repeat.
pub async fn timers_of_one_instant_are_each_seen_once(store: Box<dyn TimerStoreFixture>) {
    store.save_many(0..25, 1_000).await;
    let seen = keys(&all_pages(&store, query("tenant-a", 4)).await);
    assert_eq!(seen.len(), 25);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 25);
}

/// Each timer is in exactly one of the two lists.
pub async fn a_page_can_be_of_one_state(store: Box<dyn TimerStoreFixture>) {
    store.save_many(0..10, 9_000).await;
    for n in 10..17 {
        store.reached(key(n), 1_000).await;
    }
    for (state, count) in [(TimerState::Scheduled, 10), (TimerState::Reached, 7)] {
        let query = TimerPageQuery {
            state: Some(state),
            ..query("tenant-a", 3)
        };
        let seen = all_pages(&store, query).await;
        assert_eq!(seen.len(), count);
        assert!(seen.iter().all(|entry| entry.state() == state));
    }
}

/// Also when it is exactly full.
pub async fn the_last_page_has_no_cursor(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(store.page(query("tenant-a", 5)).await.next, None);
    store.save_many(0..10, 1_000).await;
    let first = store.page(query("tenant-a", 5)).await;
    let second = TimerPageQuery {
        after: Some(first.next.expect("there is a second page")),
        ..query("tenant-a", 5)
    };
    let second = store.page(second).await;
    assert_eq!((first.timers.len(), second.timers.len()), (5, 5));
    assert_eq!(second.next, None);
}

/// What does not change is seen once, whatever comes and goes around it.
pub async fn changes_between_pages_disturb_no_other_timer(store: Box<dyn TimerStoreFixture>) {
    store.save_many(0..12, 1_000).await;
    let first = store.page(query("tenant-a", 5)).await;
    let deleted = keys(&first.timers)[4].clone();
    store.delete(deleted, 500).await;
    store
        .save_all((100..105).map(|n| direct(key(n), 10)).collect(), 500)
        .await;
    let rest = TimerPageQuery {
        after: first.next.clone(),
        ..query("tenant-a", 5)
    };
    let rest = all_pages(&store, rest).await;
    let seen: Vec<TimerKey> = keys(&first.timers).into_iter().chain(keys(&rest)).collect();
    let mut original: Vec<TimerKey> = (0..12).map(key).collect();
    original.retain(|k| seen.iter().filter(|s| *s == k).count() == 1);
    assert_eq!(
        original.len(),
        12,
        "each of the first twelve is seen exactly once"
    );
}

/// It is an error that says so, not an empty page.
pub async fn a_cursor_of_no_page_is_rejected(store: Box<dyn TimerStoreFixture>) {
    for nonsense in ["", "x", "1", "💥", "' OR 1=1 --", "99999999999999999999.1"] {
        let query = TimerPageQuery {
            after: Some(PageCursor(nonsense.to_owned())),
            ..query("tenant-a", 5)
        };
        let error = store.persistence().page(query).await.unwrap_err();
        assert_eq!(error.kind(), PortErrorKind::Rejected, "{nonsense}");
    }
}

/// A name that begins with another name is another name.
pub async fn tenants_whose_names_share_a_beginning_are_kept_apart(
    store: Box<dyn TimerStoreFixture>,
) {
    let tenants = ["a", "A", "a-", "aa", "a_", "a0"];
    for tenant in tenants {
        store.save(direct(key_of(tenant, 1), 1_000), 0).await;
    }
    for tenant in tenants {
        let due = store.due(tenant, 1_000, 10).await;
        assert_eq!(due.len(), 1, "{tenant}");
        assert_eq!(due[0].key, key_of(tenant, 1));
        assert_eq!(due[0].registration.due_at, at(1_000));
    }
}
