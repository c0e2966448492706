//! Every message is answered for by the server, and nothing else is a success.

use std::time::Duration;

use futures_util::StreamExt;
use punctual_adapters_nats::async_nats::jetstream::{self, stream};
use punctual_domain::{Message, MessageEnvelope, TimerData, Timestamp};
use punctual_ports::{EventBusPort, PortErrorKind, PublishOutcome};
use punctual_test_servers::NatsServer;

use crate::fixture::{World, command, event};

#[tokio::test(flavor = "multi_thread")]
async fn subject_and_id_are_those_of_the_contract() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let client = world.client().await;
    let mut everything = client.subscribe(world.subject(">")).await.unwrap();
    // A question and its answer, so that the broker has heard of the subscription.
    let broker = jetstream::new(client.clone());
    broker.get_stream(world.stream("EVENTS")).await.unwrap();
    let event = event(7, Timestamp::MAX);
    let answers = bus.publish(vec![event.clone(), command(9)]).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for (sent, topic) in [(event, "timer.events"), (command(9), "timer.commands")] {
        let seen = everything.next().await.unwrap();
        let call = sent.message.service_call_id();
        let subject = world.subject(&format!("{topic}.tenant-a"));
        assert_eq!(seen.subject.as_str(), subject);
        assert_eq!(seen.payload, sent.to_json().unwrap());
        let id = match &sent.message {
            Message::DueTimeReached(event) => event.firing_id.to_string(),
            _ => sent.id.to_string(),
        };
        let header = seen.headers.unwrap();
        assert_eq!(header.get("Nats-Msg-Id").unwrap().as_str(), id);
        let of_call = header.get("Punctual-Service-Call-Id").unwrap();
        assert_eq!(of_call.as_str(), call.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_published_twice_is_stored_once_and_both_times_a_success() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let once = || vec![event(1, Timestamp::MAX)];
    let (first, second) = (bus.publish(once()).await, bus.publish(once()).await);
    assert_eq!(
        *first.unwrap()[0].as_ref().unwrap(),
        PublishOutcome::Accepted
    );
    assert_eq!(
        *second.unwrap()[0].as_ref().unwrap(),
        PublishOutcome::Duplicate
    );
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("EVENTS")).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 1);
}

/// The broker would drop the question for a missing result otherwise, for it has the id of the command.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_asked_for_again_is_no_repetition() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let asked = |timestamp: i64| {
        let call = command(1).message.service_call_id();
        let json = format!(
            r#"{{"id":"{call}","type":"StartExecution","tenantId":"tenant-a","timestampMs":{timestamp},
            "payload":{{"tenantId":"tenant-a","serviceCallId":"{call}","timeoutMs":1,
            "requestSpec":{{"method":"GET","url":"http://a/"}}}}}}"#
        );
        MessageEnvelope::from_json(json.as_bytes()).unwrap()
    };
    let mut outcomes = Vec::new();
    for timestamp in [1_000, 31_000, 31_000] {
        let answers = bus.publish(vec![asked(timestamp)]).await.unwrap();
        outcomes.extend(answers.into_iter().map(Result::unwrap));
    }
    let (accepted, duplicate) = (PublishOutcome::Accepted, PublishOutcome::Duplicate);
    assert_eq!(outcomes, [accepted.clone(), accepted, duplicate]);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_at_once_are_each_answered_in_their_place() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let batch = (0..3_000)
        .map(|n| event(n % 1_500, Timestamp::MAX))
        .collect();
    let answers = bus.publish(batch).await.unwrap();
    assert_eq!(answers.len(), 3_000);
    assert!(answers.iter().all(Result::is_ok));
    let again = answers[1_500..].iter().map(|it| it.as_ref().unwrap());
    assert!(again.into_iter().all(|it| *it == PublishOutcome::Duplicate));
}

/// An event of more than 5 000 bytes.
fn long() -> MessageEnvelope {
    let mut long = event(1, Timestamp::MAX);
    if let Message::DueTimeReached(event) = &mut long.message {
        event.data = Some(TimerData::of(&"x".repeat(5_000)).unwrap());
    }
    long
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_sent_nothing_owes_no_answer() {
    let Some(server) = NatsServer::start_with("max_payload: 4000") else {
        return;
    };
    let mut world = World::at(&server.url());
    world.settings.ack_timeout = Duration::from_millis(100);
    let bus = world.bus().await;
    assert!(bus.publish(vec![long()]).await.unwrap()[0].is_err());
    world.pass(world.settings.ack_timeout * 3).await;
    assert_eq!(bus.readiness(), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_broker_finds_too_long_is_its_own_fault() {
    let Some(server) = NatsServer::start_with("max_payload: 4000") else {
        return;
    };
    let world = World::at(&server.url());
    let bus = world.bus().await;
    let answers = bus.publish(vec![long(), event(2, Timestamp::MAX)]).await;
    let answers = answers.unwrap();
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::HandlerFailed, "{error}");
    assert!(
        error.to_string().contains("raise its max_payload"),
        "{error}"
    );
    assert!(answers[1].is_ok(), "the next one is none the worse for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_removed_is_made_anew_and_the_message_not_called_stored() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    bus.publish(vec![event(1, Timestamp::MAX)]).await.unwrap();
    let broker = jetstream::new(world.client().await);
    broker.delete_stream(world.stream("EVENTS")).await.unwrap();
    let error = bus.publish(vec![event(2, Timestamp::MAX)]).await.unwrap();
    let error = error[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable);
    let loss = bus.lost().await;
    assert_eq!(loss.reason, "the stream of events was made anew");
    let answers = bus.publish(vec![event(2, Timestamp::MAX)]).await.unwrap();
    assert!(answers[0].is_ok());
    bus.recovered(&loss).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_another_stream_took_is_not_called_stored() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let broker = jetstream::new(world.client().await);
    broker.delete_stream(world.stream("EVENTS")).await.unwrap();
    let thief = stream::Config {
        name: world.stream("THIEF"),
        subjects: vec![world.subject("timer.events.>")],
        ..stream::Config::default()
    };
    broker.create_stream(thief).await.unwrap();
    let answers = bus.publish(vec![event(1, Timestamp::MAX)]).await.unwrap();
    let error = answers[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("THIEF"), "{error}");
    assert!(error.is_retryable());
    world
        .until("it is refused", || {
            bus.readiness()
                .is_err_and(|why| why.contains("another stream"))
        })
        .await;
}
