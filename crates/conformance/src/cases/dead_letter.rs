//! Dead letters are kept until a person removes them.

use punctual_domain::{DeadLetterOrigin, Topic};
use punctual_ports::{DeadLetter, RecordOutcome, RemoveOutcome};

use RecordOutcome::{AlreadyThere, Recorded};
use RemoveOutcome::{NotFound, Removed};

use crate::TimerStoreFixture;
use crate::instances::{Other, other_or_return};
use crate::store::{Store, a_dead_letter, outcome};

suite! { $ dead_letter_suite, dead_letter =>
    a_dead_letter_comes_back_byte_for_byte,
    a_dead_letter_without_a_tenant_is_kept,
    a_dead_letter_s_origin_comes_back_as_it_was,
    recording_the_same_id_again_changes_nothing,
    dead_letters_are_listed_in_the_order_of_recording,
    a_removed_dead_letter_is_listed_no_more,
    a_removed_dead_letter_s_number_is_not_used_again,
    a_removed_dead_letter_can_be_recorded_again,
    dead_letters_survive_a_crash,
    of_two_instances_one_records_and_one_removes_a_dead_letter,
}

async fn record(store: &dyn TimerStoreFixture, dead_letter: DeadLetter) -> RecordOutcome {
    outcome(store.dead_letters().record(vec![dead_letter]).await)
}

async fn remove(store: &dyn TimerStoreFixture, sequence: u64) -> RemoveOutcome {
    outcome(store.dead_letters().remove(vec![sequence]).await)
}

async fn list(
    store: &dyn TimerStoreFixture,
    after: Option<u64>,
    limit: usize,
) -> Vec<(u64, String)> {
    let list = store.dead_letters().list(after, limit).await;
    let list = list.expect("list answers");
    list.into_iter()
        .map(|stored| (stored.sequence, stored.dead_letter.id))
        .collect()
}

async fn all(store: &dyn TimerStoreFixture) -> Vec<DeadLetter> {
    let list = store.dead_letters().list(None, 10).await;
    let list = list.expect("list answers").into_iter();
    list.map(|stored| stored.dead_letter).collect()
}

/// Also bytes that are not text.
pub async fn a_dead_letter_comes_back_byte_for_byte(store: Box<dyn TimerStoreFixture>) {
    assert_eq!(record(&store, a_dead_letter("a")).await, Recorded);
    assert_eq!(all(&store).await, [a_dead_letter("a")]);
}

/// What cannot be read has no tenant and may be empty.
pub async fn a_dead_letter_without_a_tenant_is_kept(store: Box<dyn TimerStoreFixture>) {
    let anonymous = DeadLetter {
        tenant_id: None,
        payload: Vec::new(),
        ..a_dead_letter("a")
    };
    record(&store, anonymous.clone()).await;
    assert_eq!(all(&store).await, [anonymous]);
}

/// So that it can be sent there again.
pub async fn a_dead_letter_s_origin_comes_back_as_it_was(store: Box<dyn TimerStoreFixture>) {
    let origins = [
        DeadLetterOrigin::Firing,
        DeadLetterOrigin::Outbox(None),
        DeadLetterOrigin::Outbox(Some(Topic::TimerEvents)),
        DeadLetterOrigin::Delivery {
            subject: "timer.commands.a.7".to_owned(),
            stream: "COMMANDS".to_owned(),
            consumer: "timer".to_owned(),
        },
        DeadLetterOrigin::Other("timer.events".to_owned()),
        DeadLetterOrigin::Other(String::new()),
    ];
    for (n, origin) in origins.iter().enumerate() {
        let of_origin = DeadLetter {
            origin: origin.clone(),
            ..a_dead_letter(&n.to_string())
        };
        record(&store, of_origin).await;
    }
    let list = all(&store).await.into_iter();
    let found: Vec<_> = list.map(|dead_letter| dead_letter.origin).collect();
    assert_eq!(found, origins);
}

/// A redelivered message is one dead letter.
pub async fn recording_the_same_id_again_changes_nothing(store: Box<dyn TimerStoreFixture>) {
    record(&store, a_dead_letter("a")).await;
    let other = DeadLetter {
        reason: "another".to_owned(),
        ..a_dead_letter("a")
    };
    assert_eq!(record(&store, other).await, AlreadyThere);
    assert_eq!(all(&store).await, [a_dead_letter("a")]);
}

/// Page by page, by number.
pub async fn dead_letters_are_listed_in_the_order_of_recording(store: Box<dyn TimerStoreFixture>) {
    for id in ["c", "a", "b"] {
        record(&store, a_dead_letter(id)).await;
    }
    let first = list(&store, None, 2).await;
    assert_eq!(
        first.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(),
        ["c", "a"]
    );
    let rest = list(&store, Some(first[1].0), 2).await;
    assert_eq!(
        rest.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(list(&store, Some(rest[0].0), 2).await, []);
    assert_eq!(list(&store, Some(u64::MAX), 2).await, []);
}

/// A person has handled it.
pub async fn a_removed_dead_letter_is_listed_no_more(store: Box<dyn TimerStoreFixture>) {
    record(&store, a_dead_letter("a")).await;
    let sequence = list(&store, None, 10).await[0].0;
    assert_eq!(remove(&store, sequence).await, Removed);
    assert_eq!(remove(&store, sequence).await, NotFound);
    assert_eq!(list(&store, None, 10).await, []);
}

/// A number identifies one dead letter for ever.
pub async fn a_removed_dead_letter_s_number_is_not_used_again(store: Box<dyn TimerStoreFixture>) {
    record(&store, a_dead_letter("a")).await;
    let first = list(&store, None, 10).await[0].0;
    remove(&store, first).await;
    record(&store, a_dead_letter("b")).await;
    assert!(list(&store, None, 10).await[0].0 > first);
}

/// It may fail again after it was sent again.
pub async fn a_removed_dead_letter_can_be_recorded_again(store: Box<dyn TimerStoreFixture>) {
    record(&store, a_dead_letter("a")).await;
    let first = list(&store, None, 10).await[0].0;
    remove(&store, first).await;
    assert_eq!(record(&store, a_dead_letter("a")).await, Recorded);
}

/// Recorded means durable.
pub async fn dead_letters_survive_a_crash(mut store: Box<dyn TimerStoreFixture>) {
    record(&store, a_dead_letter("a")).await;
    let before = list(&store, None, 10).await;
    store.crash_and_reopen().await;
    assert_eq!(list(&store, None, 10).await, before);
}

/// The other is told so, and both list the same.
pub async fn of_two_instances_one_records_and_one_removes_a_dead_letter(
    store: Box<dyn TimerStoreFixture>,
) {
    let other = other_or_return!(second of store);
    assert_eq!(record(&store, a_dead_letter("a")).await, Recorded);
    assert_eq!(record(&other, a_dead_letter("a")).await, AlreadyThere);
    assert_eq!(record(&other, a_dead_letter("b")).await, Recorded);
    let listed = list(&store, None, 10).await;
    assert_eq!(listed, list(&other, None, 10).await);
    assert_eq!(listed.len(), 2);
    assert_eq!(remove(&other, listed[0].0).await, Removed);
    assert_eq!(remove(&store, listed[0].0).await, NotFound);
    assert_eq!(list(&store, None, 10).await, listed[1..]);
}
