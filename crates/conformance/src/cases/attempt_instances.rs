//! Several instances on one store: each attempt is made by one of them, at most once, and has one outcome.
//!
//! A fixture without a second instance has nothing to show here, and the cases end at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::TimerKey;
use punctual_ports::{
    ClaimedExecution, Execution, ExecutionKey, ExecutionLogPort, ExecutionOutcome, ExecutionState,
};

use ExecutionOutcome::{Applied, NotThere};

use crate::CallStoreFixture;
use crate::calls::{Calls, began, details, execution, failed, succeeded, waiting_up_to};
use crate::instances::{OtherCalls, second_or_return};
use crate::store::{LEASE, at, key, key_of, outcomes};

suite! { $ attempt_instances_suite, attempt_instances =>
    interleaved_claims_of_two_instances_give_no_attempt_twice,
    concurrent_claims_of_two_instances_give_every_attempt_once,
    what_a_crashed_instance_makes_is_taken_over_when_its_lease_ends,
    a_renewed_lease_is_not_taken_over,
    of_two_instances_one_takes_over,
    a_stale_owner_s_late_outcome_counts_until_another_takes_over,
    leases_are_by_the_store_s_clock,
}

/// Attempts of three tenants that wait.
async fn fill(store: &dyn CallStoreFixture, count: u128) {
    let keys: Vec<TimerKey> = (1..=count)
        .map(|n| key_of(["a", "b", "c"][n as usize % 3], n))
        .collect();
    let calls = keys.iter().map(|key| details(key.clone(), 5_000));
    store.prepare(calls.collect()).await;
    let attempts = keys.into_iter().map(|key| execution(key, "h", 1_000));
    outcomes(store.attempts().accept(attempts.collect()).await);
}

fn keys(claimed: &[ClaimedExecution]) -> Vec<ExecutionKey> {
    let keys = claimed.iter().map(|it| it.execution.key.clone());
    keys.collect()
}

/// In turns, and each with its message.
pub async fn interleaved_claims_of_two_instances_give_no_attempt_twice(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    fill(&store, 20).await;
    let before = store.messages().await.len();
    let mut all = Vec::new();
    for limit in [1, 2, 3, 4] {
        for claimed in [
            store.claim_attempts(limit, 2_000).await,
            other.claim_attempts(limit, 2_000).await,
        ] {
            assert_eq!(claimed.len(), limit, "nobody claims at this moment");
            all.extend(keys(&claimed));
        }
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(store.messages().await.len(), before + 20);
    assert_eq!(store.claim_attempts(10, 2_000).await, []);
    assert_eq!(other.claim_attempts(10, 2_000).await, []);
}

async fn claim_what_is_there(
    attempts: Arc<dyn ExecutionLogPort>,
    limit: usize,
) -> Vec<ExecutionKey> {
    let mut all = Vec::new();
    loop {
        let mut start = |execution: &Execution| Some(vec![began(&execution.key, 2_000)]);
        let claimed = attempts.claim(waiting_up_to(limit), at(2_000), LEASE, &mut start);
        let claimed = outcomes(claimed.await);
        if claimed.is_empty() {
            return all;
        }
        all.extend(keys(&claimed));
        tokio::task::yield_now().await;
    }
}

/// A claim may miss what the other is claiming at that moment; nothing is missed by both for long.
pub async fn concurrent_claims_of_two_instances_give_every_attempt_once(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    fill(&store, 300).await;
    let claimers: Vec<_> = [
        store.attempts(),
        other.attempts(),
        store.attempts(),
        other.attempts(),
    ]
    .into_iter()
    .map(|attempts| tokio::spawn(claim_what_is_there(attempts, 7)))
    .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.expect("no panic"));
    }
    all.extend(claim_what_is_there(other.attempts(), 50).await);
    assert_eq!(all.len(), 300);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 300);
}

/// Not before, and it is never made again.
pub async fn what_a_crashed_instance_makes_is_taken_over_when_its_lease_ends(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    let attempt = store.waiting(key(1), "h", 1_000).await;
    let lost = store.begun(&attempt.key, 3_000).await;
    assert_eq!(other.claim_attempts(10, 3_000).await, []);
    assert_eq!(other.take_over(&[], 32_999).await, []);
    let taken = other.take_over(&[], 33_000).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].claim.key, lost.key);
    assert_eq!(other.claim_attempts(10, 33_000).await, []);
    let ended = other.finish(&taken[0].claim, 33_000, failed()).await;
    assert_eq!(ended, Applied);
    assert_eq!(other.claim_attempts(10, 99_000).await, []);
}

/// For as long as it is renewed.
pub async fn a_renewed_lease_is_not_taken_over(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    let attempt = store.waiting(key(1), "h", 1_000).await;
    let claim = store.begun(&attempt.key, 3_000).await;
    for now in [13_000, 33_000, 53_000] {
        assert_eq!(store.renew(&claim, now).await, Applied);
        assert_eq!(other.take_over(&[], now + 29_999).await, []);
    }
    assert_eq!(store.finish(&claim, 60_000, succeeded()).await, Applied);
    assert_eq!(other.take_over(&[], 999_000).await, []);
}

/// And if that one crashes, too, the other does when its lease has ended.
pub async fn of_two_instances_one_takes_over(store: Box<dyn CallStoreFixture>) {
    let (second, third) = (second_or_return!(store), second_or_return!(store));
    let attempt = store.waiting(key(1), "h", 1_000).await;
    store.begun(&attempt.key, 3_000).await;
    let taken = second.take_over(&[], 33_000).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(third.take_over(&[], 62_999).await, []);
    let again = third.take_over(&[], 63_000).await;
    assert_eq!(again.len(), 1);
    let late = second.finish(&taken[0].claim, 63_000, failed()).await;
    assert_eq!(late, NotThere);
    let ended = third.finish(&again[0].claim, 63_000, failed()).await;
    assert_eq!(ended, Applied);
}

/// There is one outcome, whoever comes first.
pub async fn a_stale_owner_s_late_outcome_counts_until_another_takes_over(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    for (n, is_taken_over) in [(1, false), (2, true)] {
        let attempt = store.waiting(key(n), "h", 1_000).await;
        let stale = store.begun(&attempt.key, 3_000).await;
        if is_taken_over {
            let taken = other.take_over(&[], 50_000).await;
            assert_eq!(store.renew(&stale, 50_000).await, NotThere);
            let late = store.finish(&stale, 50_000, succeeded()).await;
            assert_eq!(late, NotThere);
            let ended = other.finish(&taken[0].claim, 50_000, failed()).await;
            assert_eq!(ended, Applied);
        } else {
            let late = store.finish(&stale, 50_000, succeeded()).await;
            assert_eq!(late, Applied);
            assert_eq!(other.take_over(&[], 50_000).await, []);
        }
        let entries = store.attempts().entries(key(n), 10).await;
        let outcome = if is_taken_over { failed() } else { succeeded() };
        let finished_at = at(50_000);
        let over = ExecutionState::Finished {
            finished_at,
            outcome,
        };
        assert_eq!(entries.expect("entries answers")[0].state, over);
    }
}

/// However far the clocks of the instances are apart.
pub async fn leases_are_by_the_store_s_clock(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    if !store.has_store_clock() {
        return;
    }
    for (n, ahead) in [(1, 10_000), (2, -10_000)] {
        let attempt = store.waiting(key(n), "h", 1_000).await;
        store.set_store_clock(Some(at(100_000)));
        let claim = store.begun(&attempt.key, 100_000).await;
        store.set_store_clock(Some(at(129_999)));
        assert_eq!(other.take_over(&[], 129_999 + ahead).await, []);
        assert_eq!(store.renew(&claim, 129_999).await, Applied);
        store.set_store_clock(Some(at(159_998)));
        assert_eq!(other.take_over(&[], 159_998 + ahead).await, []);
        store.set_store_clock(Some(at(159_999)));
        let taken = other.take_over(&[], 159_999 + ahead).await;
        assert_eq!(taken.len(), 1);
        let ended = other.finish(&taken[0].claim, 160_000, failed()).await;
        assert_eq!(ended, Applied);
    }
}
