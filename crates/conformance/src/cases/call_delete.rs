//! What is deleted with a call, and which calls cannot be deleted.

use punctual_ports::{CallDeletion, ChangeOutcome, FiredTimer, MarkOutcome, SaveOutcome};

use crate::CallStoreFixture;
use crate::calls::{Calls, began, details, execution, tagged};
use crate::store::{LEASE, at, command, direct, key, key_of, outcome};

suite! { $ call_delete_suite, call_delete =>
    a_call_is_deleted_with_its_tags_and_its_attempt,
    a_deleted_calls_timer_does_not_come_back,
    a_late_command_for_a_deleted_call_schedules_nothing,
    the_claim_on_a_deleted_calls_timer_ends,
    a_call_that_runs_or_has_finished_is_not_deleted,
    a_deletion_of_another_version_is_outdated,
    a_deletion_is_published_if_it_was_made,
    a_deletion_touches_no_other_call,
}

/// For every reader.
pub async fn a_call_is_deleted_with_its_tags_and_its_attempt(store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(tagged(key(1), 5_000, &["a"])).await;
    store.accept(execution(key(1), "example.com", 2_000)).await;
    let deleted = store.delete(key(1), stored.version, 2_000).await;
    assert_eq!(deleted, ChangeOutcome::Changed);
    assert_eq!(store.find(key(1)).await, None);
    let mut query = crate::calls::all_of("tenant-a", 10);
    assert_eq!(store.page(query.clone()).await.calls, []);
    query.tags = vec![crate::calls::tag("a")];
    assert_eq!(store.page(query).await.calls, []);
    let entries = store.attempts().entries(key(1), 10).await.unwrap();
    assert_eq!(entries, []);
    let stuck = store.calls().find_stuck(at(99_000_000), 10).await;
    assert_eq!(stuck.unwrap().calls, []);
    let again = store.delete(key(1), stored.version, 2_000).await;
    assert_eq!(again, ChangeOutcome::Outdated);
}

async fn save(store: &dyn CallStoreFixture, n: u128, sent_at: i64) -> SaveOutcome {
    let timer = command(key(n), sent_at, 5_000);
    outcome(store.timers().save(vec![timer], at(9_000)).await)
}

/// Also if the command that scheduled it is delivered again, late.
pub async fn a_deleted_calls_timer_does_not_come_back(mut store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(details(key(1), 5_000)).await;
    assert_eq!(save(&store, 1, 1_000).await, SaveOutcome::Created);
    store.delete(key(1), stored.version, 2_000).await;
    store.crash_and_reopen().await;
    for sent_at in [1_000, 2_000] {
        assert_eq!(save(&store, 1, sent_at).await, SaveOutcome::Stale);
    }
    assert_eq!(store.timers().find(key(1)).await.unwrap(), None);
}

/// The call was deleted before its timer was scheduled, by a clock that was set back in between.
pub async fn a_late_command_for_a_deleted_call_schedules_nothing(store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(details(key(1), 5_000)).await;
    store.delete(key(1), stored.version, 500).await;
    assert_eq!(save(&store, 1, 1_000).await, SaveOutcome::Stale);
    assert_eq!(store.timers().find(key(1)).await.unwrap(), None);
}

/// Its firing settles nothing, and another timer can be stored under its row id.
pub async fn the_claim_on_a_deleted_calls_timer_ends(store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(details(key(1), 5_000)).await;
    save(&store, 1, 1_000).await;
    let queue = store.queue();
    let claimed = queue.claim_due(at(5_000), 10, LEASE).await.unwrap();
    let claim = claimed.claims[0].clone();
    let deleted = store.delete(key(1), stored.version, 5_001).await;
    assert_eq!(deleted, ChangeOutcome::Changed);
    // A timer of another call, which may get the row id of the deleted one.
    store.submitted(details(key(2), 5_000)).await;
    let timer = direct(key(2), 5_000);
    let timers = store.timers();
    timers.save(vec![timer], at(5_002)).await.unwrap();
    let claimed = queue.claim_due(at(5_003), 10, LEASE).await.unwrap();
    let keys: Vec<_> = claimed.claims.iter().map(|it| &it.timer.key).collect();
    assert_eq!(keys, [&key(2)]);
    let fired = FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: at(5_000),
    };
    let marked = outcome(timers.mark_fired(vec![fired]).await);
    assert_eq!(marked, MarkOutcome::NotFound);
}

/// It is too late.
pub async fn a_call_that_runs_or_has_finished_is_not_deleted(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    store.submitted(details(key(2), 5_000)).await;
    let runs = store.started(key(1)).await;
    let ended = store.ended(key(2), 9_000).await;
    for (n, stored) in [(1, runs), (2, ended)] {
        let deleted = store.delete(key(n), stored.version, 9_000).await;
        assert_eq!(deleted, ChangeOutcome::Outdated);
        assert_eq!(store.found(key(n)).await, stored);
    }
}

/// Nothing is changed.
pub async fn a_deletion_of_another_version_is_outdated(store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(details(key(1), 5_000)).await;
    save(&store, 1, 1_000).await;
    for version in [0, stored.version + 1, u64::MAX] {
        let deleted = store.delete(key(1), version, 2_000).await;
        assert_eq!(deleted, ChangeOutcome::Outdated);
    }
    assert_eq!(store.found(key(1)).await, stored);
    assert!(store.timers().find(key(1)).await.unwrap().is_some());
}

/// Both or neither.
pub async fn a_deletion_is_published_if_it_was_made(store: Box<dyn CallStoreFixture>) {
    let stored = store.submitted(details(key(1), 5_000)).await;
    let before = store.messages().await.len();
    let message = began(&execution(key(1), "example.com", 1).key, 2_000);
    for (expected_version, more) in [(stored.version + 1, 0), (stored.version, 1)] {
        let deletion = CallDeletion {
            key: key(1),
            expected_version,
            deleted_at: at(2_000),
            outbox: vec![message.clone()],
        };
        store.calls().delete(vec![deletion]).await.unwrap();
        assert_eq!(store.messages().await.len(), before + more);
    }
    assert_eq!(store.messages().await.last(), Some(&message));
}

/// Neither of this tenant nor of another.
pub async fn a_deletion_touches_no_other_call(store: Box<dyn CallStoreFixture>) {
    let theirs = store
        .submitted(tagged(key_of("tenant-b", 1), 5_000, &["a"]))
        .await;
    let beside = store.submitted(tagged(key(2), 5_000, &["a"])).await;
    let stored = store.submitted(tagged(key(1), 5_000, &["a"])).await;
    store.delete(key(1), stored.version, 2_000).await;
    assert_eq!(store.found(key_of("tenant-b", 1)).await, theirs);
    assert_eq!(store.found(key(2)).await, beside);
}
