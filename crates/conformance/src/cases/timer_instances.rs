//! Several instances on one store: each timer is claimed by one of them, and no stale owner harms it.
//!
//! A fixture without a second instance has nothing to show in most of these cases, and they end at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::{ReachedTimer, TimerKey, TimerState};
use punctual_ports::{
    Claim, ClaimOutcome, DeleteOutcome, MarkOutcome, SaveOutcome, TimerPageQuery,
    TimerPersistencePort, TimerQueuePort,
};

use crate::TimerStoreFixture;
use crate::instances::{Other, assert_announced, other_or_return};
use crate::store::{
    LEASE, Store, at, command, direct, ensured, key, key_of, outcome, registration, replacement,
    timers_of,
};

suite! { $ timer_instances_suite, timer_instances =>
    what_one_instance_writes_the_other_reads,
    interleaved_claims_of_two_instances_share_no_timer_and_get_all,
    concurrent_claims_of_two_instances_share_no_timer_and_get_all,
    every_claim_of_a_timer_has_another_token_whichever_instance_makes_it,
    a_lease_of_another_instance_is_announced_and_taken_over_at_its_end,
    a_failed_firing_is_retried_by_another_instance,
    a_stale_owner_s_late_mark_is_a_mark_of_the_same_firing,
    a_stale_owner_s_settlements_change_nothing,
    a_timer_claimed_by_another_instance_is_firing,
    a_timer_that_is_being_fired_is_deleted_by_no_client,
    a_reschedule_wins_over_a_claim_of_another_instance,
    a_firing_of_one_of_two_commands_of_a_millisecond_leaves_the_other,
    a_replaced_timer_fires_again_whoever_marks_its_first_firing_late,
    a_due_timer_is_firing_for_a_lease_after_the_store_has_crashed,
    a_renewal_records_a_claim_again_that_the_store_has_lost,
    two_purgers_purge_each_row_once_and_no_scheduled_timer,
    of_two_concurrent_schedules_of_a_key_one_creates_it,
    a_command_concurrent_with_a_newer_deletion_never_brings_the_timer_back,
    every_tenant_has_its_turn_in_the_claims_of_each_instance,
    a_tenant_that_one_instance_excludes_is_served_by_another,
}

fn keys(claims: &[Claim]) -> BTreeSet<TimerKey> {
    claims.iter().map(|it| it.timer.key.clone()).collect()
}

/// At once.
pub async fn what_one_instance_writes_the_other_reads(store: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(client of store);
    store.save(direct(key(1), 900_000), 10).await;
    assert_eq!(other.found(key(1)).await, store.found(key(1)).await);
    assert_eq!(
        other.save(direct(key(1), 800_000), 20).await,
        SaveOutcome::Rescheduled
    );
    assert_eq!(
        store.scheduled(key(1)).await.registration,
        registration(20, 800_000)
    );
    assert_eq!(
        store.claim_batch(30, 10).await.next_due_at,
        Some(at(800_000))
    );
    assert_eq!(other.delete(key(1), 30).await, DeleteOutcome::Deleted);
    assert_eq!(store.find(key(1)).await, None);
    assert_eq!(store.claim_batch(900_000, 10).await.claims, []);
}

/// In turns, and the claims of either are in the order of due times.
pub async fn interleaved_claims_of_two_instances_share_no_timer_and_get_all(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    store.save_many(0..20, 1_000).await;
    let mut all: Vec<TimerKey> = Vec::new();
    for limit in [1, 2, 3, 4] {
        for claims in [
            store.claim(1_000, limit).await,
            other.claim(1_000, limit).await,
        ] {
            assert_eq!(claims.len(), limit, "nobody claims at this moment");
            all.extend(keys(&claims));
        }
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(store.claim(1_000, 10).await, []);
    assert_eq!(other.claim(1_000, 10).await, []);
}

async fn claim_what_is_there(queue: Arc<dyn TimerQueuePort>, limit: usize) -> Vec<TimerKey> {
    let mut all = Vec::new();
    loop {
        let batch = queue.claim_due(at(1_000), limit, LEASE).await;
        let batch = batch.expect("claim_due answers");
        assert!(batch.next_due_at.is_none_or(|next| next > at(1_000)));
        if batch.claims.is_empty() {
            return all;
        }
        all.extend(batch.claims.into_iter().map(|claim| claim.timer.key));
        tokio::task::yield_now().await;
    }
}

/// A claim may miss what the other is claiming at that moment; no timer is missed by both for long.
pub async fn concurrent_claims_of_two_instances_share_no_timer_and_get_all(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let batch = (0..1_000).map(|n| direct(key_of(&format!("tenant-{}", n % 7), n), 1_000));
    store.save_all(batch.collect(), 0).await;
    let claimers: Vec<_> = [store.queue(), other.queue(), store.queue(), other.queue()]
        .into_iter()
        .map(|queue| tokio::spawn(claim_what_is_there(queue, 23)))
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.expect("no panic"));
    }
    all.extend(claim_what_is_there(other.queue(), 100).await);
    assert_eq!(all.len(), 1_000);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 1_000);
}

/// So that no instance settles what another has claimed.
pub async fn every_claim_of_a_timer_has_another_token_whichever_instance_makes_it(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    store.save(direct(key(1), 1_000), 0).await;
    let mut tokens = BTreeSet::new();
    for _ in 0..4 {
        let mine = store.claim_one(1_000).await;
        assert!(tokens.insert(mine.token));
        assert_eq!(store.release(&mine).await, ClaimOutcome::Applied);
        let others = other.claim_one(1_000).await;
        assert!(tokens.insert(others.token));
        assert_eq!(other.release(&others).await, ClaimOutcome::Applied);
    }
}

/// Its owner polls for it no earlier, since it knows its own leases.
pub async fn a_lease_of_another_instance_is_announced_and_taken_over_at_its_end(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let first = store.claimed(key(1), 1_000).await;
    let batch = other.claim_batch(1_000, 10).await;
    assert_announced(&batch, 1_000, 31_000);
    assert_eq!(store.claim_batch(1_000, 10).await.next_due_at, None);
    assert_eq!(store.renew(&first, 2_000).await, ClaimOutcome::Applied);
    let batch = other.claim_batch(31_999, 10).await;
    assert_announced(&batch, 31_999, 32_000);
    // What is ready earlier comes earlier.
    store.save(direct(key(2), 31_999), 0).await;
    let batch = other.claim_batch(31_998, 10).await;
    assert_eq!(batch.next_due_at, Some(at(31_999)));
    other.delete(key(2), 0).await;
    let second = other.claim_one(32_000).await;
    assert_eq!((&second.timer, second.attempts), (&first.timer, 0));
    assert_ne!(second.token, first.token);
    // It is the other's lease now.
    let batch = store.claim_batch(32_000, 10).await;
    assert_announced(&batch, 32_000, 62_000);
    assert_eq!(other.release(&second).await, ClaimOutcome::Applied);
    store.claim_one(32_000).await;
}

/// With the attempts of both.
pub async fn a_failed_firing_is_retried_by_another_instance(store: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of store);
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(store.retry(&claim, 4_000).await, ClaimOutcome::Applied);
    let batch = other.claim_batch(3_999, 10).await;
    assert_eq!((batch.claims, batch.next_due_at), (vec![], Some(at(4_000))));
    let again = other.claim_one(4_000).await;
    assert_eq!((again.attempts, &again.timer), (1, &claim.timer));
    assert_eq!(
        other.dead_letter(&again, 4_000).await,
        ClaimOutcome::Applied
    );
    assert_eq!(store.found(key(1)).await.failures().attempts, 1);
}

/// The firing is one, whoever published it: it is marked once, and nothing else of it is left.
pub async fn a_stale_owner_s_late_mark_is_a_mark_of_the_same_firing(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    for (n, stale_is_first) in [(1, true), (2, false)] {
        let first = store.claimed(key(n), 1_000).await;
        let second = other.claim_one(31_000).await;
        if stale_is_first {
            assert_eq!(store.mark(&first.timer, 1_000).await, MarkOutcome::Marked);
            let late = other.mark(&second.timer, 31_000).await;
            assert_eq!(late, MarkOutcome::AlreadyReached);
        } else {
            assert_eq!(other.mark(&second.timer, 1_000).await, MarkOutcome::Marked);
            let late = store.mark(&first.timer, 31_000).await;
            assert_eq!(late, MarkOutcome::AlreadyReached);
        }
        assert_eq!(store.found(key(n)).await.reached_at(), Some(at(1_000)));
        assert_eq!(other.renew(&second, 31_000).await, ClaimOutcome::Lost);
        assert_eq!(other.retry(&second, 32_000).await, ClaimOutcome::Lost);
        let batch = store.claim_batch(99_000, 10).await;
        assert_eq!((batch.claims, batch.next_due_at), (vec![], None));
    }
}

/// All of them are lost.
pub async fn a_stale_owner_s_settlements_change_nothing(store: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of store);
    let first = store.claimed(key(1), 1_000).await;
    let second = other.claim_one(31_000).await;
    let before = other.found(key(1)).await;
    assert_eq!(store.release(&first).await, ClaimOutcome::Lost);
    assert_eq!(store.retry(&first, 99_000).await, ClaimOutcome::Lost);
    assert_eq!(store.renew(&first, 32_000).await, ClaimOutcome::Lost);
    assert_eq!(store.dead_letter(&first, 31_500).await, ClaimOutcome::Lost);
    assert_eq!(other.found(key(1)).await, before);
    let letters = store.dead_letters().list(None, 10).await;
    assert_eq!(letters.expect("list answers"), []);
    let batch = store.claim_batch(60_999, 10).await;
    assert_announced(&batch, 60_999, 61_000);
    assert_eq!(other.release(&second).await, ClaimOutcome::Applied);
}

/// Until its lease ends, or its owner gives it back.
pub async fn a_timer_claimed_by_another_instance_is_firing(store: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of store);
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(other.delete(key(1), 30_999).await, DeleteOutcome::Firing);
    assert_eq!(other.delete(key(1), 31_000).await, DeleteOutcome::Deleted);
    assert_eq!(store.renew(&claim, 31_000).await, ClaimOutcome::Lost);
    assert_eq!(
        store.mark(&claim.timer, 31_000).await,
        MarkOutcome::NotFound
    );
    let batch = other.claim_batch(31_000, 10).await;
    assert_eq!((batch.claims, batch.next_due_at), (vec![], None));
    let claim = store.claimed(key(2), 1_000).await;
    store.release(&claim).await;
    assert_eq!(other.delete(key(2), 1_001).await, DeleteOutcome::Deleted);
}

/// Nor is it changed by a client that wants it to exist.
pub async fn a_timer_that_is_being_fired_is_deleted_by_no_client(
    store: Box<dyn TimerStoreFixture>,
) {
    let client = other_or_return!(client of store);
    let claim = store.claimed(key(1), 1_000).await;
    assert_eq!(client.delete(key(1), 1_000).await, DeleteOutcome::Firing);
    let saved = client.save(ensured(key(1), 9_000), 1_000).await;
    assert_eq!(saved, SaveOutcome::Unchanged);
    assert_eq!(store.renew(&claim, 1_000).await, ClaimOutcome::Applied);
    assert_eq!(store.mark(&claim.timer, 1_000).await, MarkOutcome::Marked);
    let deleted = client.delete(key(1), 1_000).await;
    assert_eq!(deleted, DeleteOutcome::AlreadyReached);
}

/// It ends the claim, and what its owner still does concerns the old schedule.
pub async fn a_reschedule_wins_over_a_claim_of_another_instance(store: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of store);
    let claim = store.claimed(key(1), 1_000).await;
    let saved = other.save(direct(key(1), 5_000), 2_000).await;
    assert_eq!(saved, SaveOutcome::Rescheduled);
    let rescheduled = other.found(key(1)).await;
    for batch in [
        store.claim_batch(2_000, 9).await,
        other.claim_batch(2_000, 9).await,
    ] {
        assert_eq!((batch.claims, batch.next_due_at), (vec![], Some(at(5_000))));
    }
    assert_eq!(store.renew(&claim, 2_000).await, ClaimOutcome::Lost);
    assert_eq!(store.release(&claim).await, ClaimOutcome::Lost);
    assert_eq!(store.retry(&claim, 2_500).await, ClaimOutcome::Moved);
    assert_eq!(store.dead_letter(&claim, 2_500).await, ClaimOutcome::Moved);
    assert_eq!(store.mark(&claim.timer, 2_500).await, MarkOutcome::Moved);
    assert_eq!(other.found(key(1)).await, rescheduled);
    let new = other.claim_one(5_000).await;
    assert_eq!(store.mark(&claim.timer, 5_500).await, MarkOutcome::Moved);
    assert_eq!(store.retry(&claim, 9_000).await, ClaimOutcome::Moved);
    assert_eq!(other.renew(&new, 5_500).await, ClaimOutcome::Applied);
    assert_eq!(other.mark(&new.timer, 5_500).await, MarkOutcome::Marked);
}

/// They differ in their due time only, so a mark is decided by both times. One instance shows it, too.
pub async fn a_firing_of_one_of_two_commands_of_a_millisecond_leaves_the_other(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(command(key(1), 500, 1_000), 500).await;
    let first = store.claim_one(1_000).await;
    let second = command(key(1), 500, 1_500);
    let saved = match Other::second(&store).await {
        Some(other) => other.save(second, 1_001).await,
        None => store.save(second, 1_001).await,
    };
    assert_eq!(saved, SaveOutcome::Rescheduled);
    assert_eq!(store.mark(&first.timer, 1_002).await, MarkOutcome::Moved);
    assert_eq!(store.retry(&first, 1_002).await, ClaimOutcome::Moved);
    assert_eq!(store.dead_letter(&first, 1_002).await, ClaimOutcome::Moved);
    assert_eq!(store.renew(&first, 1_002).await, ClaimOutcome::Lost);
    assert_eq!(store.release(&first).await, ClaimOutcome::Lost);
    let new = store.claim_one(1_500).await;
    assert_eq!(new.timer.registration, registration(500, 1_500));
    assert_eq!(store.mark(&first.timer, 1_500).await, MarkOutcome::Moved);
    assert_eq!(store.mark(&new.timer, 1_500).await, MarkOutcome::Marked);
}

/// Each firing is one, and only the last is what has been reached.
pub async fn a_replaced_timer_fires_again_whoever_marks_its_first_firing_late(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let first = store.claimed(key(1), 1_000).await;
    assert_eq!(store.mark(&first.timer, 1_000).await, MarkOutcome::Marked);
    let saved = other.save(replacement(key(1), 5_000), 2_000).await;
    assert_eq!(saved, SaveOutcome::Rescheduled);
    assert_eq!(store.mark(&first.timer, 2_500).await, MarkOutcome::Moved);
    let fired = async || {
        let page = store.queue().fired_since(at(0), None, 10).await;
        let timers = page.expect("fired_since answers").timers;
        let reached_at = timers.iter().map(ReachedTimer::reached_at);
        reached_at.collect::<Vec<_>>()
    };
    assert_eq!(fired().await, []);
    let second = other.claim_one(5_000).await;
    assert_eq!(store.mark(&first.timer, 5_000).await, MarkOutcome::Moved);
    assert_eq!(other.mark(&second.timer, 5_001).await, MarkOutcome::Marked);
    assert_eq!(fired().await, [at(5_001)]);
}

/// Handlers may still run whose claims are forgotten. What is not due was not claimed, and can be deleted.
pub async fn a_due_timer_is_firing_for_a_lease_after_the_store_has_crashed(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let claim = store.claimed(key(1), 1_000).await;
    store.save(direct(key(2), 1_000), 0).await;
    store.save(direct(key(3), 900_000), 0).await;
    if !store.crash_store().await {
        return;
    }
    for it in [key(1), key(2)] {
        let deleted = other.delete(it, 1_001).await;
        assert_eq!(deleted, DeleteOutcome::Firing);
    }
    assert_eq!(other.delete(key(3), 1_001).await, DeleteOutcome::Deleted);
    assert_eq!(store.retry(&claim, 9_000).await, ClaimOutcome::Lost);
    assert_eq!(other.delete(key(1), 31_000).await, DeleteOutcome::Firing);
    // A firing that was on its way is still one.
    assert_eq!(store.mark(&claim.timer, 1_002).await, MarkOutcome::Marked);
    assert_eq!(other.delete(key(2), 31_001).await, DeleteOutcome::Deleted);
    // From then on, claims are known as before.
    store.save(direct(key(4), 31_000), 31_000).await;
    let claim = store.claim_one(31_001).await;
    assert_eq!(other.delete(key(4), 31_002).await, DeleteOutcome::Firing);
    store.release(&claim).await;
    assert_eq!(other.delete(key(4), 31_002).await, DeleteOutcome::Deleted);
}

/// It may be published for longer than a lease. What has ended, moved or been claimed since stays lost.
pub async fn a_renewal_records_a_claim_again_that_the_store_has_lost(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let claim = store.claimed(key(1), 1_000).await;
    let taken = store.claimed(key(2), 1_000).await;
    let retried = store.claimed(key(3), 1_000).await;
    store.retry(&retried, 900_000).await;
    let marked = store.claimed(key(4), 1_000).await;
    store.mark(&marked.timer, 1_000).await;
    let moved = store.claimed(key(5), 1_000).await;
    if !store.crash_store().await {
        return;
    }
    store.save(direct(key(5), 800_000), 1_001).await;
    assert_eq!(store.renew(&claim, 1_001).await, ClaimOutcome::Applied);
    let others = other.claim_one(1_001).await;
    assert_eq!(others.timer, taken.timer);
    for lost in [&taken, &retried, &marked, &moved] {
        assert_eq!(store.renew(lost, 1_002).await, ClaimOutcome::Lost);
    }
    assert_eq!(other.mark(&others.timer, 1_002).await, MarkOutcome::Marked);
    assert_eq!(other.delete(key(1), 1_003).await, DeleteOutcome::Firing);
    for now in [20_000, 40_000] {
        assert_eq!(store.renew(&claim, now).await, ClaimOutcome::Applied);
    }
    assert_eq!(other.claim(60_000, 10).await, []);
    assert_eq!(other.delete(key(1), 60_000).await, DeleteOutcome::Firing);
    assert_eq!(store.release(&claim).await, ClaimOutcome::Applied);
    assert_eq!(other.delete(key(1), 60_001).await, DeleteOutcome::Deleted);
    assert_eq!(store.renew(&claim, 60_002).await, ClaimOutcome::Lost);
}

async fn purge_all(persistence: Arc<dyn TimerPersistencePort>, limit: usize) -> usize {
    let mut all = 0;
    loop {
        let purged = persistence.purge(at(50_000), limit).await;
        let purged = purged.expect("purge answers");
        assert!(purged <= limit);
        if purged == 0 {
            return all;
        }
        all += purged;
        tokio::task::yield_now().await;
    }
}

/// The numbers add up to what was there.
pub async fn two_purgers_purge_each_row_once_and_no_scheduled_timer(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(client of store);
    store.save_many(0..150, 1_000).await;
    for timer in store.due("tenant-a", 1_000, 120).await {
        assert_eq!(store.mark(&timer, 1_000).await, MarkOutcome::Marked);
    }
    let tombstones = (200..230).map(|n| direct(key(n), 900_000_000));
    store.save_all(tombstones.collect(), 0).await;
    for n in 200..230 {
        store.delete(key(n), 1_000).await;
    }
    let (one, two) = (store.persistence(), other.persistence());
    let one = tokio::spawn(purge_all(one, 7));
    let two = tokio::spawn(purge_all(two, 11));
    let mut all = one.await.expect("no panic") + two.await.expect("no panic");
    all += purge_all(store.persistence(), 1_000).await;
    assert_eq!(all, 150);
    let left = store.page(timers_of("tenant-a", 1_000)).await.timers;
    assert_eq!(left.len(), 30);
    let reached = TimerPageQuery {
        state: Some(TimerState::Reached),
        ..timers_of("tenant-a", 1_000)
    };
    assert_eq!(other.page(reached).await.timers, []);
}

/// The other one finds it there.
pub async fn of_two_concurrent_schedules_of_a_key_one_creates_it(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(client of store);
    for n in 0..30 {
        let (timer, second) = match n % 3 {
            0 => (ensured(key(n), 900_000), SaveOutcome::Unchanged),
            1 => (command(key(n), 5, 900_000), SaveOutcome::Unchanged),
            _ => (direct(key(n), 900_000), SaveOutcome::Rescheduled),
        };
        store.prepare(&timer.key).await;
        let saves = [&store.persistence(), &other.persistence()].map(|persistence| {
            let (persistence, timer) = (Arc::clone(persistence), timer.clone());
            tokio::spawn(async move { outcome(persistence.save(vec![timer], at(10)).await) })
        });
        let mut answers = Vec::new();
        for save in saves {
            answers.push(save.await.expect("no panic"));
        }
        if answers[0] != SaveOutcome::Created {
            answers.reverse();
        }
        assert_eq!(answers, [SaveOutcome::Created, second]);
        let registered_at = match second {
            SaveOutcome::Rescheduled => 11,
            _ if n % 3 == 1 => 5,
            _ => 10,
        };
        assert_eq!(
            store.scheduled(key(n)).await.registration,
            registration(registered_at, 900_000)
        );
    }
}

/// Whichever comes first, the deletion is the newer one.
pub async fn a_command_concurrent_with_a_newer_deletion_never_brings_the_timer_back(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(client of store);
    for n in 0..30 {
        store.save(command(key(n), 100, 900_000), 100).await;
        let (saving, deleting) = (store.persistence(), other.persistence());
        let save = tokio::spawn(async move {
            let newer = command(key(n), 300, 800_000);
            outcome(saving.save(vec![newer], at(500)).await)
        });
        let delete =
            tokio::spawn(async move { outcome(deleting.delete(vec![key(n)], at(500)).await) });
        let saved = save.await.expect("no panic");
        assert!(
            matches!(saved, SaveOutcome::Rescheduled | SaveOutcome::Stale),
            "{saved:?}"
        );
        assert_eq!(delete.await.expect("no panic"), DeleteOutcome::Deleted);
        assert_eq!(store.find(key(n)).await, None);
        assert_eq!(other.find(key(n)).await, None);
    }
}

/// Each goes round the tenants by itself, so that none waits for the other's backlog.
pub async fn every_tenant_has_its_turn_in_the_claims_of_each_instance(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    let big = (0..1_200).map(|n| direct(key_of("big", n), 100));
    store.save_all(big.collect(), 0).await;
    let small = (0..20).map(|n| direct(key_of(&format!("small-{n}"), 1), 5_000));
    store.save_all(small.collect(), 0).await;
    // Newer than the small ones, so that the share of the newest does not help them.
    let newest = (2_000..2_300).map(|n| direct(key_of("big", n), 6_000));
    store.save_all(newest.collect(), 0).await;
    let mut served = BTreeSet::new();
    for _ in 0..=(21 / (32 / 8)) {
        for claims in [store.claim(9_000, 32).await, other.claim(9_000, 32).await] {
            assert_eq!(claims.len(), 32, "a shared claim is full");
            served.extend(claims.into_iter().map(|it| it.timer.key.tenant_id));
        }
    }
    assert_eq!(served.len(), 21);
}

/// Each excludes the tenants that it has no slots for, and nobody else's.
pub async fn a_tenant_that_one_instance_excludes_is_served_by_another(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    for tenant in ["slow", "quick"] {
        store.save(direct(key_of(tenant, 1), 1_000), 0).await;
    }
    let batch = store.claim_except(1_000, 10, &["slow"]).await;
    assert_eq!(keys(&batch.claims), [key_of("quick", 1)].into());
    assert!(!batch.more_due);
    let batch = other.claim_except(1_000, 10, &["quick"]).await;
    assert_eq!(keys(&batch.claims), [key_of("slow", 1)].into());
}
