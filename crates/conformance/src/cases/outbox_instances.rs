//! Several instances on one store: each message is published by one of them, or by the next after a crash.
//!
//! A fixture without a second instance has nothing to show here, and the cases end at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_ports::{DeadLetterMessage, OutboxOutcome, OutboxPort, OutboxPosition, OutboxRow};

use OutboxOutcome::{AlreadyDone, Marked};

use crate::CallStoreFixture;
use crate::calls::{Calls, details};
use crate::instances::{OtherCalls, second_or_return};
use crate::store::{LEASE, a_dead_letter, at, key, outcomes};

suite! { $ outbox_instances_suite, outbox_instances =>
    interleaved_claims_of_two_instances_share_no_message_and_get_all,
    concurrent_claims_of_two_instances_share_no_message_and_get_all,
    messages_of_a_crashed_instance_are_claimed_when_its_lease_ends,
    a_stale_owner_s_late_mark_marks_the_message_once,
    a_stale_owner_gives_back_nothing_that_is_another_s,
    a_message_that_two_instances_dead_letter_has_one_dead_letter,
    later_messages_of_a_call_wait_for_the_instance_that_has_the_earlier,
    a_message_to_be_published_later_holds_up_no_other,
    claims_end_by_the_store_s_clock,
}

/// Calls with three messages each.
async fn submit(store: &dyn CallStoreFixture, numbers: impl Iterator<Item = u128>) {
    if store.has_calls() {
        let calls = numbers.map(|n| details(key(n), 50_000));
        return store.submit_all(calls.collect()).await;
    }
    for n in numbers {
        store.three_messages(key(n), 1_000).await;
    }
}

fn positions(rows: &[OutboxRow]) -> BTreeSet<OutboxPosition> {
    rows.iter().map(|row| row.position).collect()
}

/// In turns, a call each.
pub async fn interleaved_claims_of_two_instances_share_no_message_and_get_all(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    submit(&store, 1..=20).await;
    let mut all = Vec::new();
    for calls in [1, 2, 3, 4] {
        for rows in [
            store.claim_messages(2_000, calls * 3).await,
            other.claim_messages(2_000, calls * 3).await,
        ] {
            assert_eq!(rows.len(), calls * 3, "nobody claims at this moment");
            assert!(rows.is_sorted_by(|a, b| a.position < b.position));
            all.extend(rows);
        }
    }
    assert_eq!(positions(&all).len(), 60);
    assert_eq!(store.claim_messages(2_000, 10).await, []);
    assert_eq!(other.claim_messages(2_000, 10).await, []);
}

async fn claim_what_is_there(outbox: Arc<dyn OutboxPort>, limit: usize) -> Vec<OutboxRow> {
    let mut all = Vec::new();
    loop {
        let batch = outbox.claim(at(2_000), limit, LEASE).await;
        let rows = batch.expect("claim answers").rows;
        if rows.is_empty() {
            return all;
        }
        let marked = rows.iter().map(|row| row.position).collect();
        let marked = outbox.mark_published(marked, at(2_000)).await;
        assert!(outcomes(marked).iter().all(|it| *it == Marked));
        all.extend(rows);
        tokio::task::yield_now().await;
    }
}

/// A claim may miss what the other is claiming at that moment; nothing is missed by both for long.
pub async fn concurrent_claims_of_two_instances_share_no_message_and_get_all(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    submit(&store, 1..=200).await;
    let claimers: Vec<_> = [
        store.outbox(),
        other.outbox(),
        store.outbox(),
        other.outbox(),
    ]
    .into_iter()
    .map(|outbox| tokio::spawn(claim_what_is_there(outbox, 7)))
    .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.expect("no panic"));
    }
    all.extend(claim_what_is_there(other.outbox(), 100).await);
    assert_eq!(all.len(), 600);
    assert_eq!(positions(&all).len(), 600);
}

/// Not before; and its end is announced.
pub async fn messages_of_a_crashed_instance_are_claimed_when_its_lease_ends(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    submit(&store, 1..=2).await;
    let lost = store.claim_messages(2_000, 10).await;
    assert_eq!(lost.len(), 6);
    let batch = other.claim_batch(31_999, 10, LEASE).await;
    assert_eq!((batch.rows, batch.next_at), (vec![], Some(at(32_000))));
    assert_eq!(other.claim_messages(32_000, 10).await, lost);
}

/// Whoever comes first; and it is published no more.
pub async fn a_stale_owner_s_late_mark_marks_the_message_once(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    submit(&store, [1].into_iter()).await;
    let stale = store.claim_messages(2_000, 2).await;
    assert_eq!(other.claim_messages(32_000, 2).await, stale);
    let (first, second) = (stale[0].position, stale[1].position);
    assert_eq!(store.mark_published(first, 32_000).await, Marked);
    assert_eq!(other.mark_published(first, 33_000).await, AlreadyDone);
    assert_eq!(other.mark_published(second, 32_000).await, Marked);
    assert_eq!(store.mark_published(second, 33_000).await, AlreadyDone);
    let about = store.outbox().about(key(1), 2).await;
    let about = about.expect("about answers");
    assert!(about.iter().all(|it| it.published_at == Some(at(32_000))));
    assert_eq!(store.claim_messages(99_000, 10).await.len(), 1);
}

/// Its claim is over.
pub async fn a_stale_owner_gives_back_nothing_that_is_another_s(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    submit(&store, [1].into_iter()).await;
    let stale = store.claim_messages(2_000, 10).await;
    assert_eq!(other.claim_messages(32_000, 10).await, stale);
    for row in &stale {
        store.publish_later(row.position, 0, 32_000).await;
    }
    assert_eq!(store.claim_messages(61_999, 10).await, []);
    assert_eq!(store.claim_messages(62_000, 10).await, stale);
}

/// That of the first.
pub async fn a_message_that_two_instances_dead_letter_has_one_dead_letter(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    submit(&store, [1].into_iter()).await;
    let position = store.claim_messages(2_000, 1).await[0].position;
    let dead = |id: &str| {
        let dead_letter = a_dead_letter(id);
        vec![DeadLetterMessage {
            position,
            dead_letter,
        }]
    };
    let first = other.outbox().dead_letter(dead("a")).await;
    assert_eq!(outcomes(first), [Marked]);
    let second = store.outbox().dead_letter(dead("b")).await;
    assert_eq!(outcomes(second), [AlreadyDone]);
    for store in [store.dead_letters(), other.dead_letters()] {
        let listed = store.list(None, 10).await.expect("list answers");
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].dead_letter, a_dead_letter("a"));
    }
}

/// For as long as its claim lasts. Other calls do not wait.
pub async fn later_messages_of_a_call_wait_for_the_instance_that_has_the_earlier(
    store: Box<dyn CallStoreFixture>,
) {
    let other = second_or_return!(store);
    submit(&store, 1..=2).await;
    let all = store.unpublished().await;
    assert_eq!(store.claim_messages(2_000, 1).await, all[..1]);
    assert_eq!(other.claim_messages(2_000, 10).await, all[3..]);
    assert_eq!(store.mark_published(all[0].position, 2_000).await, Marked);
    assert_eq!(other.claim_messages(2_000, 1).await, all[1..2]);
    assert_eq!(store.claim_messages(31_999, 10).await, []);
    // What an instance has claimed itself holds up nothing of its own.
    assert_eq!(other.claim_messages(31_999, 10).await, all[2..3]);
    assert_eq!(store.claim_messages(61_999, 10).await.len(), 5);
}

/// Neither of the same call nor of another instance.
pub async fn a_message_to_be_published_later_holds_up_no_other(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    submit(&store, [1].into_iter()).await;
    let all = store.unpublished().await;
    store.claim_messages(2_000, 1).await;
    assert_eq!(other.claim_messages(2_000, 10).await, []);
    store.publish_later(all[0].position, 5_000, 2_000).await;
    assert_eq!(other.claim_messages(2_000, 10).await, all[1..]);
    assert_eq!(other.claim_messages(6_999, 10).await, []);
    assert_eq!(other.claim_messages(7_000, 10).await, all[..1]);
}

/// However far the clocks of the instances are apart.
pub async fn claims_end_by_the_store_s_clock(store: Box<dyn CallStoreFixture>) {
    let other = second_or_return!(store);
    if !store.has_store_clock() {
        return;
    }
    for (n, ahead) in [(1, 10_000), (2, -10_000)] {
        submit(&store, [n].into_iter()).await;
        store.set_store_clock(Some(at(100_000)));
        let rows = store.claim_messages(100_000, 10).await;
        store.set_store_clock(Some(at(129_999)));
        let batch = other.claim_batch(129_999 + ahead, 10, LEASE).await;
        assert_eq!(batch.rows, []);
        assert_eq!(batch.next_at, Some(at(130_000 + ahead)));
        store.set_store_clock(Some(at(130_000)));
        assert_eq!(other.claim_messages(130_000 + ahead, 10).await, rows);
        for row in &rows {
            other.mark_published(row.position, 130_000 + ahead).await;
        }
    }
}
