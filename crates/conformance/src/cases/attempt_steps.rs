//! An attempt waits, starts and ends: each step once, and each with its message.

use std::collections::BTreeSet;

use punctual_domain::service_call::Outcome;
use punctual_ports::{
    AcceptOutcome, ClaimToken, Execution, ExecutionClaim, ExecutionEntry, ExecutionKey,
    ExecutionOutcome, ExecutionState,
};

use ExecutionOutcome::{Applied, NotThere};

use crate::CallStoreFixture;
use crate::calls::{
    CANARY, Calls, details, envelope_id, execution, failed, succeeded, waiting_up_to,
};
use crate::store::{LEASE, at, correlation, key, key_of};

suite! { $ attempt_steps_suite, attempt_steps =>
    a_dispatched_attempt_waits_with_everything_it_needs,
    a_call_has_one_attempt,
    an_attempt_needs_its_call,
    an_attempt_takes_each_step_once_and_in_order,
    a_step_out_of_order_changes_and_publishes_nothing,
    an_attempt_of_another_tenant_or_another_id_is_not_touched,
    attempts_that_nobody_makes_are_taken_over_and_the_oldest_comes_first,
    what_was_taken_over_is_finished_under_the_new_claim_only,
    what_is_being_made_is_not_taken_over,
    entries_have_the_progress_of_an_attempt_and_no_secret,
    a_deleted_calls_attempt_is_not_made,
    attempts_survive_a_crash,
}

async fn waiting(store: &dyn CallStoreFixture) -> Vec<Execution> {
    store.asked(waiting_up_to(100)).await
}

async fn entries(store: &dyn CallStoreFixture, n: u128) -> Vec<ExecutionEntry> {
    let entries = store.attempts().entries(key(n), 10).await;
    entries.expect("entries answers")
}

/// Its secrets included.
pub async fn a_dispatched_attempt_waits_with_everything_it_needs(store: Box<dyn CallStoreFixture>) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let waiting = waiting(&store).await;
    assert_eq!(waiting, std::slice::from_ref(&attempt));
    store
        .waiting(key_of("tenant-b", 2), "example.com", 2_000)
        .await;
    for (limit, expected) in [(0, 0), (1, 1), (10, 2)] {
        let counted = store.attempts().count_waiting(limit).await;
        assert_eq!(counted.unwrap(), expected);
    }
    store.begun(&attempt.key, 2_001).await;
    let counted = store.attempts().count_waiting(10).await;
    assert_eq!(counted.unwrap(), 1);
    assert_eq!(
        waiting[0].request.headers.get("authorization"),
        Some(CANARY)
    );
}

/// However often its command arrives, and whatever its state.
pub async fn a_call_has_one_attempt(store: Box<dyn CallStoreFixture>) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let other = execution(key(1), "example.com", 2_000);
    let mut claim = None;
    for step in 0..3 {
        let again = store.accept(attempt.clone()).await;
        assert_eq!(again, AcceptOutcome::AlreadyThere);
        let another = store.accept(other.clone()).await;
        assert_eq!(another, AcceptOutcome::AnotherAttempt);
        match &claim {
            None => claim = store.begin(&attempt.key, 3_000).await,
            Some(claim) => assert_eq!(
                store.finish(claim, 4_000, succeeded()).await == Applied,
                step == 1
            ),
        }
    }
    let entries = entries(&store, 1).await;
    assert_eq!(entries.len(), 1);
}

/// Of the same tenant, where it can tell; a deleted call is none.
pub async fn an_attempt_needs_its_call(store: Box<dyn CallStoreFixture>) {
    let theirs = key_of("tenant-b", 1);
    store.prepare(vec![details(theirs.clone(), 5_000)]).await;
    if store.has_calls() {
        let missing = store.accept(execution(key(1), "example.com", 2_000)).await;
        assert_eq!(missing, AcceptOutcome::NoParent);
    }
    store.deleted(theirs.clone(), 2_000).await;
    let orphan = store.accept(execution(theirs, "example.com", 2_000)).await;
    assert_eq!(orphan, AcceptOutcome::NoParent);
    assert_eq!(waiting(&store).await, []);
}

/// Each step stores its message.
pub async fn an_attempt_takes_each_step_once_and_in_order(store: Box<dyn CallStoreFixture>) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let stored = store.messages().await.len();
    let claim = store.begun(&attempt.key, 3_000).await;
    assert_eq!(store.messages().await.len(), stored + 1);
    assert_eq!(store.begin(&attempt.key, 3_000).await, None);
    assert_eq!(store.messages().await.len(), stored + 1);
    assert_eq!(waiting(&store).await, []);
    for (expected, more) in [(Applied, 2), (NotThere, 2)] {
        let ended = store.finish(&claim, 4_000, succeeded()).await;
        assert_eq!(ended, expected);
        assert_eq!(store.messages().await.len(), stored + more);
    }
    assert_eq!(store.begin(&attempt.key, 5_000).await, None);
    assert_eq!(store.renew(&claim, 5_000).await, NotThere);
    assert_eq!(store.take_over(&[], 99_000).await, []);
}

/// The end before the beginning, for instance.
pub async fn a_step_out_of_order_changes_and_publishes_nothing(store: Box<dyn CallStoreFixture>) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let stored = store.messages().await;
    let nowhere = execution(key(2), "example.com", 2_000).key;
    for key in [attempt.key.clone(), nowhere.clone()] {
        let token = ClaimToken(1);
        let claim = ExecutionClaim { key, token };
        let ended = store.finish(&claim, 4_000, failed()).await;
        assert_eq!(ended, NotThere);
        assert_eq!(store.renew(&claim, 4_000).await, NotThere);
    }
    assert_eq!(store.begin(&nowhere, 3_000).await, None);
    assert_eq!(store.take_over(&[], 99_000).await, []);
    assert_eq!(store.messages().await, stored);
    assert_eq!(waiting(&store).await, [attempt]);
}

/// Not even one of the same call.
pub async fn an_attempt_of_another_tenant_or_another_id_is_not_touched(
    store: Box<dyn CallStoreFixture>,
) {
    let mine = store.waiting(key(1), "example.com", 2_000).await;
    let theirs = ExecutionKey {
        call: key_of("tenant-b", 1),
        ..mine.key.clone()
    };
    let other = ExecutionKey {
        execution_id: envelope_id(),
        ..mine.key.clone()
    };
    let claim = store.begun(&mine.key, 3_000).await;
    for key in [theirs, other] {
        assert_eq!(store.begin(&key, 3_000).await, None);
        let token = claim.token;
        let wrong = ExecutionClaim { key, token };
        let ended = store.finish(&wrong, 4_000, succeeded()).await;
        assert_eq!(ended, NotThere);
    }
    let entries = entries(&store, 1).await;
    assert_eq!(entries[0].state, ExecutionState::Attempted);
    let none = store.attempts().entries(key_of("tenant-b", 1), 10).await;
    assert_eq!(none.unwrap(), []);
}

/// Of all tenants, also those that the caller has started.
pub async fn attempts_that_nobody_makes_are_taken_over_and_the_oldest_comes_first(
    store: Box<dyn CallStoreFixture>,
) {
    let began = [
        (key(1), Some(5_000)),
        (key_of("tenant-b", 2), Some(3_000)),
        (key(3), Some(4_000)),
        (key(4), None),
        (key(5), Some(1_000)),
    ];
    for (call, began_at) in began {
        let attempt = store.waiting(call, "example.com", 500).await;
        if let Some(began_at) = began_at {
            let claim = store.begun(&attempt.key, began_at).await;
            if began_at == 1_000 {
                store.finish(&claim, 2_000, succeeded()).await;
            }
        }
    }
    let attempts = store.attempts();
    for (limit, expected) in [
        (0, vec![]),
        (1, vec![key_of("tenant-b", 2)]),
        (9, vec![key_of("tenant-b", 2), key(3), key(1)]),
    ] {
        let taken = attempts.take_over(BTreeSet::new(), at(9_000), LEASE, limit);
        let taken = taken.await.unwrap();
        assert!(taken.iter().all(|it| it.correlation_id == correlation(1)));
        let calls: Vec<_> = taken.into_iter().map(|it| it.claim.key.call).collect();
        assert_eq!(calls, expected, "limit {limit}");
    }
}

/// Whose start it was is of no account then.
pub async fn what_was_taken_over_is_finished_under_the_new_claim_only(
    store: Box<dyn CallStoreFixture>,
) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let first = store.begun(&attempt.key, 3_000).await;
    let taken = store.take_over(&[], 4_000).await.remove(0).claim;
    assert_eq!(taken.key, first.key);
    assert_ne!(taken.token, first.token);
    let stored = store.messages().await;
    assert_eq!(store.renew(&first, 5_000).await, NotThere);
    assert_eq!(store.finish(&first, 5_000, succeeded()).await, NotThere);
    assert_eq!(store.messages().await, stored);
    assert_eq!(store.renew(&taken, 5_000).await, Applied);
    assert_eq!(store.finish(&taken, 5_000, failed()).await, Applied);
    assert_eq!(store.finish(&first, 6_000, succeeded()).await, NotThere);
    let entries = entries(&store, 1).await;
    assert_eq!(entries[0].state, over(at(5_000), &failed()));
}

/// However long that takes: an instance knows what it makes.
pub async fn what_is_being_made_is_not_taken_over(store: Box<dyn CallStoreFixture>) {
    let made = store.waiting(key(1), "example.com", 2_000).await;
    let made = store.begun(&made.key, 3_000).await;
    let lost = store.waiting(key(2), "example.com", 2_000).await;
    let lost = store.begun(&lost.key, 3_001).await;
    let taken = store.take_over(&[&made], 999_000).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].claim.key, lost.key);
    assert_eq!(store.finish(&made, 999_000, succeeded()).await, Applied);
}

/// At every step.
pub async fn entries_have_the_progress_of_an_attempt_and_no_secret(
    store: Box<dyn CallStoreFixture>,
) {
    for (n, outcome) in [(1, succeeded()), (2, failed())] {
        let attempt = store.waiting(key(n), "example.com", 2_000).await;
        let (finished_at, mut claim) = (at(4_000), None);
        let steps = [
            (2_000, ExecutionState::Waiting),
            (3_000, ExecutionState::Attempted),
            (3_000, over(finished_at, &outcome)),
        ];
        for (step, (started_at, state)) in steps.into_iter().enumerate() {
            let taken = match step {
                0 => Applied,
                1 => {
                    claim = store.begin(&attempt.key, 3_000).await;
                    Applied
                }
                _ => {
                    let claim = claim.as_ref().expect("it was started");
                    store.finish(claim, 4_000, outcome.clone()).await
                }
            };
            assert_eq!(taken, Applied);
            let entries = entries(&store, n).await;
            assert_eq!(entries.len(), 1);
            let entry = &entries[0];
            assert_eq!(entry.key, attempt.key);
            assert_eq!(entry.started_at, at(started_at));
            assert_eq!(entry.state, state);
            assert_eq!(entry.request, attempt.request.redacted());
            assert_ne!(entry.request.headers.get("authorization"), Some(CANARY));
        }
    }
    let none = store.attempts().entries(key(1), 0).await.unwrap();
    assert_eq!(none, []);
}

fn over(finished_at: punctual_domain::Timestamp, outcome: &Outcome) -> ExecutionState {
    ExecutionState::Finished {
        finished_at,
        outcome: outcome.clone(),
    }
}

/// It is deleted with its call.
pub async fn a_deleted_calls_attempt_is_not_made(store: Box<dyn CallStoreFixture>) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    store.deleted(key(1), 3_000).await;
    assert_eq!(waiting(&store).await, []);
    assert_eq!(store.begin(&attempt.key, 3_000).await, None);
}

/// In the state that they had.
pub async fn attempts_survive_a_crash(mut store: Box<dyn CallStoreFixture>) {
    let first = store.waiting(key(1), "example.com", 2_000).await;
    let second = store.waiting(key(2), "example.com", 2_000).await;
    store.begun(&second.key, 3_000).await;
    store.crash_and_reopen().await;
    assert_eq!(waiting(&store).await, [first]);
    if store.claims_survive_a_crash() {
        assert_eq!(store.take_over(&[], 32_999).await, []);
    }
    let abandoned = store.take_over(&[], 33_000).await;
    assert_eq!(abandoned.len(), 1);
    assert_eq!(abandoned[0].claim.key, second.key);
}
