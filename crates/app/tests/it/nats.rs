//! The library on a real broker: commands in, events out.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual::ports::{MessageEnvelope, MessageMetadata, ScheduleTimer};
use punctual::rusqlite::Connection;
use punctual::testing::FakeClock;
use punctual::{
    Builder, DueTimeReached, ErrorKind, NatsSettings, Punctual, Running, TenantId, Timer, TimerKey,
    Timestamp,
};
use punctual_adapters_nats::async_nats::jetstream;
use punctual_test_servers::{NatsServer, shared_nats_url, unique_prefix};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An engine with a handler that reads the events from the broker.
struct World {
    folder: TempDir,
    settings: NatsSettings,
}

impl World {
    fn shared() -> Option<Self> {
        let mut world = Self::at(&shared_nats_url()?);
        world.settings.prefix = unique_prefix().parse().unwrap();
        Some(world)
    }

    fn at(url: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            settings: NatsSettings::new(url).unwrap(),
        }
    }

    fn builder(&self) -> Builder {
        Punctual::builder()
            .sqlite(self.folder.path().join("timers.db"))
            .nats_with(self.settings.clone())
    }

    async fn start(&self) -> (Punctual, Running, UnboundedReceiver<DueTimeReached>) {
        let (told, heard) = unbounded_channel();
        let handler = move |due| std::future::ready(told.send(due).map_err(Into::into));
        let built = self.builder().take_commands().on_due(handler).build();
        let punctual = built.await.unwrap();
        let running = punctual.start().await.unwrap();
        (punctual, running, heard)
    }

    /// Publishes as a program of somebody else does.
    async fn send(&self, envelope: &MessageEnvelope) {
        let client = punctual_adapters_nats::connect(&self.settings).await;
        let context = jetstream::new(client.unwrap());
        let subject = format!("{}.timer.commands", self.settings.prefix.as_str());
        let published = context
            .publish(subject, envelope.to_json().unwrap().into())
            .await;
        published.unwrap().await.unwrap();
    }
}

fn key(name: &str) -> TimerKey {
    TimerKey::named(TenantId::default(), name)
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_hang_for_one_tenant_are_called_for_others() {
    let Some(world) = World::shared() else { return };
    let (told, mut heard) = unbounded_channel();
    let handler = move |due: DueTimeReached| {
        let told = told.clone();
        async move {
            if due.tenant_id.as_str() == "hangs" {
                std::future::pending::<()>().await;
            }
            told.send(due).map_err(Into::into)
        }
    };
    let punctual = world.builder().on_due(handler).build().await.unwrap();
    let _running = punctual.start().await.unwrap();
    let of = |tenant: &str, n: usize| {
        let tenant = TenantId::new(tenant).unwrap();
        let key = TimerKey::named(tenant, &n.to_string());
        Timer::after(key, Duration::from_millis(50))
    };
    for timer in (0..300).map(|n| of("hangs", n)) {
        let _ = punctual.schedule(timer).await.unwrap();
    }
    for n in 0..5 {
        let _ = punctual.schedule(of("other", n)).await.unwrap();
        let due = heard.recv().await.unwrap();
        assert_eq!(due.tenant_id.as_str(), "other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires_through_the_broker_and_its_handler_is_told() {
    let Some(world) = World::shared() else { return };
    let (punctual, running, mut heard) = world.start().await;
    assert_eq!(punctual.readiness(), Ok(()));
    let timer = Timer::after(key("a"), Duration::from_millis(50));
    let _ = punctual.schedule(timer).await.unwrap();
    let due = heard.recv().await.unwrap();
    assert_eq!(due.key(), key("a"));
    assert!(due.reached_at >= due.due_at);
    running.shutdown().await.unwrap();
    assert!(punctual.readiness().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_made_anew_gets_back_what_was_fired_days_ago() {
    let Some(world) = World::shared() else { return };
    let (punctual, running, mut heard) = world.start().await;
    let timer = Timer::after(key("now"), Duration::ZERO);
    let _ = punctual.schedule(timer).await.unwrap();
    let now = heard.recv().await.unwrap().reached_at;
    let days_ago = now.saturating_sub(Duration::from_hours(6 * 24));
    let mut fired = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let timer = Timer::at(key(name), days_ago);
        let _ = punctual.schedule(timer).await.unwrap();
        fired.insert(heard.recv().await.unwrap().firing_id);
    }
    running.shutdown().await.unwrap();
    drop(punctual);
    // As if each had been fired when it was due.
    let file = Connection::open(world.folder.path().join("timers.db")).unwrap();
    let earlier = "UPDATE timer_schedules SET reached_at = due_at WHERE due_at < reached_at";
    assert!(file.execute(earlier, []).unwrap() >= 3);
    drop(file);
    let client = punctual_adapters_nats::connect(&world.settings).await;
    let stream = world.settings.prefix.stream("EVENTS");
    let broker = jetstream::new(client.unwrap());
    broker.delete_stream(stream).await.unwrap();
    let (_punctual, running, mut heard) = world.start().await;
    while !fired.is_empty() {
        fired.remove(&heard.recv().await.unwrap().firing_id);
    }
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_from_the_broker_becomes_a_timer_and_fires() {
    let Some(world) = World::shared() else { return };
    let (punctual, running, mut heard) = world.start().await;
    let key = key("b");
    let message = ScheduleTimer {
        tenant_id: key.tenant_id.clone(),
        service_call_id: key.service_call_id,
        due_at: Timestamp::MIN,
        data: None,
    };
    let envelope = MessageEnvelope {
        id: "0190a6e0-0000-7000-8000-000000000001".parse().unwrap(),
        timestamp: Timestamp::from_millis(1).unwrap(),
        metadata: MessageMetadata::default(),
        message: message.into(),
    };
    world.send(&envelope).await;
    assert_eq!(heard.recv().await.unwrap().key(), key);
    assert!(punctual.find(&key).await.unwrap().is_some());
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_timers_are_stored_and_fire_when_it_comes() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    server.kill();
    let world = World::at(&server.url());
    let (punctual, running, mut heard) = world.start().await;
    assert!(punctual.readiness().is_err());
    let timer = Timer::at(key("a"), Timestamp::MIN);
    let _ = punctual.schedule(timer).await.unwrap();
    server.restart();
    assert_eq!(heard.recv().await.unwrap().key(), key("a"));
    assert_eq!(punctual.readiness(), Ok(()));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_would_lose_messages_is_refused_and_the_file_is_free_again() {
    let Some(world) = World::shared() else { return };
    let client = punctual_adapters_nats::connect(&world.settings).await;
    let context = jetstream::new(client.unwrap());
    let prefix = world.settings.prefix.as_str();
    let forgetful = jetstream::stream::Config {
        name: format!("{prefix}-COMMANDS"),
        subjects: vec![
            format!("{prefix}.*.commands"),
            format!("{prefix}.*.commands.>"),
        ],
        ..jetstream::stream::Config::default()
    };
    context.create_stream(&forgetful).await.unwrap();
    let error = world.builder().build().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Broker);
    assert!(error.to_string().contains("work queue"), "{error}");
    context.delete_stream(&forgetful.name).await.unwrap();
    assert!(world.builder().build().await.is_ok(), "the file is free");
}

#[tokio::test]
async fn what_cannot_be_built_is_said_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let base = || Punctual::builder().sqlite(path.clone());
    let clock = FakeClock::new(Timestamp::MIN);
    for (builder, sentence) in [
        (base().nats("http://x"), "give nats://host:4222"),
        (
            base().nats("nats://127.0.0.1:1").fake_clock(clock),
            "a broker lives in real time",
        ),
        (
            base().on_due(|_| async { Ok(()) }).take_commands(),
            "call `bus` or `nats`",
        ),
    ] {
        let error = builder.build().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(sentence), "{error}");
        assert!(!path.exists());
    }
}
