//! A handler that takes one message at a time: no tenant holds up another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_nats::NatsEventBus;
use punctual_adapters_nats::async_nats::jetstream::{self, consumer::pull};
use punctual_domain::{Message, MessageEnvelope, TenantId, Timestamp};
use punctual_ports::{Answer, EventBusPort, MessageHandler, Subscribe};

use crate::fixture::{Recorder, World, event, events};

/// Event number `n` of a tenant.
fn event_of(tenant: &str, n: u128) -> MessageEnvelope {
    let mut envelope = event(n, Timestamp::MAX);
    if let Message::DueTimeReached(event) = &mut envelope.message {
        event.tenant_id = TenantId::new(tenant).unwrap();
        event.firing_id.key.tenant_id = event.tenant_id.clone();
    }
    envelope
}

async fn publish(bus: &impl EventBusPort, tenant: &str, numbers: std::ops::Range<u128>) {
    let batch = numbers.map(|n| event_of(tenant, n)).collect();
    for answer in bus.publish(batch).await.unwrap() {
        answer.unwrap();
    }
}

/// As `on_due` subscribes.
fn one_at_a_time(handler: Arc<dyn MessageHandler>) -> Subscribe {
    Subscribe {
        max_batch: 1,
        ..events(handler)
    }
}

/// Handlers of tenants whose name begins with "hangs" never return; those of "slow" take their time.
struct Uneven {
    world: World,
    hanging: AtomicUsize,
    slow: AtomicUsize,
    others: AtomicUsize,
}

impl Uneven {
    fn new(world: &World) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            hanging: AtomicUsize::new(0),
            slow: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
        })
    }

    fn others(&self) -> usize {
        self.others.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl MessageHandler for Uneven {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let tenant = batch[0].tenant_id().as_str().to_owned();
        if tenant.starts_with("hangs") {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        if tenant.starts_with("slow") {
            self.world.pass(Duration::from_millis(50)).await;
            self.slow.fetch_add(batch.len(), Ordering::SeqCst);
        } else {
            self.others.fetch_add(batch.len(), Ordering::SeqCst);
        }
        vec![Answer::Done; batch.len()]
    }
}

/// Publishes an event of another tenant, and waits until it is handled.
async fn passes(world: &World, bus: &impl EventBusPort, handler: &Uneven, n: u128) {
    let (before, begun) = (handler.others(), world.monotonic());
    publish(bus, "other", n..n + 1).await;
    let has_passed = || handler.others() > before;
    world
        .until("the other tenant's is handled", has_passed)
        .await;
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenants_hanging_handlers_hold_up_no_other_tenant() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Uneven::new(&world);
    let _subscription = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    publish(&bus, "hangs", 0..200).await;
    passes(&world, &bus, &handler, 1_000).await;
    publish(&bus, "hangs", 2_000..5_000).await;
    passes(&world, &bus, &handler, 1_001).await;
    // Some of them are here, and the rest is with the broker.
    assert_eq!(handler.hanging.load(Ordering::SeqCst), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_that_hang_one_after_the_other_stop_nobody() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Uneven::new(&world);
    let _subscription = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    for number in 0..6_u128 {
        let first = number * 1_000;
        publish(&bus, &format!("hangs-{number}"), first..first + 500).await;
        passes(&world, &bus, &handler, 10_000 + number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_failing_events_hold_up_no_other_tenant() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let others = Arc::new(AtomicUsize::new(0));
    let handler = Arc::new(Failing(Arc::clone(&others)));
    let _subscription = bus.subscribe(one_at_a_time(handler)).await.unwrap();
    for first in 0..11 {
        publish(&bus, "fails", first * 2_000..(first + 1) * 2_000).await;
    }
    let begun = world.monotonic();
    publish(&bus, "other", 100_000..100_001).await;
    let all = || others.load(Ordering::SeqCst) == 1;
    world.until("the other tenant's is handled", all).await;
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Fails for one tenant, without a word in memory.
struct Failing(Arc<AtomicUsize>);

#[async_trait]
impl MessageHandler for Failing {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        if batch[0].tenant_id().as_str() == "fails" {
            let reason = "not yet".to_owned();
            return vec![Answer::RetryLater { reason }];
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        vec![Answer::Done]
    }
}

/// What is put off comes again as fast as its tenant gets on, and each is handled once.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_tenants_backlog_gets_on_while_others_pass() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Uneven::new(&world);
    publish(&bus, "slow", 0..3_000).await;
    let begun = world.monotonic();
    let subscription = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    passes(&world, &bus, &handler, 10_000).await;
    let all = || handler.slow.load(Ordering::SeqCst) >= 3_000;
    world.until("all are handled", all).await;
    let took = world.monotonic().saturating_sub(begun);
    // With 64 at once it takes 2.4 s at best.
    assert!(took < Duration::from_secs(15), "{took:?}");
    subscription.stop().await;
    assert_eq!(handler.slow.load(Ordering::SeqCst), 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_turn_goes_back_when_it_stops() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::answering(|_, _| Answer::Pause {
        reason: "away".to_owned(),
    });
    let first = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    publish(&bus, "a", 0..100).await;
    let tried = || !handler.seen().is_empty();
    world.until("they are here", tried).await;
    first.stop().await;
    let next = Recorder::content();
    let _second = bus.subscribe(one_at_a_time(next.clone())).await.unwrap();
    let begun = world.monotonic();
    let all = || (0..100).all(|n| next.count(event(n, Timestamp::MAX).id) > 0);
    world.until("the next gets them", all).await;
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < world.settings.ack_wait / 2, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_turn_goes_back_although_a_handler_hangs_as_it_stops() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Uneven::new(&world);
    let first = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    publish(&bus, "hangs", 0..200).await;
    let all_hang = || handler.hanging.load(Ordering::SeqCst) == 64;
    world
        .until("64 are handled, the rest waits", all_hang)
        .await;
    let stopping = tokio::spawn(async move { first.stop().await });
    let next = Recorder::content();
    let _second = bus.subscribe(one_at_a_time(next.clone())).await.unwrap();
    let begun = world.monotonic();
    let rest = || next.seen().len() >= 200 - 64;
    world.until("the next gets the rest", rest).await;
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < world.settings.ack_wait / 2, "{took:?}");
    assert!(!stopping.is_finished(), "it waits for its handlers");
    stopping.abort();
}

/// Panics before it returns a future, for one tenant.
struct Rash(Arc<Recorder>);

impl MessageHandler for Rash {
    fn handle<'a, 'b>(&'a self, batch: Vec<MessageEnvelope>) -> BoxFuture<'b, Vec<Answer>>
    where
        'a: 'b,
    {
        let number = batch[0].id.as_uuid().as_u128();
        assert!(number >= 100, "a handler that panics at once");
        self.0.handle(batch)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_before_it_begins_takes_no_call_from_its_tenant() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let handler = Recorder::content();
    let rash = Arc::new(Rash(handler.clone()));
    let _subscription = bus.subscribe(one_at_a_time(rash)).await.unwrap();
    publish(&bus, "a", 0..101).await;
    let next = || handler.seen().len() == 1;
    world.until("the next of the tenant is handled", next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_panics_takes_no_call_from_a_tenant() {
    let Some(world) = World::shared() else { return };
    let mut parts = world.parts();
    let faults = Faults::new(Arc::clone(&parts.clock));
    faults.decide(|_| panic!("a store that panics"));
    parts.dead_letters = Arc::new(Faulty::new(Arc::new(world.store.clone()), &faults));
    let bus = NatsEventBus::connect(world.settings.clone(), parts).await;
    let bus = bus.unwrap();
    let next = event(100, Timestamp::MAX).id;
    let handler = Recorder::answering(move |event, _| {
        if event.id == next {
            return Answer::Done;
        }
        let reason = "never".to_owned();
        Answer::Poison { reason }
    });
    let _subscription = bus.subscribe(one_at_a_time(handler.clone())).await.unwrap();
    publish(&bus, "a", 0..101).await;
    let is_handled = || handler.count(next) == 1;
    world
        .until("the next of the tenant is handled", is_handled)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_an_earlier_version_may_have_more_events_unfinished() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let broker = jetstream::new(world.client().await);
    let stream = broker.get_stream(world.stream("EVENTS")).await.unwrap();
    let earlier = pull::Config {
        durable_name: Some("reader_timer-events".to_owned()),
        ack_wait: world.settings.ack_wait,
        filter_subject: world.subject("timer.events.>"),
        max_ack_pending: 20_000,
        ..pull::Config::default()
    };
    stream.create_consumer(earlier).await.unwrap();
    let handler = Recorder::content();
    let _subscription = bus.subscribe(one_at_a_time(handler)).await.unwrap();
    let found = stream.get_consumer::<pull::Config>("reader_timer-events");
    let found = found.await.unwrap();
    assert_eq!(found.cached_info().config.max_ack_pending, 100_000);
}
