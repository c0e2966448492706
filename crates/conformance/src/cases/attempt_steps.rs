//! An attempt waits, starts and ends: each step once, and each with its message.

use punctual_domain::service_call::Outcome;
use punctual_ports::{
    AcceptOutcome, Execution, ExecutionEntry, ExecutionKey, ExecutionOutcome, ExecutionState,
};

use ExecutionOutcome::{Applied, NotThere};

use crate::CallStoreFixture;
use crate::calls::{
    CANARY, Calls, TIMEOUT, details, envelope_id, execution, failed, succeeded, waiting_up_to,
};
use crate::store::{at, correlation, key, key_of};

suite! { $ attempt_steps_suite, attempt_steps =>
    a_dispatched_attempt_waits_with_everything_it_needs,
    a_call_has_one_attempt,
    an_attempt_needs_its_call,
    an_attempt_takes_each_step_once_and_in_order,
    a_step_out_of_order_changes_and_publishes_nothing,
    an_attempt_of_another_tenant_or_another_id_is_not_touched,
    attempts_in_flight_are_open_and_the_oldest_comes_first,
    entries_have_the_progress_of_an_attempt_and_no_secret,
    a_deleted_calls_attempt_is_not_made,
    attempts_survive_a_crash,
}

async fn waiting(store: &impl CallStoreFixture) -> Vec<Execution> {
    let waiting = store.attempts().waiting(waiting_up_to(100)).await;
    waiting.expect("waiting answers")
}

async fn entries(store: &impl CallStoreFixture, n: u128) -> Vec<ExecutionEntry> {
    let entries = store.attempts().entries(key(n), 10).await;
    entries.expect("entries answers")
}

/// Its secrets included.
pub async fn a_dispatched_attempt_waits_with_everything_it_needs(store: impl CallStoreFixture) {
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
    store.begin(attempt.key.clone(), 2_001).await;
    let counted = store.attempts().count_waiting(10).await;
    assert_eq!(counted.unwrap(), 1);
    assert_eq!(
        waiting[0].request.headers.get("authorization"),
        Some(CANARY)
    );
}

/// However often its command arrives, and whatever its state.
pub async fn a_call_has_one_attempt(store: impl CallStoreFixture) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let other = execution(key(1), "example.com", 2_000);
    for step in 0..3 {
        let again = store.accept(attempt.clone()).await;
        assert_eq!(again, AcceptOutcome::AlreadyThere);
        let another = store.accept(other.clone()).await;
        assert_eq!(another, AcceptOutcome::AnotherAttempt);
        if step == 0 {
            store.begin(attempt.key.clone(), 3_000).await;
        } else {
            store.finish(attempt.key.clone(), 4_000, succeeded()).await;
        }
    }
    let entries = entries(&store, 1).await;
    assert_eq!(entries.len(), 1);
}

/// Of the same tenant; a deleted call is none.
pub async fn an_attempt_needs_its_call(store: impl CallStoreFixture) {
    let stored = store.submitted(details(key_of("tenant-b", 1), 5_000)).await;
    let missing = store.accept(execution(key(1), "example.com", 2_000)).await;
    assert_eq!(missing, AcceptOutcome::NoParent);
    let theirs = key_of("tenant-b", 1);
    store.delete(theirs.clone(), stored.version, 2_000).await;
    let orphan = store.accept(execution(theirs, "example.com", 2_000)).await;
    assert_eq!(orphan, AcceptOutcome::NoParent);
    assert_eq!(waiting(&store).await, []);
}

/// Each step stores its message.
pub async fn an_attempt_takes_each_step_once_and_in_order(store: impl CallStoreFixture) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let stored = store.messages().await.len();
    for (expected, more) in [(Applied, 1), (NotThere, 1)] {
        assert_eq!(store.begin(attempt.key.clone(), 3_000).await, expected);
        assert_eq!(store.messages().await.len(), stored + more);
    }
    assert_eq!(waiting(&store).await, []);
    for (expected, more) in [(Applied, 2), (NotThere, 2)] {
        let ended = store.finish(attempt.key.clone(), 4_000, succeeded()).await;
        assert_eq!(ended, expected);
        assert_eq!(store.messages().await.len(), stored + more);
    }
    assert_eq!(store.begin(attempt.key, 5_000).await, NotThere);
}

/// The end before the beginning, for instance.
pub async fn a_step_out_of_order_changes_and_publishes_nothing(store: impl CallStoreFixture) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let stored = store.messages().await;
    let ended = store.finish(attempt.key.clone(), 4_000, failed()).await;
    assert_eq!(ended, NotThere);
    let nowhere = execution(key(2), "example.com", 2_000).key;
    assert_eq!(store.begin(nowhere, 3_000).await, NotThere);
    assert_eq!(store.messages().await, stored);
    assert_eq!(waiting(&store).await, [attempt]);
}

/// Not even one of the same call.
pub async fn an_attempt_of_another_tenant_or_another_id_is_not_touched(
    store: impl CallStoreFixture,
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
    for wrong in [theirs, other] {
        let started = store.begin(wrong.clone(), 3_000).await;
        assert_eq!(started, NotThere);
        store.begin(mine.key.clone(), 3_000).await;
        let ended = store.finish(wrong, 4_000, succeeded()).await;
        assert_eq!(ended, NotThere);
    }
    let entries = entries(&store, 1).await;
    assert_eq!(entries[0].state, ExecutionState::Attempted);
    let none = store.attempts().entries(key_of("tenant-b", 1), 10).await;
    assert_eq!(none.unwrap(), []);
}

/// Of all tenants; before an instant, and not at it.
pub async fn attempts_in_flight_are_open_and_the_oldest_comes_first(store: impl CallStoreFixture) {
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
            store.begin(attempt.key.clone(), began_at).await;
            if began_at == 1_000 {
                store.finish(attempt.key, 2_000, succeeded()).await;
            }
        }
    }
    let attempts = store.attempts();
    for (before, limit, expected) in [
        (5_000, 10, vec![3_000, 4_000]),
        (5_001, 10, vec![3_000, 4_000, 5_000]),
        (5_001, 2, vec![3_000, 4_000]),
        (3_000, 10, vec![]),
    ] {
        let open = attempts.open(at(before), limit).await.unwrap();
        let began: Vec<i64> = open.iter().map(|it| it.started_at.as_millis()).collect();
        assert_eq!(began, expected, "before {before}");
    }
    let open = attempts.open(at(9_000), 1).await.unwrap();
    assert_eq!(open[0].key.call, key_of("tenant-b", 2));
    assert_eq!(open[0].timeout, TIMEOUT);
    assert_eq!(open[0].correlation_id, correlation(1));
}

/// At every step.
pub async fn entries_have_the_progress_of_an_attempt_and_no_secret(store: impl CallStoreFixture) {
    for (n, outcome) in [(1, succeeded()), (2, failed())] {
        let attempt = store.waiting(key(n), "example.com", 2_000).await;
        let finished_at = at(4_000);
        let steps = [
            (2_000, ExecutionState::Waiting),
            (3_000, ExecutionState::Attempted),
            (3_000, over(finished_at, &outcome)),
        ];
        for (step, (started_at, state)) in steps.into_iter().enumerate() {
            let attempt_key = attempt.key.clone();
            let taken = match step {
                0 => Applied,
                1 => store.begin(attempt_key, 3_000).await,
                _ => store.finish(attempt_key, 4_000, outcome.clone()).await,
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
pub async fn a_deleted_calls_attempt_is_not_made(store: impl CallStoreFixture) {
    let attempt = store.waiting(key(1), "example.com", 2_000).await;
    let stored = store.found(key(1)).await;
    store.delete(key(1), stored.version, 3_000).await;
    assert_eq!(waiting(&store).await, []);
    assert_eq!(store.begin(attempt.key, 3_000).await, NotThere);
}

/// In the state that they had.
pub async fn attempts_survive_a_crash(mut store: impl CallStoreFixture) {
    let first = store.waiting(key(1), "example.com", 2_000).await;
    let second = store.waiting(key(2), "example.com", 2_000).await;
    store.begin(second.key.clone(), 3_000).await;
    store.crash_and_reopen().await;
    assert_eq!(waiting(&store).await, [first]);
    let open = store.attempts().open(at(9_000), 10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].key, second.key);
}
