//! Streams of the previous version go on as they are: what is in them is handled, in its order, and what
//! other programs write as before.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use punctual_adapters_nats::async_nats::HeaderMap;
use punctual_adapters_nats::async_nats::jetstream::{self, Context, consumer::pull, stream};
use punctual_domain::{EnvelopeId, Message, MessageEnvelope, Topic};
use punctual_ports::{ConsumerName, EventBusPort, Subscribe, Subscription};

use crate::fixture::{Recorder, World, command, commands, event};

/// Subject, deduplication id and message, as the previous version wrote them.
const RECORDED: &str = include_str!("../../../domain/tests/it/previous_version.tsv");

const NAMES: [&str; 2] = ["COMMANDS", "EVENTS"];

/// Makes the streams as the previous version made them.
async fn make_streams(world: &World, broker: &Context) {
    for name in NAMES {
        let kind = name.to_lowercase();
        let subjects = [format!("*.{kind}"), format!("*.{kind}.>")];
        let config = stream::Config {
            name: world.stream(name),
            subjects: subjects.map(|it| world.subject(&it)).to_vec(),
            retention: match name {
                "COMMANDS" => stream::RetentionPolicy::WorkQueue,
                _ => stream::RetentionPolicy::Limits,
            },
            discard: stream::DiscardPolicy::New,
            ..stream::Config::default()
        };
        broker.create_stream(config).await.unwrap();
    }
}

async fn publish(world: &World, broker: &Context, subject: &str, id: &str, message: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", id);
    let (subject, message) = (world.subject(subject), Bytes::from(message.to_vec()));
    let sent = broker.publish_with_headers(subject, headers, message).await;
    sent.unwrap().await.unwrap();
}

/// A consumer as the previous version made it, with its limits left to the server.
async fn make_consumer(world: &World, broker: &Context, stream: &str, topic: Topic) {
    let stream = broker.get_stream(world.stream(stream)).await.unwrap();
    let config = pull::Config {
        durable_name: Some(format!("module_{}", topic.as_str().replace('.', "-"))),
        filter_subject: world.subject(&format!("{topic}.>")),
        ack_wait: world.settings.ack_wait,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
}

async fn subscribe_all(
    bus: &impl EventBusPort,
    handler: &Arc<Recorder>,
) -> Vec<Box<dyn Subscription>> {
    let mut subscriptions = Vec::new();
    for topic in Topic::ALL {
        let request = Subscribe {
            topic,
            consumer: ConsumerName::new("module"),
            max_batch: 100,
            handler: handler.clone(),
        };
        subscriptions.push(bus.subscribe(request).await.unwrap());
    }
    subscriptions
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_previous_version_left_in_the_streams_is_handled_by_its_consumers_in_order() {
    let Some(world) = World::shared() else { return };
    let broker = jetstream::new(world.client().await);
    make_streams(&world, &broker).await;
    for topic in Topic::ALL {
        let stream = NAMES[usize::from(!topic.is_of_commands())];
        make_consumer(&world, &broker, stream, topic).await;
    }
    let mut expected = Vec::new();
    let mut firings = BTreeSet::new();
    for line in RECORDED.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if !firings.insert(fields[1]) {
            // The broker drops the second record of one firing.
            continue;
        }
        publish(&world, &broker, fields[0], fields[1], fields[2].as_bytes()).await;
        expected.push(MessageEnvelope::from_json(fields[2].as_bytes()).unwrap());
    }
    let bus = world.bus().await;
    // The next command about the same timer, as this version writes it.
    let mut next = expected
        .iter()
        .rfind(|it| matches!(it.message, Message::ScheduleTimer(_)))
        .unwrap()
        .clone();
    next.id = EnvelopeId::MAX;
    bus.publish(vec![next.clone()]).await.unwrap()[0]
        .as_ref()
        .unwrap();
    expected.push(next);
    let handler = Recorder::content();
    let _subscriptions = subscribe_all(&bus, &handler).await;
    let is_complete = || handler.seen().len() >= expected.len();
    world.until("all are handled", is_complete).await;
    for topic in Topic::ALL {
        let of_topic = |all: &[MessageEnvelope]| -> Vec<MessageEnvelope> {
            let found = all.iter().filter(|it| it.message.topic() == topic);
            found.cloned().collect()
        };
        assert_eq!(of_topic(&handler.seen()), of_topic(&expected), "{topic}");
    }
    assert!(world.dead_letters().await.is_empty());
    let mut commands = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    while commands.info().await.unwrap().state.messages > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_subject_for_each_tenant_is_all_that_a_stream_keeps() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let events = (0..300).map(|n| event(n, punctual_domain::Timestamp::MAX));
    let answers = bus.publish(events.collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("EVENTS")).await.unwrap();
    let state = &stream.cached_info().state;
    assert_eq!((state.messages, state.subjects_count), (300, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_taken_under_every_name_of_their_topic() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::content();
    let request = Subscribe {
        topic: Topic::OrchestrationCommands,
        ..commands(handler.clone())
    };
    let _subscription = bus.subscribe(request).await.unwrap();
    let broker = jetstream::new(world.client().await);
    let call = command(7).message.service_call_id();
    let subjects = [
        "api.commands".to_owned(),
        "api.commands.tenant-a".to_owned(),
        format!("api.commands.tenant-a.{call}"),
        "orchestration.commands".to_owned(),
        "orchestration.commands.tenant-a".to_owned(),
        // Of another tenant.
        "api.commands.tenant-b".to_owned(),
    ];
    for (n, subject) in subjects.iter().enumerate() {
        let id = command(100 + n as u128).id;
        let json = format!(
            r#"{{"id":"{id}","type":"DeleteServiceCall","tenantId":"tenant-a","timestampMs":1,
            "payload":{{"tenantId":"tenant-a","serviceCallId":"{call}"}}}}"#
        );
        publish(&world, &broker, subject, &id.to_string(), json.as_bytes()).await;
    }
    let is_complete = || handler.seen().len() == subjects.len() - 1;
    world.until("all are handled", is_complete).await;
    while world.dead_letters().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let dead_letters = world.dead_letters().await;
    let reason = "names the tenant tenant-b, but the message is of tenant-a";
    assert!(dead_letters[0].reason.contains(reason));
    assert_eq!(dead_letters.len(), 1);
}
