//! How what was committed gets out: in order, under the same id, and past whatever is stuck.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::faults::Fault;
use punctual_domain::service_call::{CallStatus, ErrorKind, Headers};
use punctual_domain::{
    DeadLetterOrigin, EnvelopeId, Message, MessageEnvelope, TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, ClockPort, DeadLetterPort, MessageHandler, OutboxPort, PortErrorKind,
};

use super::wire::Fate;
use super::world::{CallWorld, call};
use crate::ledger::{poison, retry};
use crate::world::{key, ms, secs};

type Script = Box<dyn Fn(&MessageEnvelope, usize) -> Answer + Send + Sync>;

/// A receiver of a topic that answers as it is told.
struct Receiver {
    clock: punctual_adapters_memory::FakeClock,
    seen: Mutex<Vec<(MessageEnvelope, Timestamp)>>,
    script: Script,
}

impl Receiver {
    /// One more consumer of the events about calls.
    async fn of_events(
        world: &mut CallWorld,
        script: impl Fn(&MessageEnvelope, usize) -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        let receiver = Arc::new(Self {
            clock: world.outside.clock.clone(),
            seen: Mutex::default(),
            script: Box::new(script),
        });
        let topic = Topic::OrchestrationEvents;
        let outside = world.outside.clone();
        let handler: Arc<dyn MessageHandler> = receiver.clone();
        world
            .process
            .subscribe(&outside, topic, "receiver", handler)
            .await;
        receiver
    }

    fn of_call(&self, key: &TimerKey) -> Vec<(&'static str, EnvelopeId, Timestamp)> {
        let seen = self.seen.lock().unwrap();
        let of_key = seen
            .iter()
            .filter(|(it, _)| it.message.service_call_id() == key.service_call_id);
        of_key
            .map(|(it, at)| (it.message.type_name(), it.id, *at))
            .collect()
    }
}

#[async_trait]
impl MessageHandler for Receiver {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = Vec::new();
        for envelope in batch {
            let mut seen = self.seen.lock().unwrap();
            let earlier = seen.iter().filter(|(it, _)| it.id == envelope.id).count();
            seen.push((envelope.clone(), self.clock.now()));
            answers.push((self.script)(&envelope, earlier));
        }
        answers
    }
}

async fn waiting(world: &CallWorld) -> usize {
    world.outside.store.count(1_000).await.unwrap()
}

#[tokio::test]
async fn messages_go_out_in_the_order_of_their_commits_each_once() {
    let mut world = CallWorld::new().await;
    let receiver = Receiver::of_events(&mut world, |_, _| Answer::Done).await;
    for n in 0..700 {
        world.submit(call(&n.to_string(), world.in_(secs(1)))).await;
    }
    world.advance(secs(5)).await;
    let seen = receiver.seen.lock().unwrap().clone();
    let submitted: Vec<_> = seen
        .iter()
        .filter(|(it, _)| it.message.type_name() == "ServiceCallSubmitted")
        .map(|(it, _)| it.message.service_call_id())
        .collect();
    let expected: Vec<_> = (0..700)
        .map(|n: u32| key(&n.to_string()).service_call_id)
        .collect();
    assert_eq!(submitted, expected);
    let mut ids: Vec<EnvelopeId> = seen.iter().map(|(it, _)| it.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), seen.len(), "none twice");
    assert_eq!(seen.len(), 2_800);
    for n in 0..700_u32 {
        let told = receiver.of_call(&key(&n.to_string()));
        let types: Vec<&str> = told.iter().map(|(type_name, ..)| *type_name).collect();
        assert_eq!(
            types,
            [
                "ServiceCallSubmitted",
                "ServiceCallScheduled",
                "ServiceCallRunning",
                "ServiceCallSucceeded"
            ]
        );
    }
    assert_eq!(waiting(&world).await, 0);
}

#[tokio::test]
async fn one_stuck_message_delays_no_other_and_is_retried_with_backoff() {
    let mut world = CallWorld::with_rare_polls().await;
    let stuck = key("stuck").service_call_id;
    let receiver = Receiver::of_events(&mut world, move |envelope, earlier| {
        let is_stuck = envelope.message.service_call_id() == stuck
            && envelope.message.type_name() == "ServiceCallSubmitted";
        if is_stuck && earlier < 6 {
            retry()
        } else {
            Answer::Done
        }
    })
    .await;
    let start = world.now();
    world.submit(call("stuck", world.in_(secs(100)))).await;
    world.submit(call("b", start)).await;
    world.settle().await;
    let types = |name: &str| -> Vec<&str> {
        let told = receiver.of_call(&key(name));
        told.iter().map(|(type_name, ..)| *type_name).collect()
    };
    assert_eq!(types("b").len(), 4, "others are not held up");
    assert_eq!(
        types("stuck"),
        ["ServiceCallSubmitted", "ServiceCallScheduled"]
    );
    world.advance(secs(60)).await;
    let tries: Vec<_> = receiver
        .of_call(&key("stuck"))
        .into_iter()
        .filter(|(type_name, ..)| *type_name == "ServiceCallSubmitted")
        .collect();
    assert!(tries.iter().all(|(_, id, _)| *id == tries[0].1));
    let waits: Vec<Duration> = tries
        .windows(2)
        .map(|pair| pair[1].2.since(pair[0].2))
        .collect();
    assert_eq!(waits.len(), 6, "{waits:?}");
    for (wait, whole) in waits.iter().zip([200, 400, 800, 1_600, 3_200, 6_400]) {
        assert!(
            *wait <= ms(whole) && *wait >= ms(whole) * 3 / 4,
            "{waits:?}"
        );
    }
    assert_eq!(waiting(&world).await, 0);
}

#[tokio::test]
async fn a_poison_message_becomes_a_dead_letter_also_after_it_was_parked() {
    for first_answer in [poison(), retry()] {
        for fails in [None, Some("dead_letter_messages")] {
            let mut world = CallWorld::new().await;
            let bad = key("bad").service_call_id;
            let first_answer = first_answer.clone();
            Receiver::of_events(&mut world, move |envelope, earlier| {
                let is_bad = envelope.message.service_call_id() == bad
                    && envelope.message.type_name() == "ServiceCallScheduled";
                match (is_bad, earlier) {
                    (false, _) => Answer::Done,
                    (true, 0) => first_answer.clone(),
                    (true, _) => poison(),
                }
            })
            .await;
            if let Some(operation) = fails {
                let fault = Fault::FailBefore(PortErrorKind::Busy);
                world.process.faults.at_call_of(operation, 1, fault);
            }
            world.submit(call("bad", world.in_(secs(2)))).await;
            world.submit(call("b", world.in_(secs(2)))).await;
            world.advance(secs(30)).await;
            let dead_letters = world.outside.store.timers().list(None, 10).await.unwrap();
            assert_eq!(dead_letters.len(), 1);
            let dead_letter = &dead_letters[0].dead_letter;
            let topic = Topic::OrchestrationEvents;
            assert_eq!(dead_letter.origin, DeadLetterOrigin::Outbox(Some(topic)));
            assert_eq!(dead_letter.reason, "not ever");
            let kept = MessageEnvelope::from_json(&dead_letter.payload).unwrap();
            assert_eq!(kept.message.type_name(), "ServiceCallScheduled");
            assert_eq!(dead_letter.id, kept.id.to_string());
            assert_eq!(waiting(&world).await, 0);
            for name in ["bad", "b"] {
                let status = world.status(&key(name)).await;
                assert_eq!(status, Some(CallStatus::Succeeded), "the life goes on");
            }
        }
    }
}

#[tokio::test]
async fn a_message_without_a_subscriber_waits_and_the_rest_goes_on() {
    let mut world = CallWorld::new().await;
    world.process.unsubscribe(Topic::OrchestrationEvents);
    world.submit(call("a", world.in_(secs(2)))).await;
    world.advance(secs(10)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(waiting(&world).await, 4);
    let receiver = Receiver::of_events(&mut world, |_, _| Answer::Done).await;
    world.advance(secs(60)).await;
    assert_eq!(receiver.of_call(&key("a")).len(), 4);
    assert_eq!(waiting(&world).await, 0);
}

#[tokio::test]
async fn nothing_is_parked_while_the_bus_is_unavailable_and_all_is_published_in_order_after() {
    let mut world = CallWorld::new().await;
    let receiver = Receiver::of_events(&mut world, |_, _| Answer::Done).await;
    let (clock, back_at) = (
        world.outside.clock.clone(),
        world.in_(Duration::from_mins(10)),
    );
    world.process.faults.decide(move |call| {
        let away = call.operation == "publish" && clock.now() < back_at;
        away.then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    for name in ["a", "b", "c"] {
        world.submit(call(name, world.in_(secs(1)))).await;
    }
    let publishes = world.count_calls("publish");
    world.advance_to(back_at).await;
    let tries = publishes.load(Ordering::SeqCst);
    assert!(
        (100..300).contains(&tries),
        "at most every 5 s, no busy loop: {tries}"
    );
    world.advance(secs(6)).await;
    let seen = receiver.seen.lock().unwrap().clone();
    let order: Vec<_> = seen
        .iter()
        .take(6)
        .map(|(it, _)| it.message.service_call_id())
        .collect();
    let expected = ["a", "a", "b", "b", "c", "c"].map(|name| key(name).service_call_id);
    assert_eq!(order, expected);
    assert_eq!(seen.len(), 12, "each once");
}

#[tokio::test]
async fn when_a_mark_fails_nothing_is_published_again() {
    for kind in [PortErrorKind::Busy, PortErrorKind::StorageFull] {
        for fault in [Fault::FailBefore(kind), Fault::FailAfter(kind)] {
            let mut world = CallWorld::new().await;
            let receiver = Receiver::of_events(&mut world, |_, _| Answer::Done).await;
            let (clock, until) = (world.outside.clock.clone(), world.in_(secs(60)));
            world.process.faults.decide(move |call| {
                let fails = call.operation == "mark_published" && clock.now() < until;
                fails.then_some(fault)
            });
            for name in ["a", "b", "c"] {
                world.submit(call(name, world.in_(secs(2)))).await;
            }
            world.advance(secs(50)).await;
            let early = receiver.seen.lock().unwrap().len();
            world.advance(secs(60)).await;
            assert_eq!(
                receiver.seen.lock().unwrap().len(),
                12,
                "each once: {fault:?}"
            );
            assert_eq!(early, 12, "and nothing waited for the marks: {fault:?}");
            assert_eq!(waiting(&world).await, 0);
        }
    }
}

#[tokio::test]
async fn a_crash_between_publish_and_mark_publishes_again_under_the_same_id() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        let mut world = CallWorld::new().await;
        world.process.faults.at_call_of("mark_published", 1, fault);
        world.submit(call("a", world.in_(secs(2)))).await;
        let (faults, clock) = (world.process.faults.clone(), world.outside.clock.clone());
        tokio::select! {
            biased;
            () = faults.crashed() => {}
            () = clock.advance(secs(10)) => panic!("the process ends before that"),
        }
        world.restart().await;
        world.advance(secs(10)).await;
        let submitted = world.outside.wire.of_type("ServiceCallSubmitted");
        let times = match fault {
            Fault::CrashBefore => 2,
            _ => 1,
        };
        assert_eq!(submitted.len(), times, "{fault:?}");
        assert!(
            submitted
                .iter()
                .all(|it| it.envelope.id == submitted[0].envelope.id)
        );
        assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
        assert_eq!(world.outside.http.requests().len(), 1);
    }
}

#[tokio::test]
async fn nothing_is_published_that_was_not_committed() {
    let world = CallWorld::new().await;
    let fault = Fault::FailBefore(PortErrorKind::StorageFull);
    world.process.faults.at_call_of("submit", 1, fault);
    let refused = world.process.submit.submit(call("a", world.now()), None);
    assert!(refused.await.is_err());
    let fault = Fault::FailBefore(PortErrorKind::StorageFull);
    world.process.faults.at_call_of("change", 1, fault);
    world.submit(call("b", world.now())).await;
    world.advance(secs(30)).await;
    for passed in world.outside.wire.passed() {
        let id = passed.envelope.message.service_call_id();
        assert_eq!(id, key("b").service_call_id);
    }
    assert_eq!(world.outside.wire.count("ServiceCallRunning"), 1);
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_call_whose_command_can_never_be_delivered_fails_and_leaves_no_secret_behind() {
    let world = CallWorld::new().await;
    world
        .outside
        .wire
        .decides(|envelope| match envelope.message.type_name() {
            "StartExecution" => Fate::Refused,
            _ => Fate::Delivered(1),
        });
    let mut secret = call("a", world.in_(secs(2)));
    let token = ("X-Token".to_owned(), "canary".to_owned());
    secret.request.headers = Headers::new(vec![token]).unwrap();
    world.submit(secret).await;
    world.advance(secs(3)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Failed));
    let told = world.outside.wire.of_type("ServiceCallFailed");
    assert_eq!(told.len(), 1);
    let Message::ServiceCallFailed(event) = &told[0].envelope.message else {
        panic!("it is of that type");
    };
    assert_eq!(event.error_meta.kind, ErrorKind::InvalidRequest);
    assert_eq!(waiting(&world).await, 0);
    assert_eq!(
        world.outside.wire.count("StartExecution"),
        1,
        "it is not asked for again"
    );
    let dead_letters = world.outside.store.timers().list(None, 10).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
    let kept = String::from_utf8(dead_letters[0].dead_letter.payload.clone()).unwrap();
    assert!(
        kept.contains("StartExecution") && !kept.contains("canary"),
        "{kept}"
    );
}

#[tokio::test]
async fn where_only_modules_listen_what_is_told_is_published_as_it_is_written() {
    let world = CallWorld::of_modules_alone().await;
    world.submit(call("now", world.now())).await;
    world.submit(call("soon", world.in_(secs(1)))).await;
    world.submit(call("gone", world.in_(secs(60)))).await;
    world
        .process
        .submit
        .delete(key("gone"), None)
        .await
        .unwrap();
    let submitted_at = world.now();
    world.advance(Duration::from_mins(10)).await;
    for (name, messages) in [("now", 7), ("soon", 8), ("gone", 4)] {
        let about = world.outside.store.about(key(name), 100).await.unwrap();
        assert_eq!(about.len(), messages, "{name}");
        assert_eq!(about[0].published_at, Some(submitted_at));
        assert!(about.iter().all(|it| it.published_at.is_some()), "{name}");
    }
    assert_eq!(world.status(&key("now")).await, Some(CallStatus::Succeeded));
    assert_eq!(
        world.status(&key("soon")).await,
        Some(CallStatus::Succeeded)
    );
    assert_eq!(waiting(&world).await, 0);
    let mut passed: Vec<&str> = Vec::new();
    for it in world.outside.wire.passed() {
        passed.push(it.envelope.message.type_name());
    }
    passed.sort_unstable();
    passed.dedup();
    assert_eq!(
        passed,
        [
            "DueTimeReached",
            "ExecutionStarted",
            "ExecutionSucceeded",
            "ScheduleTimer",
            "ServiceCallDeleted",
            "StartExecution",
        ]
    );
}
