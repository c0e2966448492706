//! How a worker settles its claims, and that a lost claim settles nothing.

use punctual_domain::{Failures, TimerEntry};
use punctual_ports::{Claim, ClaimOutcome, RetryLater};

use crate::TimerStoreFixture;
use crate::store::{
    Store, a_dead_letter, at, command, direct, key, key_of, outcomes, replacement, timers_of,
};

suite! { $ timer_settle_suite, timer_settle =>
    a_failed_firing_is_due_again_at_its_retry_time,
    a_retry_time_before_the_due_time_makes_nothing_early,
    every_failure_adds_one_to_the_attempts,
    a_retry_leaves_the_due_time_alone,
    attempts_and_retry_time_survive_a_crash,
    a_released_timer_is_as_it_was,
    a_renewed_claim_lasts_longer,
    a_dead_lettered_timer_is_reached,
    a_firing_dead_lettered_again_has_one_dead_letter,
    a_claim_that_another_worker_has_is_lost,
    a_claim_of_a_moved_timer_is_lost,
    a_failure_after_a_reschedule_leaves_the_new_schedule_alone,
    a_timer_carries_its_attempts_and_its_last_error,
    a_dead_lettered_timer_carries_the_reason,
    a_claim_of_a_deleted_timer_is_lost,
    a_lost_claim_dead_letters_nothing,
    one_lost_claim_affects_no_other,
    a_claim_of_another_tenant_s_timer_is_another_claim,
}

async fn dead_letters(store: &dyn TimerStoreFixture) -> usize {
    let list = store.dead_letters().list(None, 100).await;
    list.expect("list answers").len()
}

/// A worker that lost its claim to another.
async fn overtaken(store: &dyn TimerStoreFixture) -> (Claim, Claim) {
    let first = store.claimed(key(1), 1_000).await;
    let second = store.claim_one(31_000).await;
    (first, second)
}

/// Not a millisecond before it.
pub async fn a_failed_firing_is_due_again_at_its_retry_time(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.retry(&claim, 4_000).await, ClaimOutcome::Applied);
    assert_eq!(store.claim(3_999, 10).await, []);
    let again = store.claim_one(4_000).await;
    assert_eq!(again.timer, claim.timer);
    assert_ne!(again.token, claim.token);
}

/// The clock may have been set back between the claim and the failure.
pub async fn a_retry_time_before_the_due_time_makes_nothing_early(
    store: Box<dyn TimerStoreFixture>,
) {
    let claim = store.claimed(key(1), 5_000).await;
    store.retry(&claim, 1_000).await;
    let early = store.claim_batch(4_999, 10).await;
    assert_eq!(early.claims, []);
    assert_eq!(early.next_due_at, Some(at(5_000)));
    store.claim_one(5_000).await;
}

/// The worker computes its backoff from them.
pub async fn every_failure_adds_one_to_the_attempts(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    for (attempts, now) in (0..5).zip([1_000, 2_000, 3_000, 4_000, 5_000]) {
        let claim = store.claim_one(now).await;
        assert_eq!(claim.attempts, attempts);
        store.retry(&claim, now + 1_000).await;
    }
}

/// So that the firing keeps its id.
pub async fn a_retry_leaves_the_due_time_alone(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 1_000), 0).await;
    let before = store.scheduled(key(1)).await;
    let claim = store.claim_one(1_000).await;
    store.retry(&claim, 4_000).await;
    assert_eq!(store.scheduled(key(1)).await, before);
    assert_eq!(store.due("tenant-a", 1_000, 10).await.len(), 1);
}

/// A restart is no reason to hurry.
pub async fn attempts_and_retry_time_survive_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.retry(&claim, 90_000).await;
    store.crash_and_reopen().await;
    assert_eq!(store.claim(89_999, 10).await, []);
    assert_eq!(store.claim_one(90_000).await.attempts, 1);
}

/// Nothing is counted and nothing put off.
pub async fn a_released_timer_is_as_it_was(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.release(&claim).await, ClaimOutcome::Applied);
    let again = store.claim_one(1_000).await;
    assert_eq!((again.timer, again.attempts), (claim.timer, 0));
}

/// From the time of the renewal on.
pub async fn a_renewed_claim_lasts_longer(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.renew(&claim, 20_000).await, ClaimOutcome::Applied);
    assert_eq!(store.claim(49_999, 10).await, []);
    store.claim_one(50_000).await;
}

/// The mark and its dead letter are one write.
pub async fn a_dead_lettered_timer_is_reached(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(
        store.dead_letter(&claim, 1_500).await,
        ClaimOutcome::Applied
    );
    let found = store.found(key(1)).await;
    assert_eq!(found.reached_at(), Some(at(1_500)));
    assert_eq!(dead_letters(&store).await, 1);
    assert_eq!(store.claim(999_999, 10).await, []);
}

/// Its row was purged, and its command was redelivered: the same firing, so the same dead letter.
pub async fn a_firing_dead_lettered_again_has_one_dead_letter(store: Box<dyn TimerStoreFixture>) {
    for _ in 0..2 {
        store.save(command(key(1), 500, 1_000), 500).await;
        let claim = store.claim_one(1_000).await;
        assert_eq!(
            store.dead_letter(&claim, 1_500).await,
            ClaimOutcome::Applied
        );
        assert_eq!(store.purge(2_000, 10).await, 1);
    }
    assert_eq!(dead_letters(&store).await, 1);
}

/// No settlement of it changes anything.
pub async fn a_claim_that_another_worker_has_is_lost(store: Box<dyn TimerStoreFixture>) {
    let (first, second) = overtaken(&store).await;
    assert_eq!(store.release(&first).await, ClaimOutcome::Lost);
    assert_eq!(store.retry(&first, 99_000).await, ClaimOutcome::Lost);
    assert_eq!(store.renew(&first, 31_000).await, ClaimOutcome::Lost);
    assert_eq!(store.dead_letter(&first, 1_500).await, ClaimOutcome::Lost);
    assert_eq!(store.claim(60_999, 10).await, []);
    assert_eq!(store.release(&second).await, ClaimOutcome::Applied);
}

/// The new schedule is not the old worker's.
pub async fn a_claim_of_a_moved_timer_is_lost(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.save(direct(key(1), 5_000), 2_000).await;
    assert_eq!(store.renew(&claim, 2_000).await, ClaimOutcome::Lost);
    let new = store.claim_one(5_000).await;
    assert_eq!(store.release(&claim).await, ClaimOutcome::Lost);
    assert_eq!(store.claim(5_000, 10).await, []);
    assert_eq!(new.attempts, 0);
}

/// A handler rescheduled its own timer and failed then: the new schedule wins, with no retry and no
/// dead letter of the old one, also once it is claimed itself.
pub async fn a_failure_after_a_reschedule_leaves_the_new_schedule_alone(
    store: Box<dyn TimerStoreFixture>,
) {
    let claim = store.claimed(key(1), 1_000).await;
    store.save(direct(key(1), 5_000), 2_000).await;
    let rescheduled = store.found(key(1)).await;
    assert_eq!(store.retry(&claim, 99_000).await, ClaimOutcome::Moved);
    assert_eq!(store.dead_letter(&claim, 1_500).await, ClaimOutcome::Moved);
    assert_eq!(store.found(key(1)).await, rescheduled);
    let new = store.claim_one(5_000).await;
    assert_eq!(new.attempts, 0);
    assert_eq!(store.retry(&claim, 99_000).await, ClaimOutcome::Moved);
    assert_eq!(store.dead_letter(&claim, 1_500).await, ClaimOutcome::Moved);
    assert_eq!(dead_letters(&store).await, 0);
    assert_eq!(store.retry(&new, 6_000).await, ClaimOutcome::Applied);
    assert_eq!(store.claim_one(6_000).await.attempts, 1);
}

/// Readers get them without any log.
pub async fn a_timer_carries_its_attempts_and_its_last_error(
    mut store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 1_000), 0).await;
    assert_eq!(store.found(key(1)).await.failures(), &Failures::default());
    for (n, reason) in [(1, "no route"), (2, "no answer ☃ '; --")] {
        let claim = store.claim_one(n * 1_000).await;
        let retry = RetryLater::new(claim.reference(), at((n + 1) * 1_000), reason);
        let answers = store.queue().retry_later(vec![retry]).await;
        answers.expect("retry_later answers");
    }
    let failed = Failures {
        attempts: 2,
        last_error: Some("no answer ☃ '; --".to_owned()),
    };
    store.crash_and_reopen().await;
    assert_eq!(store.found(key(1)).await.failures(), &failed);
    let page = store.page(timers_of("tenant-a", 10)).await;
    assert_eq!(page.timers[0].failures(), &failed);
    let claim = store.claim_one(3_000).await;
    store.mark(&claim.timer, 3_000).await;
    let reached = store.found(key(1)).await;
    assert_eq!(reached.failures(), &failed, "also after it has fired");
    store.save(replacement(key(1), 9_000), 4_000).await;
    let replaced = store.found(key(1)).await;
    assert_eq!(replaced.failures(), &Failures::default());
}

/// As its last error.
pub async fn a_dead_lettered_timer_carries_the_reason(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.dead_letter(&claim, 1_500).await;
    let timer = store.found(key(1)).await;
    let reason = timer.failures().last_error.as_ref();
    assert_eq!(reason, Some(&a_dead_letter("").reason));
}

/// There is nothing to settle.
pub async fn a_claim_of_a_deleted_timer_is_lost(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.delete(key(1), 40_000).await;
    assert_eq!(store.retry(&claim, 99_000).await, ClaimOutcome::Lost);
    assert_eq!(store.release(&claim).await, ClaimOutcome::Lost);
    assert_eq!(store.find(key(1)).await, None);
}

/// Another worker may yet fire its timer.
pub async fn a_lost_claim_dead_letters_nothing(store: Box<dyn TimerStoreFixture>) {
    let (first, _) = overtaken(&store).await;
    assert_eq!(store.dead_letter(&first, 1_500).await, ClaimOutcome::Lost);
    assert!(matches!(
        store.found(key(1)).await,
        TimerEntry::Scheduled { .. }
    ));
    assert_eq!(dead_letters(&store).await, 0);
}

/// Outcomes by position, each for itself.
pub async fn one_lost_claim_affects_no_other(store: Box<dyn TimerStoreFixture>) {
    use ClaimOutcome::{Applied, Lost};
    store.save_many(0..3, 1_000).await;
    let claims = store.claim(1_000, 10).await;
    store.mark(&claims[1].timer, 1_000).await;
    let batch = claims.iter().map(Claim::reference).collect();
    let answers = store.queue().release(batch).await;
    assert_eq!(outcomes(answers), [Applied, Lost, Applied]);
    assert_eq!(store.claim(1_000, 10).await.len(), 2);
}

/// A token is worth nothing on another timer.
pub async fn a_claim_of_another_tenant_s_timer_is_another_claim(store: Box<dyn TimerStoreFixture>) {
    let both = vec![direct(key_of("a", 1), 1_000), direct(key_of("b", 1), 1_000)];
    store.save_all(both, 0).await;
    let claims = store.claim(1_000, 10).await;
    let mut forged = claims[0].clone();
    forged.timer.key.tenant_id = claims[1].timer.key.tenant_id.clone();
    if forged.token != claims[1].token {
        assert_eq!(store.release(&forged).await, ClaimOutcome::Lost);
    }
    assert_eq!(store.release(&claims[0]).await, ClaimOutcome::Applied);
    assert_eq!(store.claim_one(1_000).await.timer.key, claims[0].timer.key);
}
