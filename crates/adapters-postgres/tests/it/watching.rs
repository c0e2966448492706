//! The watch over other instances, and the end of one: what they store is noticed in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_postgres::{
    PostgresSettings, PostgresTimerStore, Role, SchemaSet, StoreClock,
};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey};
use punctual_ports::{Backend, ClockPort, SaveTimer, TimerPersistencePort, TimerQueuePort};
use uuid::Uuid;

use crate::store::{InSchema, machine_clock, new_instance, open};

const SECOND: Duration = Duration::from_secs(1);

/// An instance by the server's clock that hears notifications, and whose own time a test advances.
struct Listening {
    schema: InSchema,
    store: PostgresTimerStore,
    clock: FakeClock,
    changes: Arc<AtomicUsize>,
}

impl Listening {
    async fn new() -> Option<Self> {
        let schema = InSchema::new(SchemaSet::TimersOnly).await?;
        let settings = by_the_server(&schema);
        let clock = FakeClock::new(machine_clock().now());
        let opened = PostgresTimerStore::open(&settings, Arc::new(clock.clone()), new_instance());
        let store = opened.await.unwrap();
        let changes = Arc::new(AtomicUsize::new(0));
        let (watched, seen) = (store.clone(), Arc::clone(&changes));
        let on_change = move || {
            seen.fetch_add(1, Ordering::AcqRel);
        };
        drop(tokio::spawn(async move {
            Box::pin(watched.watch_others(Arc::new(on_change))).await;
        }));
        let listening = Self {
            schema,
            store,
            clock,
            changes,
        };
        // One because it has never polled, and one because it listens.
        listening.wait_for_changes(2).await;
        Some(listening)
    }

    async fn wait_for_changes(&self, count: usize) {
        let patience = machine_clock();
        let limit = patience.monotonic() + Duration::from_secs(20);
        while self.changes.load(Ordering::Acquire) < count {
            assert!(patience.monotonic() < limit, "{:?}", self.changes);
            tokio::task::yield_now().await;
        }
    }
}

fn by_the_server(schema: &InSchema) -> PostgresSettings {
    PostgresSettings {
        time: StoreClock::Server,
        ..schema.settings.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_poll_is_called_every_second() {
    let Some(listening) = Listening::new().await else {
        return;
    };
    for count in 3..6 {
        listening.clock.advance(SECOND).await;
        listening.wait_for_changes(count).await;
    }
    // One that has polled is called a second after that.
    listening.clock.advance(SECOND / 2).await;
    let polled = listening.store.claim_due(listening.clock.now(), 1, SECOND);
    polled.await.unwrap();
    listening.clock.advance(SECOND / 2).await;
    listening.clock.advance(SECOND / 2).await;
    listening.wait_for_changes(6).await;
    assert_eq!(listening.changes.load(Ordering::Acquire), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_stores_right_before_its_end_is_notified() {
    let Some(listening) = Listening::new().await else {
        return;
    };
    let settings = PostgresSettings {
        role: Role::Client,
        ..by_the_server(&listening.schema)
    };
    let client = open(&settings).await;
    let clock = machine_clock();
    let timer = SaveTimer {
        key: TimerKey::named(TenantId::default(), "at once"),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: clock.now(),
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let saved = client.save(vec![timer], clock.now()).await;
    saved.unwrap().remove(0).unwrap();
    let closing = clock.monotonic();
    client.close().await;
    let took = clock.monotonic().saturating_sub(closing);
    assert!(
        took < Duration::from_secs(3),
        "nothing was under way: {took:?}"
    );
    // No time passes there, so nothing else calls.
    listening.wait_for_changes(3).await;
    listening.store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_seconds_off_makes_an_instance_unready() {
    let Some(schema) = InSchema::new(SchemaSet::TimersOnly).await else {
        return;
    };
    let ahead = machine_clock().now().saturating_add(10 * SECOND);
    let clock = FakeClock::new(ahead);
    let settings = by_the_server(&schema);
    let opened = PostgresTimerStore::open(&settings, Arc::new(clock.clone()), new_instance());
    let store = opened.await.unwrap();
    store.probe_write().await.unwrap();
    store.claim_due(clock.now(), 1, SECOND).await.unwrap();
    let problem = store.write_health().problem.unwrap().to_string();
    assert!(problem.contains("synchronize both"), "{problem}");
    let refused = store.probe_write().await.unwrap_err().to_string();
    assert!(refused.contains("differ by"), "{refused}");
    store.close().await;
}
