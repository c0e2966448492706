//! Polls that begin where the last one ended, and the sweep that finds what they pass over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_postgres::{PostgresTimerStore, PostgresUrl, SchemaSet, StoreClock};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey, Timestamp};
use punctual_ports::{ClockPort, SaveTimer, TimerPersistencePort, TimerQueuePort};
use uuid::Uuid;

use crate::store::{InSchema, machine_clock, new_instance};

const LEASE: Duration = Duration::from_secs(8);
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// An instance by the server's clock that hears no notification, and whose own time a test advances.
struct Unheard {
    schema: InSchema,
    store: PostgresTimerStore,
    clock: FakeClock,
    changes: Arc<AtomicUsize>,
}

impl Unheard {
    async fn new() -> Option<Self> {
        let schema = InSchema::new(SchemaSet::TimersOnly).await?;
        let mut settings = schema.settings.clone();
        settings.time = StoreClock::Server;
        settings.listen_url = Some(PostgresUrl::new("postgres://nobody@127.0.0.1:1/none").unwrap());
        let clock = FakeClock::new(machine_clock().now());
        let opened =
            PostgresTimerStore::open(&settings, Arc::new(clock.clone()), new_instance()).await;
        let store = opened.unwrap();
        let changes = Arc::new(AtomicUsize::new(0));
        let (watched, seen) = (store.clone(), Arc::clone(&changes));
        let on_change = move || {
            seen.fetch_add(1, Ordering::AcqRel);
        };
        drop(tokio::spawn(async move {
            Box::pin(watched.watch_others(Arc::new(on_change))).await;
        }));
        Some(Self {
            schema,
            store,
            clock,
            changes,
        })
    }

    /// Another program stores a timer, and tells nobody.
    async fn put(&self, number: u128, due_at: Timestamp) {
        let put = format!(
            "WITH t AS (INSERT INTO timers (tenant_id, service_call_id, correlation_id, due_at, registered_at) \
                 VALUES ('a', '{}', '{}', to_timestamp({due}), to_timestamp({due})) RETURNING id, due_at) \
             INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, tenant_id) \
             SELECT id, due_at, due_at, due_at, 'a' FROM t",
            Uuid::from_u128(number),
            Uuid::nil(),
            due = due_at.as_millis() / 1_000,
        );
        let client = self.schema.outsider.client();
        client.batch_execute(&put).await.unwrap();
    }

    async fn claim(&self) -> usize {
        let claimed = self.store.claim_due(self.clock.now(), 10, LEASE).await;
        claimed.unwrap().claims.len()
    }

    /// Waits until a claim gets something after the watch has called.
    async fn claim_after_a_change(&self) -> usize {
        loop {
            while self.changes.swap(0, Ordering::AcqRel) == 0 {
                tokio::task::yield_now().await;
            }
            let claimed = self.claim().await;
            if claimed > 0 {
                return claimed;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_made_due_in_the_past_is_found_by_the_next_sweep_at_the_latest() {
    let Some(unheard) = Unheard::new().await else {
        return;
    };
    let long_ago = unheard.clock.now().saturating_sub(Duration::from_hours(1));
    unheard.put(1, long_ago).await;
    unheard.clock.advance(SWEEP_INTERVAL).await;
    assert_eq!(unheard.claim_after_a_change().await, 1);
    assert_eq!(unheard.claim().await, 0, "nothing else is due");

    // A poll begins where the last one ended, unless a sweep that is under way has just found it.
    unheard.put(2, long_ago).await;
    if unheard.claim().await == 0 {
        unheard.clock.advance(SWEEP_INTERVAL).await;
        assert_eq!(unheard.claim_after_a_change().await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_saves_in_the_past_itself_is_claimed_at_once() {
    let Some(unheard) = Unheard::new().await else {
        return;
    };
    let long_ago = unheard.clock.now().saturating_sub(Duration::from_hours(1));
    unheard.put(1, long_ago).await;
    unheard.clock.advance(SWEEP_INTERVAL).await;
    assert_eq!(unheard.claim_after_a_change().await, 1);
    assert_eq!(unheard.claim().await, 0);
    let late = SaveTimer {
        key: TimerKey::named(TenantId::default(), "late"),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: long_ago,
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let saved = unheard.store.save(vec![late], unheard.clock.now()).await;
    saved.unwrap().remove(0).unwrap();
    assert_eq!(unheard.claim().await, 1);
}
