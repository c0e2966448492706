//! Messages wait in commit order until they are published, and are removed no sooner.

use punctual_domain::messages::Listeners;
use punctual_domain::{Message, MessageEnvelope};
use punctual_ports::{
    CallChange, DeadLetterMessage, NewCall, OutboxOutcome, OutboxPosition, OutboxRow,
};

use OutboxOutcome::{AlreadyDone, Marked};

use crate::CallStoreFixture;
use crate::calls::{CANARY, Calls, details, envelopes, new_call, scheduled, start};
use crate::store::{LEASE, a_dead_letter, at, correlation, key, key_of, outcomes};

suite! { $ outbox_suite, outbox =>
    messages_wait_in_the_order_of_their_positions,
    a_claimed_message_is_claimed_again_when_its_lease_has_ended,
    a_message_to_be_published_later_is_claimed_then,
    positions_never_go_back_when_the_clock_does,
    a_published_message_waits_no_more,
    a_message_is_marked_once,
    a_dead_lettered_message_waits_no_more,
    unpublished_messages_are_counted_up_to_a_limit,
    the_messages_about_a_call_are_its_own_and_in_order,
    a_secret_is_published_and_then_redacted,
    a_message_that_nobody_receives_is_published_when_it_is_written,
    a_purge_removes_old_published_messages_only,
    unpublished_messages_survive_a_crash,
}

/// A call of this number, whose three messages of this time wait.
async fn submit(store: &dyn CallStoreFixture, n: u128, submitted_at: i64) {
    store.three_messages(key(n), submitted_at).await;
}

async fn mark(store: &dyn CallStoreFixture, position: OutboxPosition, now: i64) -> OutboxOutcome {
    store.mark_published(position, now).await
}

fn positions(rows: &[OutboxRow]) -> Vec<OutboxPosition> {
    rows.iter().map(|row| row.position).collect()
}

/// Those of one commit as they were given.
pub async fn messages_wait_in_the_order_of_their_positions(store: Box<dyn CallStoreFixture>) {
    for n in 1..=3 {
        submit(&store, n, 1_000).await;
    }
    let rows = store.unpublished().await;
    assert_eq!(rows.len(), 9);
    assert!(positions(&rows).is_sorted_by(|a, b| a < b));
    let calls: Vec<_> = store.messages().await;
    let calls = calls.iter().map(|it| it.message.service_call_id());
    let expected = [1, 1, 1, 2, 2, 2, 3, 3, 3].map(|n| key(n).service_call_id);
    assert!(calls.eq(expected));
}

/// Each once, the earliest first, up to the limit, and again when their lease has ended.
pub async fn a_claimed_message_is_claimed_again_when_its_lease_has_ended(
    store: Box<dyn CallStoreFixture>,
) {
    for (n, at) in [(1, 1_000), (2, 1_000), (3, 2_000)] {
        submit(&store, n, at).await;
    }
    let all = store.unpublished().await;
    assert_eq!(store.claim_messages(3_000, 0).await, []);
    let mut seen = Vec::new();
    for limit in [1, 2, 4, 100, 100] {
        let rows = store.claim_messages(3_000, limit).await;
        assert!(rows.len() <= limit);
        seen.extend(rows);
    }
    assert_eq!(seen, all);
    let batch = store.claim_batch(32_999, 100, LEASE).await;
    assert_eq!((batch.rows, batch.next_at), (vec![], Some(at(33_000))));
    mark(&store, all[0].position, 32_999).await;
    assert_eq!(store.claim_messages(33_000, 3).await, all[1..4]);
    assert_eq!(store.claim_messages(33_000, 100).await, all[4..]);
    assert_eq!(store.claim_messages(33_000, 100).await, []);
}

/// At once, or after a while; what is published is not.
pub async fn a_message_to_be_published_later_is_claimed_then(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    let rows = store.claim_messages(2_000, 10).await;
    store.publish_later(rows[0].position, 90_000, 2_000).await;
    store.publish_later(rows[1].position, 0, 2_000).await;
    store.publish_later(rows[2].position, 500, 2_000).await;
    assert_eq!(store.claim_messages(2_000, 10).await, rows[1..2]);
    let batch = store.claim_batch(2_499, 10, LEASE).await;
    assert_eq!((batch.rows, batch.next_at), (vec![], Some(at(2_500))));
    assert_eq!(store.claim_messages(2_500, 10).await, rows[2..]);
    mark(&store, rows[2].position, 2_500).await;
    store.publish_later(rows[2].position, 0, 2_500).await;
    assert_eq!(store.claim_messages(31_999, 10).await, []);
    assert_eq!(store.claim_messages(32_000, 10).await, rows[1..2]);
    assert_eq!(store.claim_messages(91_999, 10).await, rows[1..2]);
    assert_eq!(store.claim_messages(92_000, 10).await, rows[..1]);
}

/// Also by hours, and after everything before was published and a crash.
pub async fn positions_never_go_back_when_the_clock_does(mut store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 9_000_000).await;
    submit(&store, 2, 1_000).await;
    let first = store.unpublished().await;
    assert!(positions(&first).is_sorted_by(|a, b| a < b));
    let last = first.last().expect("there are six").position;
    for position in positions(&first) {
        mark(&store, position, 1_000).await;
    }
    store.crash_and_reopen().await;
    submit(&store, 3, 500).await;
    let behind = store.unpublished().await;
    assert_eq!(behind.len(), 3);
    assert!(behind.iter().all(|row| row.position > last));
}

/// And the others do.
pub async fn a_published_message_waits_no_more(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    let rows = store.unpublished().await;
    let marked = mark(&store, rows[1].position, 2_000).await;
    assert_eq!(marked, Marked);
    let left = store.unpublished().await;
    assert_eq!(left, [rows[0].clone(), rows[2].clone()]);
}

/// The first time counts; and what is not there is done.
pub async fn a_message_is_marked_once(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    let position = store.unpublished().await[0].position;
    let nowhere = OutboxPosition {
        number: position.number + 1_000,
        ..position
    };
    let outbox = store.outbox();
    let batch = vec![position, position, nowhere];
    let answers = outbox.mark_published(batch, at(2_000)).await;
    assert_eq!(outcomes(answers), [Marked, AlreadyDone, AlreadyDone]);
    assert_eq!(mark(&store, position, 3_000).await, AlreadyDone);
    let about = outbox.about(key(1), 1).await.unwrap();
    assert_eq!(about[0].published_at, Some(at(2_000)));
}

/// It has one dead letter, however often it is dead-lettered.
pub async fn a_dead_lettered_message_waits_no_more(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    let rows = store.unpublished().await;
    let dead = |id: &str| DeadLetterMessage {
        position: rows[0].position,
        dead_letter: a_dead_letter(id),
    };
    let outbox = store.outbox();
    let answers = outbox.dead_letter(vec![dead("a"), dead("b")]).await;
    assert_eq!(outcomes(answers), [Marked, AlreadyDone]);
    assert_eq!(store.unpublished().await, rows[1..]);
    let dead_letters = store.dead_letters().list(None, 10).await.unwrap();
    let dead_letters: Vec<_> = dead_letters.into_iter().map(|it| it.dead_letter).collect();
    assert_eq!(dead_letters, [a_dead_letter("a")]);
}

/// Published ones are not counted.
pub async fn unpublished_messages_are_counted_up_to_a_limit(store: Box<dyn CallStoreFixture>) {
    let outbox = store.outbox();
    assert_eq!(outbox.count(10).await.unwrap(), 0);
    submit(&store, 1, 1_000).await;
    submit(&store, 2, 1_000).await;
    mark(&store, store.unpublished().await[0].position, 2_000).await;
    for (limit, count) in [(0, 0), (1, 1), (4, 4), (5, 5), (6, 5), (usize::MAX, 5)] {
        assert_eq!(outbox.count(limit).await.unwrap(), count);
    }
}

/// Published or not; of this tenant's call and no other.
pub async fn the_messages_about_a_call_are_its_own_and_in_order(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    submit(&store, 2, 1_000).await;
    store.three_messages(key_of("tenant-b", 1), 1_000).await;
    let mine: Vec<OutboxRow> = store.unpublished().await[..3].to_vec();
    mark(&store, mine[1].position, 2_000).await;
    let about = store.outbox().about(key(1), 10).await.unwrap();
    let envelopes: Vec<MessageEnvelope> = about.iter().map(|it| it.envelope.clone()).collect();
    let expected = mine.into_iter().map(|row| row.envelope.unwrap());
    assert!(expected.eq(envelopes));
    let published: Vec<_> = about.iter().map(|it| it.published_at).collect();
    assert_eq!(published, [None, Some(at(2_000)), None]);
    let few = store.outbox().about(key(1), 2).await.unwrap();
    assert_eq!(few, about[..2]);
}

fn has_secret(envelope: &MessageEnvelope) -> bool {
    let json = envelope.to_json().expect("it can be written");
    String::from_utf8_lossy(&json).contains(CANARY)
}

/// The dispatcher gets it; `about` never returns it.
pub async fn a_secret_is_published_and_then_redacted(store: Box<dyn CallStoreFixture>) {
    if !store.has_calls() {
        return;
    }
    let outbox = store.outbox();
    for (n, dead) in [(1, false), (2, true)] {
        store.submitted(details(key(n), 5_000)).await;
        store.started(key(n)).await;
        let waiting = store.unpublished().await;
        let secret: Vec<&OutboxRow> = waiting
            .iter()
            .filter(|row| row.envelope.as_ref().is_ok_and(has_secret))
            .collect();
        assert_eq!(secret.len(), 1, "the command that starts the attempt");
        let position = secret[0].position;
        let about = |()| async { outbox.about(key(n), 100).await.unwrap() };
        assert!(!about(()).await.iter().any(|it| has_secret(&it.envelope)));
        if dead {
            let dead_letter = a_dead_letter("it");
            outbox
                .dead_letter(vec![DeadLetterMessage {
                    position,
                    dead_letter,
                }])
                .await
                .unwrap();
        } else {
            mark(&store, position, 6_000).await;
        }
        let kept = about(()).await;
        assert!(!kept.iter().any(|it| has_secret(&it.envelope)));
        let is_command = |it: &MessageEnvelope| matches!(it.message, Message::StartExecution(_));
        let command = kept.iter().find(|it| is_command(&it.envelope));
        assert!(command.is_some_and(|it| it.published_at.is_some()));
    }
}

/// By a submission and by a change; it is shown and removed as any other, and the others wait.
pub async fn a_message_that_nobody_receives_is_published_when_it_is_written(
    mut store: Box<dyn CallStoreFixture>,
) {
    if !store.has_calls() {
        return;
    }
    let listeners = Listeners::Modules;
    let new = NewCall {
        listeners,
        ..new_call(details(key(1), 50_000))
    };
    store.submit(new).await;
    let stored = store.found(key(1)).await;
    let step = scheduled(&stored)
        .start(start(at(50_000)))
        .expect("it is due");
    let change = CallChange {
        call: step.call,
        expected_version: stored.version,
        outbox: envelopes(step.outgoing, correlation(1), 50_000),
        listeners,
    };
    outcomes(store.calls().change(vec![change]).await);
    store.crash_and_reopen().await;
    let waiting = store.messages().await.into_iter();
    let waiting: Vec<_> = waiting.map(|it| it.message.type_name()).collect();
    assert_eq!(waiting, ["ScheduleTimer", "StartExecution"]);
    assert_eq!(store.outbox().count(10).await.unwrap(), 2);
    let about = store.outbox().about(key(1), 10).await.unwrap().into_iter();
    let about: Vec<_> = about
        .map(|it| (it.envelope.message.type_name(), it.published_at))
        .collect();
    assert_eq!(
        about,
        [
            ("ServiceCallSubmitted", Some(at(1_000))),
            ("ScheduleTimer", None),
            ("ServiceCallScheduled", Some(at(1_000))),
            ("ServiceCallRunning", Some(at(50_000))),
            ("StartExecution", None),
        ]
    );
    let outbox = store.outbox();
    assert_eq!(outbox.purge(at(1_000), 10).await.unwrap(), 0);
    assert_eq!(outbox.purge(at(1_001), 10).await.unwrap(), 2);
    assert_eq!(outbox.purge(at(90_000), 10).await.unwrap(), 1);
    assert_eq!(store.messages().await.len(), 2);
}

/// Those before an instant, up to the limit.
pub async fn a_purge_removes_old_published_messages_only(store: Box<dyn CallStoreFixture>) {
    submit(&store, 1, 1_000).await;
    submit(&store, 2, 1_000).await;
    let rows = store.unpublished().await;
    for (row, now) in [(0, 2_000), (1, 2_999), (2, 2_500), (3, 3_000)] {
        mark(&store, rows[row].position, now).await;
    }
    let outbox = store.outbox();
    assert_eq!(outbox.purge(at(3_000), 0).await.unwrap(), 0);
    assert_eq!(outbox.purge(at(3_000), 2).await.unwrap(), 2);
    let left = outbox.about(key(1), 10).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].published_at, Some(at(2_999)), "the oldest go first");
    assert_eq!(outbox.purge(at(3_000), 10).await.unwrap(), 1);
    assert_eq!(outbox.purge(at(3_000), 10).await.unwrap(), 0);
    assert_eq!(store.unpublished().await, rows[4..]);
}

/// Also those of an attempt.
pub async fn unpublished_messages_survive_a_crash(mut store: Box<dyn CallStoreFixture>) {
    let waiting = store.waiting(key(1), "example.com", 2_000).await;
    store.begun(&waiting.key, 3_000).await;
    let rows = store.unpublished().await;
    let of_submission = if store.has_calls() { 3 } else { 0 };
    assert_eq!(rows.len(), of_submission + 1);
    mark(&store, rows[0].position, 4_000).await;
    store.crash_and_reopen().await;
    assert_eq!(store.unpublished().await, rows[1..]);
}
