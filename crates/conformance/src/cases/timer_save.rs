//! What a schedule does to the stored timer.

use punctual_domain::{TimerEntry, Timestamp};
use punctual_ports::{ClaimOutcome, SaveOutcome, SaveTimer};

use SaveOutcome::{AlreadyReached, Created, Rescheduled, Stale, Unchanged};

use crate::TimerStoreFixture;
use crate::store::{
    Store, at, command, correlation, direct, ensured, key, of_request, only, registration,
    replacement, with_data,
};

suite! { $ timer_save_suite, timer_save =>
    a_saved_timer_is_found_as_it_was_given,
    a_timer_that_was_never_saved_is_not_found,
    scheduling_again_before_firing_moves_the_timer,
    a_direct_call_in_the_same_millisecond_registers_later,
    a_direct_call_applies_also_when_the_clock_went_back,
    a_reschedule_forgets_attempts_and_retry_time,
    a_reschedule_ends_the_claim_of_the_old_schedule,
    the_same_command_again_changes_nothing,
    an_older_command_is_stale_and_changes_nothing,
    an_equal_time_with_a_later_due_time_is_a_newer_command,
    a_command_from_the_future_is_registered_now,
    commands_in_any_order_end_in_the_same_row,
    a_direct_call_after_a_command_is_never_stale,
    a_reached_timer_is_not_scheduled_again,
    a_replacement_makes_a_reached_timer_fire_again,
    a_replacement_moves_a_scheduled_timer,
    a_replacement_creates_what_is_not_there,
    ensuring_creates_what_is_absent_or_deleted,
    ensuring_leaves_an_overdue_timer_exactly_as_it_is,
    ensuring_leaves_a_timer_in_backoff_and_a_claimed_one_as_they_are,
    ensuring_a_reached_timer_changes_nothing,
    of_many_that_ensure_a_timer_at_once_one_creates_it,
    items_with_the_same_key_apply_in_order,
    outcomes_come_in_the_order_of_the_items,
    an_empty_batch_is_answered_with_an_empty_list,
    a_large_batch_is_saved_completely,
    a_due_time_in_the_past_is_due_at_once,
    the_first_and_the_last_instant_are_kept_exactly,
    data_comes_back_byte_for_byte,
    what_was_acknowledged_survives_a_crash,
    concurrent_direct_calls_for_one_key_all_apply,
}

/// Everything that was given comes back, and the registration is the time of the call.
pub async fn a_saved_timer_is_found_as_it_was_given(store: Box<dyn TimerStoreFixture>) {
    let timer = of_request(with_data(direct(key(1), 9_000), "{\"order\":1}"), 77);
    assert_eq!(store.save(timer.clone(), 1_000).await, Created);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.key, timer.key);
    assert_eq!(found.correlation_id, timer.correlation_id);
    assert_eq!(found.data, timer.data);
    assert_eq!(found.registration, registration(1_000, 9_000));
}

/// An unknown key is absent, not an error.
pub async fn a_timer_that_was_never_saved_is_not_found(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(store.find(key(1)).await, None);
}

/// Due time, registration, correlation and data are all the new schedule's.
pub async fn scheduling_again_before_firing_moves_the_timer(store: Box<dyn TimerStoreFixture>) {
    store
        .save(with_data(direct(key(1), 9_000), "1"), 1_000)
        .await;
    let again = of_request(direct(key(1), 5_000), 2);
    assert_eq!(store.save(again, 2_000).await, Rescheduled);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration, registration(2_000, 5_000));
    assert_eq!(found.correlation_id, correlation(2));
    assert_eq!(found.data, None);
    assert_eq!(store.claim(4_999, 10).await, []);
    store.claim_one(5_000).await;
}

/// Otherwise a firing under way could mark the new schedule as reached.
pub async fn a_direct_call_in_the_same_millisecond_registers_later(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 5_000), 1_000).await;
    store.save(direct(key(1), 5_000), 1_000).await;
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(1_001));
}

/// A direct call is never stale.
pub async fn a_direct_call_applies_also_when_the_clock_went_back(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(direct(key(1), 5_000), 1_000).await;
    assert_eq!(store.save(direct(key(1), 6_000), 10).await, Rescheduled);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration, registration(1_001, 6_000));
}

/// A new schedule has not failed yet.
pub async fn a_reschedule_forgets_attempts_and_retry_time(store: Box<dyn TimerStoreFixture>) {
    let claim = store.claimed(key(1), 1_000).await;
    store.retry(&claim, 90_000).await;
    store.save(direct(key(1), 2_000), 1_500).await;
    let claim = store.claim_one(2_000).await;
    assert_eq!(claim.attempts, 0);
}

/// The new schedule can be claimed at its due time while a worker has a lease on the old one.
pub async fn a_reschedule_ends_the_claim_of_the_old_schedule(store: Box<dyn TimerStoreFixture>) {
    let old = store.claimed(key(1), 1_000).await;
    store.save(direct(key(1), 1_000), 1_000).await;
    let new = store.claim_one(1_001).await;
    assert_ne!(old.timer.firing_id(), new.timer.firing_id());
}

/// Redelivery is harmless.
pub async fn the_same_command_again_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    let first = command(key(1), 500, 9_000);
    assert_eq!(store.save(first.clone(), 1_000).await, Created);
    let before = store.found(key(1)).await;
    assert_eq!(store.save(first, 2_000).await, Unchanged);
    assert_eq!(store.found(key(1)).await, before);
}

/// What was overtaken on the way does not win.
pub async fn an_older_command_is_stale_and_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    store
        .save(with_data(command(key(1), 500, 9_000), "\"new\""), 1_000)
        .await;
    let before = store.found(key(1)).await;
    let older = with_data(command(key(1), 499, 99_000), "\"old\"");
    assert_eq!(store.save(older, 2_000).await, Stale);
    let sooner = command(key(1), 500, 8_999);
    assert_eq!(store.save(sooner, 2_000).await, Stale);
    assert_eq!(store.found(key(1)).await, before);
}

/// The due time breaks the tie between commands of one millisecond.
pub async fn an_equal_time_with_a_later_due_time_is_a_newer_command(
    store: Box<dyn TimerStoreFixture>,
) {
    store.save(command(key(1), 500, 9_000), 1_000).await;
    assert_eq!(
        store.save(command(key(1), 500, 9_001), 1_000).await,
        Rescheduled
    );
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration, registration(500, 9_001));
}

/// A sender whose clock runs ahead does not shut others out.
pub async fn a_command_from_the_future_is_registered_now(store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 999_999, 9_000), 1_000).await;
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(1_000));
}

/// Every permutation of three commands, each twice, ends in the newest.
pub async fn commands_in_any_order_end_in_the_same_row(store: Box<dyn TimerStoreFixture>) {
    let sent = [(100, 7_000), (200, 5_000), (200, 6_000)];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for (n, order) in (1..).zip(orders) {
        for index in order.into_iter().chain(order) {
            let (sent_at, due_at) = sent[index];
            store.save(command(key(n), sent_at, due_at), 1_000).await;
        }
        let found = store.scheduled(key(n)).await;
        assert_eq!(found.registration, registration(200, 6_000), "{order:?}");
    }
}

/// Not even a command that was registered in the same millisecond shuts a caller out.
pub async fn a_direct_call_after_a_command_is_never_stale(store: Box<dyn TimerStoreFixture>) {
    store.save(command(key(1), 1_000, 9_000), 1_000).await;
    assert_eq!(store.save(direct(key(1), 2_000), 1_000).await, Rescheduled);
}

/// Reached is final: the row is untouched and the outcome says so.
pub async fn a_reached_timer_is_not_scheduled_again(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    let before = store.found(key(1)).await;
    let by_call = store.save(direct(key(1), 9_000), 2_000).await;
    let by_command = store.save(command(key(1), 2_000, 9_000), 2_000).await;
    assert_eq!(by_call, AlreadyReached);
    assert_eq!(by_command, AlreadyReached);
    assert_eq!(store.found(key(1)).await, before);
}

/// A replacement is a deletion and a schedule in one step.
pub async fn a_replacement_makes_a_reached_timer_fire_again(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    let old = store.found(key(1)).await.timer().firing_id();
    assert_eq!(store.save(replacement(key(1), 1_000), 0).await, Rescheduled);
    let claim = store.claim_one(2_000).await;
    assert_ne!(claim.timer.firing_id(), old);
}

/// Before firing, a replacement is a reschedule.
pub async fn a_replacement_moves_a_scheduled_timer(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 5_000), 1_000).await;
    assert_eq!(
        store.save(replacement(key(1), 6_000), 1_000).await,
        Rescheduled
    );
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration, registration(1_001, 6_000));
}

/// There need not be anything to replace.
pub async fn a_replacement_creates_what_is_not_there(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(store.save(replacement(key(1), 6_000), 1_000).await, Created);
}

/// The last of them wins, and each is answered as if it were alone.
pub async fn items_with_the_same_key_apply_in_order(store: Box<dyn TimerStoreFixture>) {
    let batch = vec![
        direct(key(1), 1_000),
        direct(key(1), 3_000),
        command(key(1), 0, 9_000),
        direct(key(1), 2_000),
    ];
    let outcomes = store.save_all(batch, 500).await;
    assert_eq!(outcomes, [Created, Rescheduled, Stale, Rescheduled]);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration, registration(502, 2_000));
}

/// Outcomes belong to items by position.
pub async fn outcomes_come_in_the_order_of_the_items(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(2), 100).await;
    store.save(command(key(4), 400, 9_000), 400).await;
    let batch = vec![
        direct(key(1), 9_000),
        direct(key(2), 9_000),
        direct(key(3), 9_000),
        command(key(4), 400, 9_000),
    ];
    let outcomes = store.save_all(batch, 500).await;
    assert_eq!(outcomes, [Created, AlreadyReached, Created, Unchanged]);
}

/// Nothing to do is not an error, for any batch.
pub async fn an_empty_batch_is_answered_with_an_empty_list(store: Box<dyn TimerStoreFixture>) {
    let (persistence, queue) = (store.persistence(), store.queue());
    assert!(persistence.save(vec![], at(1)).await.unwrap().is_empty());
    assert!(persistence.mark_fired(vec![]).await.unwrap().is_empty());
    assert!(persistence.delete(vec![], at(1)).await.unwrap().is_empty());
    assert!(queue.retry_later(vec![]).await.unwrap().is_empty());
    assert!(queue.release(vec![]).await.unwrap().is_empty());
    assert!(queue.dead_letter(vec![]).await.unwrap().is_empty());
    let renewed = queue.renew(vec![], at(1), crate::store::LEASE).await;
    assert!(renewed.unwrap().is_empty());
}

/// A thousand timers in one call are a thousand timers.
pub async fn a_large_batch_is_saved_completely(store: Box<dyn TimerStoreFixture>) {
    let batch: Vec<SaveTimer> = (1..=1_000).map(|n| direct(key(n), 1_000)).collect();
    let outcomes = store.save_all(batch, 0).await;
    assert!(outcomes.iter().all(|one| *one == Created));
    assert_eq!(store.due("tenant-a", 1_000, 2_000).await.len(), 1_000);
}

/// In the past means now.
pub async fn a_due_time_in_the_past_is_due_at_once(store: Box<dyn TimerStoreFixture>) {
    store.save(direct(key(1), 0), 1_000).await;
    let claim = store.claim_one(1_000).await;
    assert_eq!(claim.timer.registration.due_at, at(0));
}

/// Nothing is rounded, cut or moved at the edges.
pub async fn the_first_and_the_last_instant_are_kept_exactly(store: Box<dyn TimerStoreFixture>) {
    let last = SaveTimer {
        due_at: Timestamp::MAX,
        ..direct(key(1), 0)
    };
    store.save_all(vec![last, direct(key(2), 0)], 0).await;
    let kept = store.scheduled(key(1)).await;
    assert_eq!(kept.registration.due_at, Timestamp::MAX);
    let batch = store.claim_batch(0, 10).await;
    assert_eq!(batch.claims[0].timer.registration.due_at, Timestamp::MIN);
    assert_eq!(batch.next_due_at, Some(Timestamp::MAX));
}

/// Also what is long, what is not ASCII, and what means something in SQL.
pub async fn data_comes_back_byte_for_byte(store: Box<dyn TimerStoreFixture>) {
    let long = format!("\"{}\"", "x".repeat(16 * 1024 - 2));
    let texts = [
        "null",
        "{ \"a\" : [ 1, 2.50 ] }",
        "\"'; DROP TABLE timer_schedules; --\"",
        "\"\\u0000 ☃ 日本 \\\"\"",
        long.as_str(),
    ];
    for (n, text) in (1..).zip(texts) {
        store.save(with_data(direct(key(n), 9_000), text), 0).await;
        let found = store.scheduled(key(n)).await;
        assert_eq!(found.data.expect("data is there").as_json(), text);
    }
}

/// Acknowledged means durable.
pub async fn what_was_acknowledged_survives_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    store
        .save(with_data(direct(key(1), 9_000), "[1]"), 1_000)
        .await;
    store.reached(key(2), 500).await;
    let before = (store.found(key(1)).await, store.found(key(2)).await);
    store.crash_and_reopen().await;
    assert_eq!(
        (store.found(key(1)).await, store.found(key(2)).await),
        before
    );
    assert!(matches!(before.1, TimerEntry::Reached { .. }));
}

/// Also after a deletion, and then with a later registration than any before.
pub async fn ensuring_creates_what_is_absent_or_deleted(store: Box<dyn TimerStoreFixture>) {
    let timer = with_data(ensured(key(1), 9_000), "1");
    assert_eq!(store.save(timer.clone(), 1_000).await, Created);
    assert_eq!(store.scheduled(key(1)).await.data, timer.data);
    store.delete(key(1), 2_000).await;
    assert_eq!(store.save(timer, 2_000).await, Created);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(2_001));
    store.claim_one(9_000).await;
}

/// What a program ensures at every start keeps its due time, however late it is, and fires.
pub async fn ensuring_leaves_an_overdue_timer_exactly_as_it_is(store: Box<dyn TimerStoreFixture>) {
    store.save(with_data(direct(key(1), 1_000), "1"), 500).await;
    let before = store.found(key(1)).await;
    let again = of_request(with_data(ensured(key(1), 9_000), "2"), 2);
    assert_eq!(store.save(again, 5_000).await, Unchanged);
    assert_eq!(store.found(key(1)).await, before);
    let claim = store.claim_one(5_000).await;
    assert_eq!(claim.timer.registration.due_at, at(1_000));
}

/// A start must neither retry a failing timer at once nor take one away from its worker.
pub async fn ensuring_leaves_a_timer_in_backoff_and_a_claimed_one_as_they_are(
    store: Box<dyn TimerStoreFixture>,
) {
    let claim = store.claimed(key(1), 1_000).await;
    store.retry(&claim, 8_000).await;
    assert_eq!(store.save(ensured(key(1), 1_000), 2_000).await, Unchanged);
    assert_eq!(store.claim(7_999, 10).await, []);
    let claim = store.claim_one(8_000).await;
    assert_eq!(claim.attempts, 1);
    assert_eq!(store.save(ensured(key(1), 1_000), 8_000).await, Unchanged);
    assert_eq!(store.claim(8_000, 10).await, [], "it is claimed");
    assert_eq!(store.release(&claim).await, ClaimOutcome::Applied);
}

/// Only `replace` lets it fire again.
pub async fn ensuring_a_reached_timer_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    store.reached(key(1), 1_000).await;
    let before = store.found(key(1)).await;
    assert_eq!(
        store.save(ensured(key(1), 9_000), 2_000).await,
        AlreadyReached
    );
    assert_eq!(store.found(key(1)).await, before);
}

/// Deciding and writing are one step: two starts at the same time make one timer.
pub async fn of_many_that_ensure_a_timer_at_once_one_creates_it(store: Box<dyn TimerStoreFixture>) {
    let outcomes = at_the_same_time(&store, &ensured(key(1), 9_000)).await;
    let created = |outcome: &&SaveOutcome| **outcome == Created;
    assert_eq!(outcomes.iter().filter(created).count(), 1);
    let unchanged = |outcome: &&SaveOutcome| **outcome == Unchanged;
    assert_eq!(outcomes.iter().filter(unchanged).count(), 31);
}

/// The outcomes of 32 callers that save one timer at the same time.
async fn at_the_same_time(store: &dyn TimerStoreFixture, timer: &SaveTimer) -> Vec<SaveOutcome> {
    store.prepare(&timer.key).await;
    let calls: Vec<_> = (0..32)
        .map(|_| {
            let (persistence, timer) = (store.persistence(), timer.clone());
            tokio::spawn(async move { persistence.save(vec![timer], at(100)).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for call in calls {
        let answers = call.await.expect("no panic").expect("save answers");
        outcomes.push(only(answers).expect("is saved"));
    }
    outcomes
}

/// Deciding and writing are one step: no call is lost between another's read and write.
pub async fn concurrent_direct_calls_for_one_key_all_apply(store: Box<dyn TimerStoreFixture>) {
    let outcomes = at_the_same_time(&store, &direct(key(1), 9_000)).await;
    let created = |outcome: &&SaveOutcome| **outcome == Created;
    assert_eq!(outcomes.iter().filter(created).count(), 1);
    let found = store.scheduled(key(1)).await;
    assert_eq!(found.registration.registered_at, at(131));
}
