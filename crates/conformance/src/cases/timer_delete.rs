//! What a deletion removes, what it leaves, and how long it is remembered.

use punctual_ports::{ClaimOutcome, DeleteOutcome, SaveOutcome};

use DeleteOutcome::{AlreadyReached, Deleted, Firing, NotFound};
use SaveOutcome::{Created, Stale};

use crate::TimerStoreFixture;
use crate::store::{Store, at, command, correlation, direct, key, key_of, outcomes, replacement};

suite! { $ timer_delete_suite, timer_delete =>
    no_reader_finds_a_deleted_timer,
    a_deleted_timer_is_never_claimed,
    deleting_what_is_not_there_is_no_error,
    deleting_twice_finds_nothing,
    a_claimed_timer_is_firing_and_stays,
    a_timer_whose_claim_was_released_can_be_deleted,
    a_timer_whose_lease_has_ended_can_be_deleted,
    a_reached_timer_stays,
    a_deletion_concerns_only_its_own_tenant,
    a_command_not_newer_than_the_deletion_is_stale,
    a_newer_command_creates_the_timer_anew,
    a_direct_call_after_a_deletion_registers_later_than_what_was_deleted,
    a_replacement_after_a_deletion_registers_later_than_what_was_deleted,
    a_deletion_survives_a_crash,
    deletions_of_a_batch_are_answered_in_order,
}

/// By key, by due time and by correlation.
pub async fn no_reader_finds_a_deleted_timer(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    assert_eq!(store.delete(key(1), 500).await, Deleted);
    assert_eq!(store.find(key(1)).await, None);
    assert_eq!(store.due("tenant-a", 9_000, 10).await, []);
    let traced = store
        .persistence()
        .find_by_correlation(correlation(1), None, 10)
        .await;
    assert_eq!(traced.expect("find_by_correlation answers"), []);
}

/// Deleted means that it will not fire.
pub async fn a_deleted_timer_is_never_claimed(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    store.delete(key(1), 2_000).await;
    let batch = store.claim_batch(9_000, 10).await;
    assert_eq!(batch.claims, []);
    assert_eq!(batch.next_due_at, None);
}

/// The outcome says so.
pub async fn deleting_what_is_not_there_is_no_error(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(store.delete(key(1), 500).await, NotFound);
    assert_eq!(store.save(command(key(1), 400, 9_000), 600).await, Created);
}

/// The first deletion did it all.
pub async fn deleting_twice_finds_nothing(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    store.delete(key(1), 500).await;
    assert_eq!(store.delete(key(1), 501).await, NotFound);
}

/// Its event may be on the way already, so "deleted" would be a lie.
pub async fn a_claimed_timer_is_firing_and_stays(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.delete(key(1), 1_001).await, Firing);
    store.scheduled(key(1)).await;
    assert_eq!(store.release(&claim).await, ClaimOutcome::Applied);
}

/// Nobody fires it any more.
pub async fn a_timer_whose_claim_was_released_can_be_deleted(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.release(&claim).await;
    assert_eq!(store.delete(key(1), 1_001).await, Deleted);
}

/// Its worker is taken for dead.
pub async fn a_timer_whose_lease_has_ended_can_be_deleted(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.delete(key(1), 31_000).await, Deleted);
    assert_eq!(store.release(&claim).await, ClaimOutcome::Lost);
    assert_eq!(store.renew(&claim, 31_000).await, ClaimOutcome::Lost);
}

/// What has happened cannot be deleted.
pub async fn a_reached_timer_stays(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    let before = store.found(key(1)).await;
    assert_eq!(store.delete(key(1), 2_000).await, AlreadyReached);
    assert_eq!(store.found(key(1)).await, before);
}

/// The same service call id of another tenant is another timer.
pub async fn a_deletion_concerns_only_its_own_tenant(store: Box<dyn TimerStoreFixture>) {
    let (a, b) = (key_of("tenant-a", 1), key_of("tenant-b", 1));
    store.save(direct(a.clone(), 1_000), 0).await;
    assert_eq!(store.delete(b, 500).await, NotFound);
    store.scheduled(a).await;
}

/// What was sent before the deletion does not undo it.
pub async fn a_command_not_newer_than_the_deletion_is_stale(store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 100, 9_000), 100).await;
    store.delete(key(1), 500).await;
    for sent_at in [100, 499, 500] {
        let outcome = store.save(command(key(1), sent_at, 9_000), 600).await;
        assert_eq!(outcome, Stale, "sent at {sent_at}");
    }
    assert_eq!(store.find(key(1)).await, None);
}

/// What was sent after the deletion is meant.
pub async fn a_newer_command_creates_the_timer_anew(store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 100, 9_000), 100).await;
    store.delete(key(1), 500).await;
    assert_eq!(store.save(command(key(1), 501, 8_000), 600).await, Created);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.due_at, at(8_000));
}

/// Also within one millisecond and with a clock that went back: two firings never share an id.
pub async fn a_direct_call_after_a_deletion_registers_later_than_what_was_deleted(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 9_000), 500).await;
    store.delete(key(1), 100).await;
    assert_eq!(store.save(direct(key(1), 9_000), 100).await, Created);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(501));
}

/// As a direct call does.
pub async fn a_replacement_after_a_deletion_registers_later_than_what_was_deleted(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 9_000), 500).await;
    store.delete(key(1), 500).await;
    assert_eq!(store.save(replacement(key(1), 9_000), 500).await, Created);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(501));
}

/// A deletion that was answered stays done, and stays remembered.
pub async fn a_deletion_survives_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 100, 9_000), 100).await;
    store.delete(key(1), 500).await;
    store.crash_and_reopen().await;
    assert_eq!(store.find(key(1)).await, None);
    assert_eq!(store.save(command(key(1), 100, 9_000), 600).await, Stale);
}

/// Outcomes by position, each for itself.
pub async fn deletions_of_a_batch_are_answered_in_order(store: Box<dyn TimerStoreFixture>) {
    store
        .save_all(vec![direct(key(1), 9_000), direct(key(3), 9_000)], 0)
        .await;
    store.reached(key(4), 10).await;
    let keys = vec![key(1), key(2), key(3), key(4), key(1)];
    let answers = store.persistence().delete(keys, at(500)).await;
    let expected = [Deleted, NotFound, Deleted, AlreadyReached, NotFound];
    assert_eq!(outcomes(answers), expected);
}
