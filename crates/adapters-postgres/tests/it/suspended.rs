//! An instance that is suspended in the middle of a transaction.

use std::time::Duration;

use punctual_adapters_postgres::tokio_postgres::NoTls;
use punctual_adapters_postgres::{
    PostgresSettings, PostgresTimerStore, PostgresUrl, tokio_postgres,
};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey};
use punctual_ports::{SaveTimer, TimerPersistencePort, TimerQueuePort};
use punctual_test_servers::{Proxy, SharedDatabase};
use uuid::Uuid;

use crate::store::{machine_clock, new_instance};

/// A network that hangs is to the server what a suspended process is: somebody who says nothing any more, and
/// holds locks that others pass over.
#[tokio::test(flavor = "multi_thread")]
async fn its_locks_end_before_its_leases_would() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let (url, clock) = (database.url(), machine_clock());
    let proxy = Proxy::start(&url);
    let open = async |url: &str| {
        let settings = PostgresSettings::timers(PostgresUrl::new(url).unwrap());
        let opening = PostgresTimerStore::open(&settings, machine_clock(), new_instance());
        opening.await.unwrap()
    };
    let (suspended, other) = (open(&proxy.url()).await, open(&url).await);
    let timer = SaveTimer {
        key: TimerKey::named(TenantId::default(), "a"),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: clock.now(),
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    other.save(vec![timer.clone()], clock.now()).await.unwrap();

    // It has begun to reschedule the timer, and waits for somebody.
    let client = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let (mut holder, observer) = (client().await, client().await);
    let lock = holder.transaction().await.unwrap();
    let rows = "SELECT id FROM timers FOR UPDATE";
    lock.batch_execute(rows).await.unwrap();
    let now = clock.now();
    let reschedule = tokio::spawn(async move { suspended.save(vec![timer], now).await });
    let waits = "SELECT 1 FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while observer.query_typed(waits, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    proxy.hang();
    lock.commit().await.unwrap();
    let idle = "SELECT 1 FROM pg_stat_activity \
        WHERE datname = current_database() AND state = 'idle in transaction'";
    while observer.query_typed(idle, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }

    let held_since = clock.monotonic();
    loop {
        let now = clock.now();
        let claimed = other.claim_due(now, 10, Duration::from_secs(8)).await;
        if !claimed.unwrap().claims.is_empty() {
            break;
        }
        let held = clock.monotonic().saturating_sub(held_since);
        assert!(held < Duration::from_secs(6), "it holds its locks");
        tokio::task::yield_now().await;
    }
    reschedule.abort();
}
