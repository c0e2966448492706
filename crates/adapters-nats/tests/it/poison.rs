//! What can never be handled becomes a dead letter, byte for byte, and holds up nobody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_adapters_memory::faults::{Fault, Faults, Faulty};
use punctual_adapters_nats::NatsEventBus;
use punctual_adapters_nats::async_nats::jetstream;
use punctual_domain::DeadLetterOrigin;
use punctual_ports::{Answer, EventBusPort, PortErrorKind};

use crate::fixture::{Recorder, World, command, commands, event};

const CALL: &str = "00000000-0000-0000-0000-000000000007";

fn json(of_envelope: &str, of_payload: &str, r#type: &str) -> Vec<u8> {
    format!(
        "{{\"id\":\"{CALL}\",\"type\":\"{type}\",\"tenantId\":\"{of_envelope}\",\"timestampMs\":1,\
         \"payload\":{{\"tenantId\":\"{of_payload}\",\"serviceCallId\":\"{CALL}\",\
         \"dueAt\":\"2026-12-24T18:00:00Z\"}}}}"
    )
    .into_bytes()
}

/// Where it is published, what is published, and a part of the reason that is expected.
fn corpus() -> Vec<(String, Vec<u8>, &'static str)> {
    let bare = || "timer.commands".to_owned();
    let good = || json("a", "a", "ScheduleTimer");
    let event = event(1, punctual_domain::Timestamp::MAX).to_json().unwrap();
    let mut long = good();
    long.resize(2 << 20, b' ');
    vec![
        (bare(), b"{ not json".to_vec(), "not an envelope"),
        (bare(), vec![0xff, 0xfe, 0x00], "not an envelope"),
        (bare(), vec![0], "not an envelope"),
        (bare(), Vec::new(), "message is empty"),
        (bare(), json("a", "a", "Launch"), "\"Launch\" is unknown"),
        (
            bare(),
            json("a.b", "a.b", "ScheduleTimer"),
            "tenant id has '.'",
        ),
        (bare(), json(">", ">", "ScheduleTimer"), "tenant id has '>'"),
        (
            bare(),
            json("a", "b", "ScheduleTimer"),
            "its payload names b",
        ),
        (
            format!("timer.commands.b.{CALL}"),
            good(),
            "names the tenant b",
        ),
        (
            "timer.commands.a.00000000-0000-0000-0000-000000000008".to_owned(),
            good(),
            "but the message is of 00000000-0000-0000-0000-000000000007",
        ),
        (format!("timer.commands.a.{CALL}.x"), good(), "is not "),
        ("timer.commands.b".to_owned(), good(), "names the tenant b"),
        (bare(), event, "belongs to timer.events"),
        (bare(), long, "message has 2097152 bytes"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_poison_is_kept_with_its_reason_and_the_next_message_is_handled() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::content();
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    let broker = jetstream::new(world.client().await);
    for (n, (subject, payload, reason)) in corpus().into_iter().enumerate() {
        let subject = world.subject(&subject);
        let published = broker
            .publish(subject.clone(), Bytes::from(payload.clone()))
            .await;
        published.unwrap().await.unwrap();
        let next = command(1_000 + n as u128);
        bus.publish(vec![next.clone()]).await.unwrap()[0]
            .as_ref()
            .unwrap();
        world.until(reason, || handler.count(next.id) == 1).await;
        // The good one may overtake: they come through different consumers.
        while world.dead_letters().await.len() <= n {
            tokio::task::yield_now().await;
        }
        let dead_letter = world.dead_letters().await.remove(n);
        assert!(
            dead_letter.reason.contains(reason),
            "{}",
            dead_letter.reason
        );
        assert_eq!(dead_letter.payload, payload);
        let is_bare = subject == world.subject("timer.commands");
        let consumer = "timer_timer-commands".to_owned() + if is_bare { "_bare" } else { "" };
        let stream = world.stream("COMMANDS");
        let origin = DeadLetterOrigin::Delivery {
            subject,
            stream,
            consumer,
        };
        assert_eq!(dead_letter.origin, origin);
    }
    let mut stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    while stream.info().await.unwrap().state.messages > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.dead_letters().await.len(), corpus().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_calls_poison_is_kept_as_it_came_with_its_tenant() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::answering(|_, _| Answer::Poison {
        reason: "never".to_owned(),
    });
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    while world.dead_letters().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let dead_letter = world.dead_letters().await.remove(0);
    assert_eq!(dead_letter.payload, command(1).to_json().unwrap());
    assert_eq!(dead_letter.reason, "never");
    assert_eq!(dead_letter.tenant_id.unwrap().as_str(), "tenant-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_twenty_times_by_itself_is_given_up_on() {
    let Some(mut world) = World::shared() else {
        return;
    };
    world.settings.retry_delay = Duration::from_millis(1);
    let bus = world.bus().await;
    let handler = Recorder::answering(|_, earlier| Answer::RetryLater {
        reason: format!("no {earlier}"),
    });
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    while world.dead_letters().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(handler.count(command(1).id), 20);
    assert_eq!(
        world.dead_letters().await[0].reason,
        "it failed 20 times: no 19"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_whose_dead_letter_cannot_be_recorded_yet_is_kept() {
    let Some(world) = World::shared() else { return };
    let mut parts = world.parts();
    let faults = Faults::new(Arc::clone(&parts.clock));
    for n in 1..=3 {
        faults.at_call_of("record", n, Fault::FailBefore(PortErrorKind::StorageFull));
    }
    parts.dead_letters = Arc::new(Faulty::new(Arc::new(world.store.clone()), &faults));
    let bus = NatsEventBus::connect(world.settings.clone(), parts).await;
    let bus = bus.unwrap();
    let handler = Recorder::answering(|_, _| Answer::Poison {
        reason: "never".to_owned(),
    });
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    world
        .until("the handler has judged", || {
            handler.count(command(1).id) == 1
        })
        .await;
    let begun = world.monotonic();
    while world.dead_letters().await.is_empty() {
        let waited = world.monotonic().saturating_sub(begun);
        assert!(waited < Duration::from_secs(30), "its dead letter is lost");
        tokio::task::yield_now().await;
    }
    assert_eq!(world.dead_letters().await[0].reason, "never");
    assert_eq!(handler.count(command(1).id), 1, "it is not asked again");
}
