//! Messages are acknowledged after they were handled, and fetched only when there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_nats::async_nats::jetstream::{self, consumer::pull};
use punctual_domain::{Message, MessageEnvelope, TimerData};
use punctual_ports::{Answer, EventBusPort, MessageHandler, Subscribe};
use tokio::sync::Notify;

use crate::fixture::{Recorder, World, command, commands};

/// State of our consumer: messages delivered and not acknowledged, and not delivered.
async fn pending(world: &World) -> (usize, u64) {
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    let durable = stream
        .get_consumer::<pull::Config>("timer_timer-commands")
        .await;
    let info = durable.unwrap().cached_info().clone();
    (info.num_ack_pending, info.num_pending)
}

/// Starts, and continues when it is released.
#[derive(Default)]
struct Slow {
    calls: AtomicUsize,
    go_on: Notify,
}

#[async_trait]
impl MessageHandler for Slow {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.go_on.notified().await;
        vec![Answer::Done; batch.len()]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_before_the_handler_is_done() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Arc::new(Slow::default());
    let subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    let has_started = || handler.calls.load(Ordering::SeqCst) == 1;
    world.until("it has started", has_started).await;
    assert_eq!(pending(&world).await, (1, 0));
    handler.go_on.notify_one();
    subscription.stop().await;
    while pending(&world).await != (0, 0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_ack_wait_gets_its_message_once() {
    let Some(mut world) = World::shared() else {
        return;
    };
    world.settings.ack_wait = Duration::from_secs(1);
    let bus = world.bus().await;
    let handler = Arc::new(Slow::default());
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    let has_started = || handler.calls.load(Ordering::SeqCst) == 1;
    world.until("it has started", has_started).await;
    // Three times the ack wait, by the system clock.
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(handler.calls.load(Ordering::SeqCst), 1);
    assert_eq!(pending(&world).await, (1, 0));
    handler.go_on.notify_one();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_while_the_store_of_the_handler_is_unavailable() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    bus.publish((0..1_000).map(command).collect())
        .await
        .unwrap();
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let handler = Recorder::answering(move |_, _| {
        if away.load(Ordering::SeqCst) {
            Answer::Pause {
                reason: "away".to_owned(),
            }
        } else {
            Answer::Done
        }
    });
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    let first = || handler.seen().len() > 1_000;
    world.until("it is tried again and again", first).await;
    let (in_flight, left) = pending(&world).await;
    assert!(
        in_flight <= 200 && left >= 800,
        "{in_flight} in flight, {left} left"
    );
    assert!(
        handler
            .seen()
            .iter()
            .all(|it| it.timestamp == command(0).timestamp)
    );
    is_away.store(false, Ordering::SeqCst);
    let all = || (0..1_000).all(|n| handler.count(command(n).id) > 0);
    world.until("all are handled", all).await;
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_at_a_stop_are_redelivered_at_once() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::answering(|_, _| Answer::Pause {
        reason: "away".to_owned(),
    });
    let first = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish((0..50).map(command).collect()).await.unwrap();
    world
        .until("they are in flight", || !handler.seen().is_empty())
        .await;
    first.stop().await;
    let next = Recorder::content();
    let _second = bus.subscribe(commands(next.clone())).await.unwrap();
    let begun = world.monotonic();
    let all = || (0..50).all(|n| next.count(command(n).id) > 0);
    world.until("the next gets them", all).await;
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < world.settings.ack_wait / 2, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_consumer_is_created_again_and_redelivered_messages_are_handled() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::content();
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    bus.publish(vec![command(1)]).await.unwrap();
    world
        .until("it works", || handler.count(command(1).id) == 1)
        .await;
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("COMMANDS")).await.unwrap();
    stream
        .delete_consumer("timer_timer-commands")
        .await
        .unwrap();
    bus.publish(vec![command(2)]).await.unwrap();
    world
        .until("it works again", || handler.count(command(2).id) == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_beyond_the_bytes_of_one_request_come_with_the_next_one() {
    let Some(mut world) = World::shared() else {
        return;
    };
    // What is not heard of now is not heard of before this test has failed.
    world.settings.ack_wait = Duration::from_mins(10);
    let bus = world.bus().await;
    let data = TimerData::of(&"x".repeat(16_000)).unwrap();
    let count = 1_500;
    let large = (0..count).map(|n| {
        let mut envelope = command(n);
        if let Message::ScheduleTimer(command) = &mut envelope.message {
            command.data = Some(data.clone());
        }
        envelope
    });
    for answer in bus.publish(large.collect()).await.unwrap() {
        answer.unwrap();
    }
    let handler = Recorder::content();
    let request = Subscribe {
        max_batch: 1_000,
        ..commands(handler.clone())
    };
    let subscription = bus.subscribe(request).await.unwrap();
    let all = || handler.seen().len() >= usize::try_from(count).unwrap();
    world.until("all arrive", all).await;
    subscription.stop().await;
    while pending(&world).await != (0, 0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_stream_of_commands_is_created_again_and_consumed() {
    let Some(mut world) = World::shared() else {
        return;
    };
    world.settings.retry_delay = Duration::from_millis(1);
    let bus = world.bus().await;
    // Both have the first number of their stream, and each has its own tries.
    let handler = Recorder::answering(|_, earlier| match earlier {
        0..19 => Answer::RetryLater {
            reason: "not yet".to_owned(),
        },
        _ => Answer::Done,
    });
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    let broker = jetstream::new(world.client().await);
    for n in 1..3 {
        let begun = world.monotonic();
        loop {
            let published = bus.publish(vec![command(n)]).await;
            if matches!(&published, Ok(answers) if answers[0].is_ok()) {
                break;
            }
            let waited = world.monotonic().saturating_sub(begun);
            assert!(waited < Duration::from_mins(1), "{published:?}");
            world.pass(Duration::from_millis(10)).await;
        }
        let tried = || handler.count(command(n).id) >= 20;
        world.until("it has had its tries", tried).await;
        broker
            .delete_stream(world.stream("COMMANDS"))
            .await
            .unwrap();
    }
    assert!(world.dead_letters().await.is_empty());
}
