//! Which submission is new, which a repetition and which a conflict.

use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_ports::{ChangeOutcome, ConflictField, NewCall, Receipt, SubmitOutcome};

use crate::CallStoreFixture;
use crate::calls::{
    Calls, correlated, details, envelope_id, fingerprint, new_call, running, succeeded, tagged,
    with_key,
};
use crate::store::{at, correlation, key, key_of, outcomes};

suite! { $ call_submit_suite, call_submit =>
    a_new_call_is_stored_with_its_messages,
    a_call_that_is_due_when_it_is_submitted_is_running_at_once,
    no_call_that_is_submitted_running_is_early_by_the_store_s_clock,
    a_repetition_gets_the_first_receipt_and_anything_else_a_conflict,
    a_repetition_with_another_generated_id_is_recognised_by_its_key,
    a_generated_id_that_is_taken_is_a_conflict,
    a_key_belongs_to_one_id,
    a_conflict_of_the_id_comes_before_one_of_the_key,
    a_key_that_comes_with_a_repetition_is_not_taken,
    ids_and_keys_are_a_tenants_own,
    submissions_of_one_batch_apply_in_their_order,
    a_submission_that_is_not_accepted_changes_and_publishes_nothing,
    what_was_accepted_survives_a_crash,
}

const fn generated(new: NewCall) -> NewCall {
    let mut new = new;
    new.id_was_given = false;
    new
}

fn receipt_of(n: u128) -> Receipt {
    Receipt {
        service_call_id: key(n).service_call_id,
        correlation_id: correlation(1),
        submitted_at: at(1_000),
    }
}

fn accepted(n: u128) -> SubmitOutcome {
    SubmitOutcome::Accepted(receipt_of(n))
}

fn repeated(n: u128) -> SubmitOutcome {
    SubmitOutcome::Repeated(receipt_of(n))
}

fn conflict(field: ConflictField, n: u128) -> SubmitOutcome {
    let by = key(n).service_call_id;
    SubmitOutcome::Conflict { field, by }
}

/// Call one, submitted with this key, or without any.
fn one(with: Option<&str>) -> NewCall {
    call(1, with)
}

fn call(n: u128, with: Option<&str>) -> NewCall {
    let new = new_call(details(key(n), 5_000));
    match with {
        Some(text) => with_key(new, text),
        None => new,
    }
}

fn call_due(n: u128, due_at: i64) -> NewCall {
    new_call(details(key(n), due_at))
}

fn other_body(new: NewCall) -> NewCall {
    NewCall {
        fingerprint: fingerprint(2),
        ..new
    }
}

/// Every part of it comes back, and its messages wait in their order.
pub async fn a_new_call_is_stored_with_its_messages(store: Box<dyn CallStoreFixture>) {
    let new = new_call(tagged(key(1), 5_000, &["b", "a", "ä ✓"]));
    let outcome = store.submit(new.clone()).await;
    assert_eq!(outcome, accepted(1));
    assert_eq!(store.found(key(1)).await.call, new.call);
    assert_eq!(store.messages().await, new.outbox);
}

/// With the messages of both steps; so it is checked as a running call is, and cannot be deleted.
pub async fn a_call_that_is_due_when_it_is_submitted_is_running_at_once(
    store: Box<dyn CallStoreFixture>,
) {
    for (n, due_at) in [(1, 1_000), (2, 999)] {
        let before = store.messages().await.len();
        let new = call_due(n, due_at);
        assert_eq!(store.submit(new.clone()).await, accepted(n));
        let found = store.found(key(n)).await;
        assert_eq!(found.call, new.call);
        assert_eq!(store.submit(call_due(n, due_at)).await, repeated(n));
        let told = store.messages().await;
        assert_eq!(told[before..], new.outbox);
        let check_at = new.call.next_check_at().expect("it is not finished");
        let stuck = store.calls().find_stuck(check_at, 10).await.unwrap();
        assert!(stuck.calls.contains(&found));
        let deleted = store.delete(key(n), found.version, 2_000).await;
        assert_eq!(deleted, ChangeOutcome::Outdated);
        let step = running(&found).finish(succeeded(), at(3_000), envelope_id());
        let step = CallStep {
            outgoing: Vec::new(),
            ..step
        };
        let changed = store.change(found.version, step, 3_000).await;
        assert_eq!(changed, ChangeOutcome::Changed);
    }
}

/// Nor by the caller's: it waits for its timer, as if it had been submitted scheduled.
pub async fn no_call_that_is_submitted_running_is_early_by_the_store_s_clock(
    store: Box<dyn CallStoreFixture>,
) {
    if !store.has_store_clock() {
        return;
    }
    // The caller's clock reads 1 000, and the call is due at 900.
    for (n, stores, is_early) in [(1, 899, true), (2, 900, false), (3, 1_000, false)] {
        store.set_store_clock(Some(at(stores)));
        let (before, new) = (store.messages().await.len(), call_due(n, 900));
        assert_eq!(store.submit(new.clone()).await, accepted(n));
        let found = store.found(key(n)).await;
        let told = store.messages().await.split_off(before);
        if is_early {
            let scheduled = details(key(n), 900).schedule();
            assert_eq!(found.call, scheduled.call);
            let told = told
                .into_iter()
                .map(|it| (it.metadata.causation_id, it.message));
            let due = scheduled.outgoing.into_iter();
            let due = due.map(|it| (Some(it.caused_by), it.message));
            assert!(told.eq(due));
        } else {
            assert_eq!((found.call, told), (new.call, new.outbox));
        }
    }
}

/// By id, by key and by both; while the call is stored, and after its deletion.
pub async fn a_repetition_gets_the_first_receipt_and_anything_else_a_conflict(
    store: Box<dyn CallStoreFixture>,
) {
    store.submit(one(Some("k"))).await;
    store.submit(call(2, None)).await;
    for deleted in [false, true] {
        if deleted {
            for n in [1, 2] {
                let seen = store.found(key(n)).await.version;
                store.delete(key(n), seen, 2_000).await;
            }
        }
        for (again, n, taken) in [
            (one(Some("k")), 1, ConflictField::Id),
            (one(None), 1, ConflictField::Id),
            (generated(one(Some("k"))), 1, ConflictField::Id),
            (generated(call(3, Some("k"))), 1, ConflictField::Key),
            (call(2, None), 2, ConflictField::Id),
        ] {
            assert_eq!(store.submit(again.clone()).await, repeated(n), "{deleted}");
            let other = store.submit(other_body(again)).await;
            assert_eq!(other, conflict(taken, n), "{deleted}");
        }
        let there = store.find(key(1)).await.is_some();
        assert_eq!(there, !deleted, "a repetition brings nothing back");
    }
}

/// A caller that leaves the id to us never sends the same one twice.
pub async fn a_repetition_with_another_generated_id_is_recognised_by_its_key(
    store: Box<dyn CallStoreFixture>,
) {
    let first = generated(one(Some("k")));
    assert_eq!(store.submit(first).await, accepted(1));
    let again = generated(new_call(correlated(details(key(2), 5_000), 9)));
    assert_eq!(store.submit(with_key(again, "k")).await, repeated(1));
    assert_eq!(store.find(key(2)).await, None);
}

/// Two different calls that happen to get the same id are not the same call.
pub async fn a_generated_id_that_is_taken_is_a_conflict(store: Box<dyn CallStoreFixture>) {
    store.submit(one(Some("k"))).await;
    for with in [None, Some("another")] {
        let again = store.submit(generated(one(with))).await;
        assert_eq!(again, conflict(ConflictField::Id, 1), "{with:?}");
    }
}

/// A caller that gives both has to give those that belong together.
pub async fn a_key_belongs_to_one_id(store: Box<dyn CallStoreFixture>) {
    store.submit(one(Some("k"))).await;
    store.submit(call(2, None)).await;
    let with_new_id = store.submit(call(3, Some("k"))).await;
    assert_eq!(with_new_id, conflict(ConflictField::Key, 1));
    let with_other_id = store.submit(call(2, Some("k"))).await;
    assert_eq!(with_other_id, conflict(ConflictField::Key, 1));
    let with_other_key = store.submit(one(Some("other"))).await;
    assert_eq!(with_other_key, conflict(ConflictField::Id, 1));
}

/// If both are taken, by two calls.
pub async fn a_conflict_of_the_id_comes_before_one_of_the_key(store: Box<dyn CallStoreFixture>) {
    store.submit(one(Some("k"))).await;
    store.submit(call(2, Some("l"))).await;
    let both = store.submit(call(2, Some("k"))).await;
    assert_eq!(both, conflict(ConflictField::Id, 2));
    let both = store.submit(other_body(call(1, Some("l")))).await;
    assert_eq!(both, conflict(ConflictField::Id, 1));
}

/// Nothing is stored with a repetition, and so not its key either.
pub async fn a_key_that_comes_with_a_repetition_is_not_taken(store: Box<dyn CallStoreFixture>) {
    store.submit(one(None)).await;
    assert_eq!(store.submit(one(Some("k"))).await, repeated(1));
    assert_eq!(store.submit(call(2, Some("k"))).await, accepted(2));
}

/// The same id and key in another tenant are another call.
pub async fn ids_and_keys_are_a_tenants_own(store: Box<dyn CallStoreFixture>) {
    store.submit(one(Some("k"))).await;
    let theirs = new_call(details(key_of("tenant-b", 1), 9_000));
    let theirs = other_body(with_key(theirs, "k"));
    let outcome = store.submit(theirs.clone()).await;
    assert!(matches!(outcome, SubmitOutcome::Accepted(_)), "{outcome:?}");
    let found = store.found(key_of("tenant-b", 1)).await;
    assert_eq!(found.call, theirs.call);
    assert_eq!(store.found(key(1)).await.call.details().due_at, at(5_000));
}

/// As if each had come by itself.
pub async fn submissions_of_one_batch_apply_in_their_order(store: Box<dyn CallStoreFixture>) {
    let batch = vec![
        one(Some("k")),
        one(Some("k")),
        call(2, Some("k")),
        call(3, None),
    ];
    let expected = [
        accepted(1),
        repeated(1),
        conflict(ConflictField::Key, 1),
        accepted(3),
    ];
    assert_eq!(outcomes(store.calls().submit(batch).await), expected);
    let empty = store.calls().submit(Vec::new()).await.unwrap();
    assert_eq!(empty.len(), 0);
}

/// Neither a repetition nor a conflict.
pub async fn a_submission_that_is_not_accepted_changes_and_publishes_nothing(
    store: Box<dyn CallStoreFixture>,
) {
    let first = one(Some("k"));
    store.submit(first.clone()).await;
    let stored = store.found(key(1)).await;
    let moved = new_call(details(key(1), 99_000));
    store.submit(moved.clone()).await;
    store.submit(other_body(moved)).await;
    assert_eq!(store.found(key(1)).await, stored);
    assert_eq!(store.messages().await, first.outbox);
}

/// The call, its messages, and that its id and key are taken.
pub async fn what_was_accepted_survives_a_crash(mut store: Box<dyn CallStoreFixture>) {
    let first = one(Some("k"));
    store.submit(first.clone()).await;
    store.crash_and_reopen().await;
    let found = store.found(key(1)).await;
    assert!(matches!(found.call, ServiceCall::Scheduled(_)));
    assert_eq!(store.messages().await, first.outbox);
    let again = store.submit(first).await;
    assert_eq!(again, repeated(1));
}
