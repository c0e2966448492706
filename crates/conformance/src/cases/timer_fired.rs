//! Reading the timers fired since an instant, to publish them again.

use punctual_domain::{ReachedTimer, TimerEntry, TimerKey};
use punctual_ports::{FiredCursor, FiredPage};

use crate::TimerStoreFixture;
use crate::store::{Store, at, direct, key, key_of, replacement, with_data};

suite! { $ timer_fired_suite, timer_fired =>
    timers_fired_since_an_instant_are_listed_for_all_tenants,
    a_timer_that_waits_is_not_among_the_fired,
    a_fired_timer_comes_back_complete,
    the_fired_come_by_instant_then_tenant_then_call,
    pages_of_the_fired_follow_each_other,
    the_fired_of_one_instant_are_each_seen_once,
    the_last_page_of_the_fired_has_no_cursor,
    a_cursor_from_before_the_instant_changes_nothing,
    what_is_fired_meanwhile_is_on_a_later_page,
    a_dead_lettered_timer_is_among_the_fired,
    a_replaced_timer_is_not_among_the_fired,
    what_was_fired_is_known_after_a_crash,
}

async fn page(
    store: &dyn TimerStoreFixture,
    since: i64,
    after: Option<FiredCursor>,
    limit: usize,
) -> FiredPage {
    let queue = store.queue();
    let page = queue.fired_since(at(since), after, limit).await;
    let page = page.expect("fired_since answers");
    assert!(page.timers.len() <= limit, "at most {limit}");
    page
}

/// Follows the cursors to the end.
async fn all_pages(store: &dyn TimerStoreFixture, since: i64, limit: usize) -> Vec<ReachedTimer> {
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let page = page(store, since, after, limit).await;
        seen.extend(page.timers);
        match page.next {
            Some(next) => after = Some(next),
            None => return seen,
        }
    }
    panic!("the pages never end");
}

fn positions(fired: &[ReachedTimer]) -> Vec<(i64, TimerKey)> {
    let position = |it: &ReachedTimer| (it.reached_at().as_millis(), it.timer().key.clone());
    fired.iter().map(position).collect()
}

/// The instant itself included.
pub async fn timers_fired_since_an_instant_are_listed_for_all_tenants(
    store: Box<dyn TimerStoreFixture>,
) {
    store.reached(key_of("tenant-a", 1), 999).await;
    store.reached(key_of("tenant-b", 2), 1_000).await;
    store.reached(key_of("tenant-a", 3), 1_001).await;
    let fired = page(&store, 1_000, None, 10).await;
    let expected = [
        (1_000, key_of("tenant-b", 2)),
        (1_001, key_of("tenant-a", 3)),
    ];
    assert_eq!(positions(&fired.timers), expected);
    assert_eq!(page(&store, 1_002, None, 10).await.timers, []);
}

/// Not even one that is claimed.
pub async fn a_timer_that_waits_is_not_among_the_fired(store: Box<dyn TimerStoreFixture>) {
    store.claimed(key(1), 1_000).await;
    store.save(direct(key(2), 2_000), 0).await;
    assert_eq!(page(&store, 0, None, 10).await.timers, []);
}

/// With data, request and registration: the event that is made of it is the first one's.
pub async fn a_fired_timer_comes_back_complete(store: Box<dyn TimerStoreFixture>) {
    let timer = with_data(direct(key(1), 1_000), "{\"a\": [1, null]}");
    store.save(timer, 7).await;
    let waited = store.scheduled(key(1)).await;
    store.mark(&waited, 1_234).await;
    let fired = page(&store, 0, None, 10).await.timers;
    let first = waited.reach(at(1_234)).expect("it is due");
    assert_eq!(fired, [first]);
}

/// However they were saved.
pub async fn the_fired_come_by_instant_then_tenant_then_call(store: Box<dyn TimerStoreFixture>) {
    let expected = [
        (1_000, key_of("tenant-c", 9)),
        (2_000, key_of("Tenant-c", 8)),
        (2_000, key_of("tenant-a", 3)),
        (2_000, key_of("tenant-a", 0xa0)),
        (2_000, key_of("tenant-b", 2)),
        (3_000, key_of("tenant-a", 1)),
    ];
    for index in [4, 0, 3, 5, 2, 1] {
        let (at, key) = expected[index].clone();
        store.reached(key, at).await;
    }
    assert_eq!(positions(&all_pages(&store, 0, 10).await), expected);
    assert_eq!(positions(&all_pages(&store, 0, 1).await), expected);
}

/// Page after page, as one list would be.
pub async fn pages_of_the_fired_follow_each_other(store: Box<dyn TimerStoreFixture>) {
    for n in 0..25_u32 {
        let (number, due_at) = (u128::from(n), i64::from(n * 7 % 25));
        store.reached(key(number), due_at).await;
    }
    for limit in [1, 4, 5, 25, 100] {
        let fired = positions(&all_pages(&store, 3, limit).await);
        let instants: Vec<i64> = fired.iter().map(|(at, _)| *at).collect();
        assert_eq!(instants, (3..25).collect::<Vec<_>>(), "by {limit}");
    }
}

/// A page may end between them.
pub async fn the_fired_of_one_instant_are_each_seen_once(store: Box<dyn TimerStoreFixture>) {
    for n in (0..20).rev() {
        store
            .reached(key_of(&format!("t{}", n % 3), n), 1_000)
            .await;
    }
    store.reached(key(99), 1_001).await;
    for limit in [1, 3, 7] {
        let fired = positions(&all_pages(&store, 1_000, limit).await);
        assert_eq!(fired.len(), 21, "by {limit}");
        assert!(fired.is_sorted_by(|a, b| a < b), "by {limit}: {fired:?}");
    }
}

/// Also if it is full.
pub async fn the_last_page_of_the_fired_has_no_cursor(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(page(&store, 0, None, 2).await.next, None);
    store.reached(key(1), 1_000).await;
    store.reached(key(2), 1_000).await;
    assert_eq!(page(&store, 0, None, 2).await.next, None);
    let first = page(&store, 0, None, 1).await;
    let cursor = FiredCursor::of(&first.timers[0]);
    assert_eq!(first.next, Some(cursor.clone()));
    assert_eq!(page(&store, 0, Some(cursor), 1).await.next, None);
}

/// The instant still rules.
pub async fn a_cursor_from_before_the_instant_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    store.reached(key(2), 2_000).await;
    store.reached(key(3), 3_000).await;
    let early = FiredCursor {
        reached_at: at(500),
        key: key(9),
    };
    let fired = page(&store, 2_000, Some(early), 10).await;
    assert_eq!(fired, page(&store, 2_000, None, 10).await);
    assert_eq!(fired.timers.len(), 2);
}

/// No timer is listed twice.
pub async fn what_is_fired_meanwhile_is_on_a_later_page(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    store.reached(key(2), 2_000).await;
    let first = page(&store, 0, None, 1).await;
    store.reached(key(3), 500).await;
    store.reached(key(4), 3_000).await;
    let rest = page(&store, 0, first.next, 10).await;
    assert_eq!(
        positions(&rest.timers),
        [(2_000, key(2)), (3_000, key(4))],
        "after the cursor and nothing before it"
    );
}

/// Its event is published again like any other.
pub async fn a_dead_lettered_timer_is_among_the_fired(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.dead_letter(&claim, 1_500).await;
    let fired = page(&store, 1_500, None, 10).await.timers;
    assert_eq!(positions(&fired), [(1_500, key(1))]);
}

/// What it was before is no longer stored.
pub async fn a_replaced_timer_is_not_among_the_fired(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    store.save(replacement(key(1), 9_000), 2_000).await;
    assert_eq!(page(&store, 0, None, 10).await.timers, []);
}

/// Recovery reads it after a crash.
pub async fn what_was_fired_is_known_after_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    let TimerEntry::Reached { timer: reached, .. } = store.found(key(1)).await else {
        panic!("it was marked");
    };
    store.crash_and_reopen().await;
    assert_eq!(page(&store, 0, None, 10).await.timers, [reached]);
}
