//! The same again: submissions, messages, and a thousand at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_domain::MessageEnvelope;
use punctual_domain::service_call::{CallStatus, IdempotencyKey, Submission};
use punctual_ports::{ConflictField, SubmitOutcome};
use punctual_workflows::calls::{CallSettings, DeleteCallOutcome};

use super::http::Behaviour;
use super::wire::Fate;
use super::world::{CallWorld, call, call_to};
use crate::simulation::random::Random;
use crate::world::{key, ms, secs};

fn with_key(mut submission: Submission, key: &str) -> Submission {
    submission.idempotency_key = Some(IdempotencyKey::new(key).unwrap());
    submission.service_call_id = None;
    submission
}

/// How a call got where it is: it waits, is gone, or has finished.
async fn bring_about(world: &CallWorld, submission: &Submission, state: &str) {
    let first = world.submit(submission.clone()).await;
    let mut named = key("x");
    named.service_call_id = first.service_call_id;
    match state {
        "deleted" => {
            let deleted = world.process.submit.delete(named, None).await.unwrap();
            assert_eq!(deleted, DeleteCallOutcome::Deleted);
        }
        "finished" => {
            world.advance(secs(20)).await;
            assert_eq!(world.status(&named).await, Some(CallStatus::Succeeded));
        }
        _ => {}
    }
    let submitted = world.outside.wire.count("ServiceCallSubmitted");
    match world.try_submit(submission.clone()).await {
        SubmitOutcome::Repeated(receipt) => assert_eq!(receipt, first, "{state}"),
        other => panic!("{state}: the same again is {other:?}"),
    }
    let mut other = submission.clone();
    other.due_at = world.in_(secs(99));
    let field = match submission.idempotency_key {
        Some(_) => ConflictField::Key,
        None => ConflictField::Id,
    };
    let by = first.service_call_id;
    assert_eq!(
        world.try_submit(other).await,
        SubmitOutcome::Conflict { field, by },
        "{state}"
    );
    world.advance(Duration::from_hours(1)).await;
    let more = world.outside.wire.count("ServiceCallSubmitted");
    assert!(more <= submitted.max(1), "{state}: nothing new was told");
}

#[tokio::test]
async fn the_same_submission_again_is_one_call_also_when_that_is_deleted_or_finished() {
    for state in ["scheduled", "deleted", "finished"] {
        for keyed in [false, true] {
            let world = CallWorld::new().await;
            let plain = call("a", world.in_(secs(10)));
            let submission = if keyed { with_key(plain, "k") } else { plain };
            bring_about(&world, &submission, state).await;
            let made = world.outside.http.requests().len();
            assert_eq!(made, usize::from(state != "deleted"), "{state}");
        }
    }
}

#[tokio::test]
async fn keys_of_two_tenants_are_two_keys() {
    let world = CallWorld::new().await;
    for tenant in ["tenant-a", "tenant-b"] {
        let submission = call_to(tenant, "target.example", "a", world.now());
        world.submit(with_key(submission, "k")).await;
    }
    world.settle().await;
    assert_eq!(world.outside.http.requests().len(), 2);
}

#[tokio::test]
async fn what_is_older_than_the_time_to_keep_is_forgotten_and_not_before() {
    let settings = CallSettings {
        keep: Duration::from_hours(24),
        ..CallSettings::default()
    };
    let world = CallWorld::with(settings).await;
    world.submit(call("done", world.now())).await;
    world
        .submit(call("late", world.in_(Duration::from_hours(48))))
        .await;
    world
        .submit(with_key(call("gone", world.in_(secs(60))), "k"))
        .await;
    let gone = world.outside.wire.count("ServiceCallDeleted");
    assert_eq!(gone, 0);
    world.advance(Duration::from_hours(24)).await;
    assert_eq!(
        world.status(&key("done")).await,
        Some(CallStatus::Succeeded),
        "kept for the whole time"
    );
    world.advance(Duration::from_mins(11)).await;
    assert_eq!(world.status(&key("done")).await, None);
    assert_eq!(world.attempts(&key("done")).await, []);
    let repeated = world.try_submit(call("done", world.now())).await;
    assert!(
        matches!(repeated, SubmitOutcome::Conflict { .. }),
        "its id is remembered as long again: {repeated:?}"
    );
    world.advance(Duration::from_hours(25)).await;
    world.submit(call("done", world.now())).await;
    world.advance(secs(1)).await;
    assert_eq!(world.outside.http.count(&key("done")), 2, "another call");
    assert_eq!(
        world.outside.http.count(&key("late")),
        1,
        "what waits is never forgotten"
    );
}

#[tokio::test]
async fn every_message_one_to_five_times_changes_nothing() {
    for seed in 0..40 {
        let world = CallWorld::new().await;
        let random = std::sync::Mutex::new(Random::new(seed));
        world.outside.wire.decides(move |_| {
            let times = random.lock().unwrap().below(5) + 1;
            Fate::Delivered(usize::try_from(times).unwrap())
        });
        world.outside.http.decides(|attempt| {
            if attempt.key == key("b") {
                Behaviour::Answer(500, ms(3))
            } else {
                Behaviour::Answer(200, ms(3))
            }
        });
        world.submit(call("a", world.in_(secs(2)))).await;
        world.submit(call("b", world.now())).await;
        world.submit(call("c", world.in_(secs(3)))).await;
        world.settle().await;
        world.process.submit.delete(key("c"), None).await.unwrap();
        world.advance(Duration::from_mins(10)).await;
        check_the_three(&world, seed).await;
        replay_in_any_order(&world, seed).await;
        check_the_three(&world, seed).await;
    }
}

async fn check_the_three(world: &CallWorld, seed: u64) {
    let status = |name: &str| {
        let key = key(name);
        async move { world.status(&key).await }
    };
    assert_eq!(status("a").await, Some(CallStatus::Succeeded), "{seed}");
    assert_eq!(status("b").await, Some(CallStatus::Failed), "{seed}");
    assert_eq!(status("c").await, None, "{seed}");
    assert_eq!(world.outside.http.requests().len(), 2, "{seed}");
    for (type_name, count) in [
        ("ServiceCallSubmitted", 3),
        ("ServiceCallRunning", 2),
        ("StartExecution", 2),
        ("ServiceCallSucceeded", 1),
        ("ServiceCallFailed", 1),
        ("ServiceCallDeleted", 1),
    ] {
        assert_eq!(
            world.outside.wire.count(type_name),
            count,
            "{seed} {type_name}"
        );
    }
}

/// Everything that was ever published, each once to three times and shuffled.
async fn replay_in_any_order(world: &CallWorld, seed: u64) {
    world.outside.wire.is_good();
    let mut random = Random::new(seed + 1_000);
    let mut all: Vec<(u64, MessageEnvelope)> = Vec::new();
    for passed in world.outside.wire.passed() {
        for _ in 0..=random.below(3) {
            all.push((random.next(), passed.envelope.clone()));
        }
    }
    all.sort_by_key(|(place, _)| *place);
    for (_, envelope) in all {
        let answers = world.outside.wire.deliver(vec![envelope]).await.unwrap();
        assert!(answers[0].is_ok(), "{seed} {answers:?}");
    }
    world.advance(Duration::from_mins(10)).await;
}

#[tokio::test]
async fn a_thousand_due_times_in_one_batch_cost_a_handful_of_store_calls() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Answer(200, secs(1)));
    let due_at = world.in_(secs(10));
    // The events are kept from them until all are there.
    world
        .outside
        .wire
        .decides(|envelope| match envelope.message.type_name() {
            "DueTimeReached" => Fate::Delayed,
            _ => Fate::Delivered(1),
        });
    for n in 0..1_000 {
        world.submit(call(&n.to_string(), due_at)).await;
    }
    world.advance_to(due_at).await;
    let held = world.outside.wire.take_delayed();
    assert_eq!(held.len(), 1_000);
    let counts = ["find_calls", "change"].map(|name| world.count_calls(name));
    let answers = world.outside.wire.deliver(held.clone()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    let counted: Vec<u64> = counts.iter().map(|it| it.load(Ordering::SeqCst)).collect();
    assert_eq!(counted, [1, 1], "one read and one write");
    // Again, when all have started: nothing is written.
    world.outside.wire.deliver(held).await.unwrap();
    let counted: Vec<u64> = counts.iter().map(|it| it.load(Ordering::SeqCst)).collect();
    assert_eq!(counted, [2, 1]);
    // What follows is published and accepted in few calls, too.
    let counts = ["accept", "unpublished", "mark_published"].map(|name| world.count_calls(name));
    world.settle().await;
    let counted: Vec<u64> = counts.iter().map(|it| it.load(Ordering::SeqCst)).collect();
    assert!(counted.iter().all(|calls| *calls <= 16), "{counted:?}");
    world.advance(Duration::from_mins(10)).await;
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 1_000);
    assert_eq!(world.outside.http.requests().len(), 1_000);
}
