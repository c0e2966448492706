//! Attempts whose calls are in another database: what is deleted there is not made here.
//!
//! Where calls are in the same database, attempts go with them, and most cases end at once.

use punctual_domain::TimerKey;
use punctual_ports::{AcceptOutcome, DeletedCall, Execution, ExecutionOutcome, ExecutionState};

use AcceptOutcome::{Accepted, AlreadyThere, NoParent};

use crate::CallStoreFixture;
use crate::calls::{Calls, details, execution, succeeded, waiting_up_to};
use crate::instances::{OtherCalls, second_or_return};
use crate::store::{at, key, key_of, outcomes};

suite! { $ attempt_apart_suite, attempt_apart =>
    beside_its_call_an_attempt_stays_as_long_as_that,
    an_attempt_of_a_deleted_call_is_not_made,
    a_command_that_comes_after_the_deletion_is_refused_until_the_tombstone_is_purged,
    a_deletion_concerns_the_call_of_its_tenant_alone,
    a_deletion_may_come_again,
    an_attempt_that_is_being_made_when_its_call_is_deleted_has_no_outcome,
    a_purge_removes_what_has_finished_before_the_instant,
    an_attempt_stays_while_its_outcome_waits_to_be_published,
    tombstones_survive_a_crash,
    what_one_instance_deletes_no_other_makes,
}

async fn delete(store: &dyn CallStoreFixture, calls: &[(TimerKey, i64)]) {
    let deleted = calls.iter().map(|(key, now)| DeletedCall {
        key: key.clone(),
        deleted_at: at(*now),
    });
    outcomes(store.attempts().delete(deleted.collect()).await);
}

async fn purge(store: &dyn CallStoreFixture, before: i64, limit: usize) -> usize {
    let purged = store.attempts().purge(at(before), limit).await;
    purged.expect("purge answers")
}

async fn waiting(store: &dyn CallStoreFixture) -> Vec<Execution> {
    store.asked(waiting_up_to(100)).await
}

async fn has_attempt(store: &dyn CallStoreFixture, key: TimerKey) -> bool {
    let entries = store.attempts().entries(key, 10).await;
    !entries.expect("entries answers").is_empty()
}

/// Marks all messages as published.
async fn publish_all(store: &dyn CallStoreFixture) {
    for row in store.unpublished().await {
        store.mark_published(row.position, 9_000).await;
    }
}

/// An attempt that has finished at an instant.
async fn made(store: &dyn CallStoreFixture, key: TimerKey, finished_at: i64) -> Execution {
    let attempt = store.waiting(key, "h", 1_000).await;
    let claim = store.begun(&attempt.key, 2_000).await;
    store.finish(&claim, finished_at, succeeded()).await;
    attempt
}

/// Neither method knows better than the call.
pub async fn beside_its_call_an_attempt_stays_as_long_as_that(store: Box<dyn CallStoreFixture>) {
    if !store.has_calls() {
        return;
    }
    let waits = store.waiting(key(1), "h", 1_000).await;
    made(&store, key(2), 3_000).await;
    publish_all(&store).await;
    delete(&store, &[(key(1), 2_000), (key(3), 2_000)]).await;
    assert_eq!(purge(&store, 99_000, 10).await, 0);
    assert_eq!(waiting(&store).await, [waits]);
    assert!(has_attempt(&store, key(2)).await);
    store.submitted(details(key(3), 5_000)).await;
    let accepted = store.accept(execution(key(3), "h", 2_000)).await;
    assert_eq!(accepted, Accepted);
}

/// Nor shown.
pub async fn an_attempt_of_a_deleted_call_is_not_made(store: Box<dyn CallStoreFixture>) {
    if store.has_calls() {
        return;
    }
    let gone = store.waiting(key(1), "h", 1_000).await;
    let stays = store.waiting(key(2), "h", 1_000).await;
    delete(&store, &[(key(1), 2_000)]).await;
    assert_eq!(waiting(&store).await, [stays]);
    assert_eq!(store.begin(&gone.key, 3_000).await, None);
    assert!(!has_attempt(&store, key(1)).await);
    assert_eq!(store.attempts().count_waiting(10).await.unwrap(), 1);
}

/// Also if the deletion came before anything else was known of the call.
pub async fn a_command_that_comes_after_the_deletion_is_refused_until_the_tombstone_is_purged(
    store: Box<dyn CallStoreFixture>,
) {
    if store.has_calls() {
        return;
    }
    let known = store.waiting(key(1), "h", 1_000).await;
    delete(&store, &[(key(1), 2_000), (key(2), 2_001)]).await;
    let unknown = execution(key(2), "h", 1_000);
    for before in [0, 2_000] {
        assert_eq!(purge(&store, before, 10).await, 0);
        for attempt in [&known, &unknown] {
            assert_eq!(store.accept(attempt.clone()).await, NoParent);
        }
    }
    assert_eq!(waiting(&store).await, []);
    assert_eq!(purge(&store, 2_001, 0).await, 0);
    assert_eq!(purge(&store, 2_001, 10).await, 1);
    assert_eq!(store.accept(known.clone()).await, Accepted);
    assert_eq!(store.accept(unknown.clone()).await, NoParent);
    assert_eq!(purge(&store, 2_002, 10).await, 1);
    assert_eq!(store.accept(unknown).await, Accepted);
}

/// Whatever other tenants call by the same id.
pub async fn a_deletion_concerns_the_call_of_its_tenant_alone(store: Box<dyn CallStoreFixture>) {
    if store.has_calls() {
        return;
    }
    let mine = store.waiting(key(1), "h", 1_000).await;
    delete(&store, &[(key_of("tenant-b", 1), 2_000)]).await;
    assert_eq!(waiting(&store).await, std::slice::from_ref(&mine));
    assert_eq!(store.accept(mine).await, AlreadyThere);
    let theirs = execution(key_of("tenant-b", 1), "h", 1_000);
    assert_eq!(store.accept(theirs).await, NoParent);
}

/// In one batch, or later; the latest counts.
pub async fn a_deletion_may_come_again(store: Box<dyn CallStoreFixture>) {
    if store.has_calls() {
        return;
    }
    delete(&store, &[(key(1), 4_000), (key(1), 3_000)]).await;
    delete(&store, &[(key(1), 2_000)]).await;
    assert_eq!(purge(&store, 4_000, 10).await, 0);
    assert_eq!(purge(&store, 4_001, 10).await, 1);
    assert_eq!(purge(&store, 99_000, 10).await, 0);
}

/// And publishes none.
pub async fn an_attempt_that_is_being_made_when_its_call_is_deleted_has_no_outcome(
    store: Box<dyn CallStoreFixture>,
) {
    if store.has_calls() {
        return;
    }
    let attempt = store.waiting(key(1), "h", 1_000).await;
    let claim = store.begun(&attempt.key, 2_000).await;
    delete(&store, &[(key(1), 3_000)]).await;
    let before = store.messages().await;
    let ended = store.finish(&claim, 4_000, succeeded()).await;
    assert_eq!(ended, ExecutionOutcome::NotThere);
    assert_eq!(store.messages().await, before);
    assert_eq!(store.take_over(&[], 99_000).await, []);
    assert_eq!(store.accept(attempt).await, NoParent);
}

/// And not at it; what waits or is being made stays however old it is.
pub async fn a_purge_removes_what_has_finished_before_the_instant(
    store: Box<dyn CallStoreFixture>,
) {
    if store.has_calls() {
        return;
    }
    store.waiting(key(1), "h", 1_000).await;
    let started = store.waiting(key(2), "h", 1_000).await;
    store.begun(&started.key, 2_000).await;
    for (n, finished_at) in [(3, 2_999), (4, 3_000), (5, 2_998), (6, 2_997)] {
        made(&store, key(n), finished_at).await;
    }
    publish_all(&store).await;
    assert_eq!(purge(&store, 3_000, 0).await, 0);
    assert_eq!(purge(&store, 3_000, 2).await, 2);
    let mut there = Vec::new();
    for n in 1..=6 {
        there.push(has_attempt(&store, key(n)).await);
    }
    assert_eq!(there, [true, true, true, true, false, false], "the oldest");
    assert_eq!(purge(&store, 3_000, 10).await, 1);
    assert_eq!(purge(&store, 3_000, 10).await, 0);
    assert_eq!(purge(&store, 99_000, 10).await, 1);
    assert_eq!(purge(&store, 99_000, 10).await, 0);
    let entries = store.attempts().entries(key(2), 10).await.unwrap();
    assert_eq!(entries[0].state, ExecutionState::Attempted);
}

/// Whoever asks for it again before is told that it was made.
pub async fn an_attempt_stays_while_its_outcome_waits_to_be_published(
    store: Box<dyn CallStoreFixture>,
) {
    if store.has_calls() {
        return;
    }
    let first = made(&store, key(1), 3_000).await;
    publish_all(&store).await;
    let second = made(&store, key(2), 3_000).await;
    assert_eq!(
        purge(&store, 99_000, 1).await,
        1,
        "the other is passed over"
    );
    assert_eq!(purge(&store, 99_000, 10).await, 0);
    assert_eq!(store.accept(second).await, AlreadyThere);
    assert!(!has_attempt(&store, first.key.call).await);
    publish_all(&store).await;
    assert_eq!(purge(&store, 99_000, 10).await, 1);
}

/// As attempts do.
pub async fn tombstones_survive_a_crash(mut store: Box<dyn CallStoreFixture>) {
    if store.has_calls() {
        return;
    }
    let attempt = store.waiting(key(1), "h", 1_000).await;
    delete(&store, &[(key(1), 2_000)]).await;
    store.crash_and_reopen().await;
    assert_eq!(waiting(&store).await, []);
    assert_eq!(store.accept(attempt).await, NoParent);
}

/// Whichever of them gets the command.
pub async fn what_one_instance_deletes_no_other_makes(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    if store.has_calls() {
        return;
    }
    let attempt = store.waiting(key(1), "h", 1_000).await;
    delete(&other, &[(key(1), 2_000)]).await;
    assert_eq!(store.accept(attempt.clone()).await, NoParent);
    assert_eq!(waiting(&store).await, []);
    assert_eq!(other.claim_attempts(10, 3_000).await, []);
    assert_eq!(purge(&store, 2_001, 10).await, 1);
    assert_eq!(purge(&other, 2_001, 10).await, 0);
    assert_eq!(other.accept(attempt).await, Accepted);
}
