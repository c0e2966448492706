//! Streams and consumers are made as the contract says, and what would lose messages is refused.

use std::time::Duration;

use punctual_adapters_nats::async_nats::jetstream::consumer::{AckPolicy, pull};
use punctual_adapters_nats::async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use punctual_adapters_nats::async_nats::jetstream::{self};
use punctual_adapters_nats::{NatsError, NatsEventBus, examine};
use punctual_ports::EventBusPort;

use crate::fixture::{Recorder, World, commands};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_made_as_the_contract_says() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let _subscription = bus.subscribe(commands(Recorder::content())).await.unwrap();
    let broker = jetstream::new(world.client().await);
    for (name, subject, retention, max_age) in [
        (
            "COMMANDS",
            "*.commands",
            RetentionPolicy::WorkQueue,
            Duration::ZERO,
        ),
        (
            "EVENTS",
            "*.events",
            RetentionPolicy::Limits,
            Duration::from_hours(168),
        ),
    ] {
        let stream = broker.get_stream(world.stream(name)).await.unwrap();
        let config = &stream.cached_info().config;
        let subjects = [subject.to_owned(), format!("{subject}.>")];
        assert_eq!(config.subjects, subjects.map(|it| world.subject(&it)));
        assert_eq!((config.retention, config.max_age), (retention, max_age));
        assert_eq!(config.storage, StorageType::File);
    }
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    for (durable, filter) in [
        ("timer_timer-commands", "timer.commands.>"),
        ("timer_timer-commands_bare", "timer.commands"),
    ] {
        let consumer = stream.get_consumer::<pull::Config>(durable).await.unwrap();
        let config = &consumer.cached_info().config;
        assert_eq!(config.filter_subject, world.subject(filter));
        assert_eq!(config.ack_policy, AckPolicy::Explicit);
        assert_eq!(config.max_deliver, -1);
    }
    let examined = examine(&world.client().await, &world.settings.prefix).await;
    assert!(examined.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_would_lose_messages_is_refused_at_the_start_with_what_to_change() {
    let Some(world) = World::shared() else { return };
    let broker = jetstream::new(world.client().await);
    let forgetful = Config {
        name: world.stream("EVENTS"),
        subjects: vec![world.subject("*.events"), world.subject("*.events.>")],
        storage: StorageType::Memory,
        max_messages: 10,
        ..Config::default()
    };
    broker.create_stream(&forgetful).await.unwrap();
    let refused = NatsEventBus::connect(world.settings.clone(), world.parts()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, NatsError::Unsuitable { .. }) && !error.is_retryable());
    for advice in ["file storage", "discard policy to new"] {
        assert!(error.to_string().contains(advice), "{error}");
    }
    let found = examine(&world.client().await, &world.settings.prefix).await;
    assert_eq!(found.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_would_lose_messages_is_refused_with_what_to_do() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    let config = pull::Config {
        durable_name: Some("timer_timer-commands".to_owned()),
        filter_subject: world.subject("timer.commands.>"),
        max_deliver: 3,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
    let refused = bus.subscribe(commands(Recorder::content())).await;
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("gives up on messages"), "{error}");
    assert!(error.contains("remove it"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_consumer_of_our_work_queue_is_named() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    let config = pull::Config {
        durable_name: Some("somebody".to_owned()),
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
    let refused = bus.subscribe(commands(Recorder::content())).await;
    let error = refused.err().unwrap().to_string();
    assert!(
        error.contains("another one takes the same messages"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_another_database_is_refused_and_one_of_nobody_s_is_taken() {
    let Some(mut world) = World::shared() else {
        return;
    };
    // As an earlier version made it.
    let bus = world.bus().await;
    let subscription = bus.subscribe(commands(Recorder::content())).await.unwrap();
    subscription.stop().await;
    drop((subscription, bus));
    let of = |world: &mut World, owner: &str| {
        let owners = [("timer".to_owned(), owner.to_owned())];
        world.settings.owners = owners.into();
    };
    of(&mut world, "one");
    for _ in 0..2 {
        let bus = world.bus().await;
        let subscription = bus.subscribe(commands(Recorder::content())).await.unwrap();
        subscription.stop().await;
    }
    of(&mut world, "another");
    let bus = world.bus().await;
    let refused = bus.subscribe(commands(Recorder::content())).await;
    let error = refused.err().unwrap().to_string();
    for words in [
        "consumer timer_timer-commands belongs to the database one",
        "the one here is another",
        "another prefix",
        "remove the consumer",
    ] {
        assert!(error.contains(words), "{error}");
    }
    // Events are for everybody, and so is a consumer without an owner.
    let subscribed = bus.subscribe(crate::fixture::events(Recorder::content()));
    subscribed.await.unwrap().stop().await;
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    for durable in ["timer_timer-commands", "timer_timer-commands_bare"] {
        let consumer = stream.get_consumer::<pull::Config>(durable).await.unwrap();
        let config = &consumer.cached_info().config;
        let description = "Its messages go into the database one";
        assert_eq!(config.description.as_deref(), Some(description));
        assert_eq!(config.max_ack_pending, 20_000);
    }
}
