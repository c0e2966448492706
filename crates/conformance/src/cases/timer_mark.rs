//! When a timer becomes reached, and what follows from it.

use punctual_domain::TimerEntry;
use punctual_ports::{ClaimOutcome, FiredTimer, MarkOutcome, PortErrorKind};

use crate::TimerStoreFixture;
use crate::store::{Store, at, direct, key, key_of, replacement};

suite! { $ timer_mark_suite, timer_mark =>
    marking_makes_a_timer_reached,
    a_reached_timer_is_never_due_again,
    marking_twice_changes_nothing,
    a_mark_of_a_moved_timer_changes_nothing,
    a_mark_of_the_same_due_time_in_the_same_millisecond_changes_nothing,
    a_mark_of_a_replaced_timer_changes_nothing,
    a_mark_before_the_due_time_is_rejected,
    a_mark_of_an_unknown_timer_is_not_found,
    a_mark_concerns_only_its_own_tenant,
    a_mark_needs_no_claim,
    a_mark_ends_the_claim,
    one_bad_mark_affects_no_other,
    a_mark_survives_a_crash,
}

/// The row has the time.
pub async fn marking_makes_a_timer_reached(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let timer = store.scheduled(key(1)).await;
    assert_eq!(store.mark(&timer, 1_234).await, MarkOutcome::Marked);
    let found = store.found(key(1)).await;
    assert_eq!(found.reached_at(), Some(at(1_234)));
    assert_eq!(found.timer(), &timer);
}

/// Neither for readers nor for the queue.
pub async fn a_reached_timer_is_never_due_again(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    assert_eq!(store.due("tenant-a", 999_999_999, 10).await, []);
    let batch = store.claim_batch(999_999_999, 10).await;
    assert_eq!(batch.claims, []);
    assert_eq!(batch.next_due_at, None);
}

/// The first mark's time stays.
pub async fn marking_twice_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let timer = store.scheduled(key(1)).await;
    store.mark(&timer, 1_001).await;
    assert_eq!(store.mark(&timer, 1_002).await, MarkOutcome::AlreadyReached);
    assert_eq!(store.found(key(1)).await.reached_at(), Some(at(1_001)));
}

/// The new schedule is untouched and fires by itself.
pub async fn a_mark_of_a_moved_timer_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    let fired = store.claimed(key(1), 1_000).await.timer;
    store.save(direct(key(1), 5_000), 1_001).await;
    assert_eq!(store.mark(&fired, 1_002).await, MarkOutcome::Moved);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.due_at, at(5_000));
    assert_eq!(store.claim_one(5_000).await.timer, found);
}

/// The registration tells the two schedules apart.
pub async fn a_mark_of_the_same_due_time_in_the_same_millisecond_changes_nothing(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 1_000), 1_000).await;
    let fired = store.claim_one(1_000).await.timer;
    store.save(direct(key(1), 1_000), 1_000).await;
    assert_eq!(store.mark(&fired, 1_000).await, MarkOutcome::Moved);
    store.claim_one(1_001).await;
}

/// A replacement has a schedule of its own.
pub async fn a_mark_of_a_replaced_timer_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 1_000).await;
    let fired = store.claim_one(1_000).await.timer;
    store.save(replacement(key(1), 1_000), 1_000).await;
    assert_eq!(store.mark(&fired, 1_000).await, MarkOutcome::Moved);
    let again = store.claim_one(1_001).await.timer;
    assert_eq!(store.mark(&again, 1_001).await, MarkOutcome::Marked);
    assert_eq!(store.mark(&fired, 1_002).await, MarkOutcome::Moved);
}

/// The store is the last guard against an early firing.
pub async fn a_mark_before_the_due_time_is_rejected(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let timer = store.scheduled(key(1)).await;
    let error = store.try_mark(&timer, 999).await.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Rejected);
    assert_eq!(store.scheduled(key(1)).await, timer);
}

/// What was deleted meanwhile is no error.
pub async fn a_mark_of_an_unknown_timer_is_not_found(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let timer = store.scheduled(key(1)).await;
    store.delete(key(1), 500).await;
    assert_eq!(store.mark(&timer, 1_000).await, MarkOutcome::NotFound);
    assert_eq!(store.find(key(1)).await, None);
}

/// The same service call id of another tenant is another timer.
pub async fn a_mark_concerns_only_its_own_tenant(store: Box<dyn TimerStoreFixture>) {
    let (a, b) = (key_of("tenant-a", 1), key_of("tenant-b", 1));
    store
        .save_all(vec![direct(a.clone(), 1_000), direct(b.clone(), 1_000)], 0)
        .await;
    let timer = store.scheduled(a.clone()).await;
    store.mark(&timer, 1_000).await;
    assert!(matches!(store.found(a).await, TimerEntry::Reached { .. }));
    assert!(matches!(store.found(b).await, TimerEntry::Scheduled { .. }));
}

/// A worker whose lease ended has published all the same, and may say so.
pub async fn a_mark_needs_no_claim(store: Box<dyn TimerStoreFixture>) {
    let first = store.claimed(key(1), 1_000).await;
    let second = store.claim_one(40_000).await;
    assert_ne!(first.token, second.token);
    assert_eq!(store.mark(&first.timer, 1_000).await, MarkOutcome::Marked);
}

/// A reached timer has no lease.
pub async fn a_mark_ends_the_claim(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.mark(&claim.timer, 1_000).await;
    assert_eq!(store.release(&claim).await, ClaimOutcome::Lost);
    assert_eq!(store.retry(&claim, 2_000).await, ClaimOutcome::Lost);
    assert_eq!(store.claim(999_999, 10).await, []);
}

/// Outcomes by position, each for itself.
pub async fn one_bad_mark_affects_no_other(store: Box<dyn TimerStoreFixture>) {
    let timers = vec![
        direct(key(1), 1_000),
        direct(key(2), 5_000),
        direct(key(3), 1_000),
    ];
    store.save_all(timers, 0).await;
    let mut batch = Vec::new();
    for n in 1..=3 {
        batch.push(FiredTimer {
            firing_id: store.scheduled(key(n)).await.firing_id(),
            reached_at: at(1_000),
        });
    }
    let answers = store.persistence().mark_fired(batch).await;
    let answers = answers.expect("mark_fired answers");
    assert_eq!(answers[0].as_ref().unwrap(), &MarkOutcome::Marked);
    assert_eq!(
        answers[1].as_ref().unwrap_err().kind(),
        PortErrorKind::Rejected
    );
    assert_eq!(answers[2].as_ref().unwrap(), &MarkOutcome::Marked);
    store.scheduled(key(2)).await;
}

/// A firing that was marked is not repeated.
pub async fn a_mark_survives_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    store.crash_and_reopen().await;
    assert_eq!(store.claim(999_999, 10).await, []);
}
