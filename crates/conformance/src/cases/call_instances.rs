//! Several instances on one store: of two that change the same call, one does.
//!
//! A fixture without a second instance has nothing to show here, and the cases end at once.

use punctual_domain::service_call::{CallStep, SubmitOutcome};
use punctual_ports::{ChangeOutcome, ServiceCallPersistencePort};

use ChangeOutcome::{Changed, Outdated};

use crate::CallStoreFixture;
use crate::calls::{Calls, details, new_call, running, scheduled, start, succeeded};
use crate::instances::{OtherCalls, second_or_return};
use crate::store::{at, key, outcome};

suite! { $ call_instances_suite, call_instances =>
    what_one_instance_writes_about_a_call_the_other_reads,
    of_two_instances_that_are_given_a_submission_one_accepts_it,
    of_two_sweepers_of_a_stuck_call_one_brings_it_on,
    of_a_start_and_a_deletion_by_two_instances_one_is_applied,
    a_call_is_started_by_one_instance_and_ended_by_another,
    two_purgers_remove_and_count_each_call_once,
    two_purgers_remove_and_count_each_message_once,
}

/// At once.
pub async fn what_one_instance_writes_about_a_call_the_other_reads(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    let stored = store.submitted(details(key(1), 5_000)).await;
    assert_eq!(other.found(key(1)).await, stored);
    let started = other.started(key(1)).await;
    assert_eq!(store.found(key(1)).await, started);
    assert_eq!(store.unpublished().await, other.unpublished().await);
}

/// The other repeats the receipt, and its messages are not stored.
pub async fn of_two_instances_that_are_given_a_submission_one_accepts_it(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    for n in 1..=20 {
        let submit = |calls: std::sync::Arc<dyn ServiceCallPersistencePort>| {
            let new = new_call(details(key(n), 5_000));
            tokio::spawn(async move { outcome(calls.submit(vec![new]).await) })
        };
        let (mine, theirs) = (submit(store.calls()), submit(other.calls()));
        let outcomes = [mine.await.unwrap(), theirs.await.unwrap()];
        let accepted = |it: &&SubmitOutcome| matches!(it, SubmitOutcome::Accepted(_));
        let repeated = |it: &&SubmitOutcome| matches!(it, SubmitOutcome::Repeated(_));
        assert_eq!(outcomes.iter().filter(accepted).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(repeated).count(), 1, "{outcomes:?}");
    }
    assert_eq!(store.unpublished().await.len(), 60);
}

/// Both find it; what the slower one wanted to tell is not told.
pub async fn of_two_sweepers_of_a_stuck_call_one_brings_it_on(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    store.submitted(details(key(1), 5_000)).await;
    let now = at(999_000);
    let mine = store.calls().find_stuck(now, 10).await.unwrap().calls;
    let theirs = other.calls().find_stuck(now, 10).await.unwrap().calls;
    assert_eq!((mine.len(), &mine), (1, &theirs));
    let step = || scheduled(&mine[0]).start(start(now)).expect("it is due");
    let before = store.unpublished().await.len();
    let changed = store.change(mine[0].version, step(), 999_000).await;
    assert_eq!(changed, Changed);
    let told = store.unpublished().await;
    assert!(told.len() > before);
    let late = other.change(theirs[0].version, step(), 999_000).await;
    assert_eq!(late, Outdated);
    assert_eq!(other.unpublished().await, told);
    assert_eq!(other.calls().find_stuck(now, 10).await.unwrap().calls, []);
}

/// Whichever comes first.
pub async fn of_a_start_and_a_deletion_by_two_instances_one_is_applied(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    for (n, starts_first) in [(1, true), (2, false)] {
        let stored = store.submitted(details(key(n), 5_000)).await;
        let step = scheduled(&stored).start(start(at(5_000))).unwrap();
        let start = async |step: CallStep| store.change(stored.version, step, 5_000).await;
        if starts_first {
            assert_eq!(start(step).await, Changed);
            let deleted = other.delete(key(n), stored.version, 5_000).await;
            assert_eq!(deleted, Outdated);
        } else {
            let deleted = other.delete(key(n), stored.version, 5_000).await;
            assert_eq!(deleted, Changed);
            assert_eq!(start(step).await, Outdated);
        }
        assert_eq!(store.find(key(n)).await.is_some(), starts_first);
    }
}

/// And there is one end.
pub async fn a_call_is_started_by_one_instance_and_ended_by_another(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    store.submitted(details(key(1), 5_000)).await;
    let started = store.started(key(1)).await;
    let end = || running(&started).finish(succeeded(), at(6_000), crate::calls::envelope_id());
    assert_eq!(other.change(started.version, end(), 6_000).await, Changed);
    assert_eq!(store.change(started.version, end(), 7_000).await, Outdated);
    assert_eq!(store.found(key(1)).await, other.found(key(1)).await);
}

/// In batches, at the same time.
pub async fn two_purgers_remove_and_count_each_call_once(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    for n in 1..=30 {
        store.submitted(details(key(n), 5_000)).await;
        if n <= 20 {
            store.ended(key(n), 6_000).await;
        }
    }
    let purge = |calls: std::sync::Arc<dyn ServiceCallPersistencePort>| {
        tokio::spawn(async move {
            let mut removed = 0;
            for _ in 0..10 {
                let purged = calls.purge(at(9_000), at(10_000), 3).await;
                removed += purged.expect("purge answers");
                tokio::task::yield_now().await;
            }
            removed
        })
    };
    let (mine, theirs) = (purge(store.calls()), purge(other.calls()));
    let removed = mine.await.unwrap() + theirs.await.unwrap();
    assert_eq!(removed + store.purge(9_000, 10_000, 100).await, 20);
    for n in 1..=30 {
        assert_eq!(other.find(key(n)).await.is_some(), n > 20);
    }
}

/// Unpublished ones stay.
pub async fn two_purgers_remove_and_count_each_message_once(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    for n in 1..=10 {
        store.submitted(details(key(n), 5_000)).await;
    }
    for row in store.claim_messages(2_000, 20).await {
        store.mark_published(row.position, 3_000).await;
    }
    let (mine, theirs) = (store.outbox(), other.outbox());
    let purge = |outbox: std::sync::Arc<dyn punctual_ports::OutboxPort>| {
        tokio::spawn(async move { outbox.purge(at(9_000), 15).await.unwrap() })
    };
    let removed = [purge(mine), purge(theirs)];
    let mut count = store.outbox().purge(at(9_000), 100).await.unwrap();
    for one in removed {
        count += one.await.unwrap();
    }
    assert_eq!(
        count + other.outbox().purge(at(9_000), 100).await.unwrap(),
        20
    );
    assert_eq!(store.outbox().count(100).await.unwrap(), 10);
}
