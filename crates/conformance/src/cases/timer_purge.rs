//! What retention removes and what it never touches.

use punctual_domain::TimerState;
use punctual_ports::{SaveOutcome, TimerPageQuery};

use crate::TimerStoreFixture;
use crate::store::{Store, command, direct, key, timers_of};

suite! { $ timer_purge_suite, timer_purge =>
    what_was_reached_before_the_instant_is_removed,
    a_scheduled_timer_is_never_removed,
    a_purge_removes_up_to_its_limit_and_returns_how_many,
    a_purge_removes_old_tombstones,
    a_purged_timer_can_be_scheduled_anew,
}

/// Before, and not at.
pub async fn what_was_reached_before_the_instant_is_removed(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 999).await;
    store.reached(key(2), 1_000).await;
    assert_eq!(store.purge(1_000, 10).await, 1);
    assert_eq!(store.find(key(1)).await, None);
    assert!(store.find(key(2)).await.is_some());
    assert_eq!(store.purge(1_000, 10).await, 0);
}

/// However long it is overdue.
pub async fn a_scheduled_timer_is_never_removed(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1), 0).await;
    store.save(direct(key(2), 1), 0).await;
    store.claim(1, 1).await;
    assert_eq!(store.purge(999_999_999, 10).await, 0);
    store.scheduled(key(1)).await;
    store.scheduled(key(2)).await;
}

/// So that the caller can go on until nothing is left.
pub async fn a_purge_removes_up_to_its_limit_and_returns_how_many(
    store: Box<dyn TimerStoreFixture>,
) {
    for n in 0..7 {
        store.reached(key(n), 100).await;
    }
    store.save(direct(key(8), 100), 0).await;
    store.delete(key(8), 50).await;
    let mut purged = Vec::new();
    for _ in 0..4 {
        purged.push(store.purge(1_000, 3).await);
    }
    assert_eq!(purged, [3, 3, 2, 0]);
    let query = TimerPageQuery {
        state: Some(TimerState::Reached),
        ..timers_of("tenant-a", 10)
    };
    assert_eq!(store.page(query).await.timers, []);
}

/// After the retention time, an old command is like a new one.
pub async fn a_purge_removes_old_tombstones(store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 100, 9_000), 100).await;
    store.delete(key(1), 500).await;
    assert_eq!(store.purge(500, 10).await, 0);
    assert_eq!(store.purge(501, 10).await, 1);
    assert_eq!(
        store.save(command(key(1), 100, 9_000), 600).await,
        SaveOutcome::Created
    );
}

/// A purged row blocks no schedule.
pub async fn a_purged_timer_can_be_scheduled_anew(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 100).await;
    store.purge(1_000, 10).await;
    assert_eq!(
        store.save(direct(key(1), 2_000), 1_000).await,
        SaveOutcome::Created
    );
    store.claim_one(2_000).await;
}
