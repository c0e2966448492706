//! A deletion that meets a claim which is being written or renewed, whatever isolation the database has as its
//! default.

use std::time::Duration;

use punctual_adapters_postgres::{
    ConnectionProbe, PostgresSettings, PostgresTimerStore, PostgresUrl,
};
use punctual_domain::{CorrelationId, DeleteOutcome, ScheduleOrigin, TenantId, TimerKey};
use punctual_ports::{ClaimOutcome, ClaimRef, SaveTimer, TimerPersistencePort, TimerQueuePort};
use punctual_test_servers::{SharedDatabase, psql};
use uuid::Uuid;

use crate::store::{machine_clock, open};

/// Writes a claim as an instance does, and has not committed it yet.
const CLAIM: &str = "BEGIN; \
    SELECT timer_id FROM timer_queue FOR NO KEY UPDATE; \
    INSERT INTO timer_claims SELECT timer_id, 7, gen_random_uuid(), now() + interval '1 minute' FROM timer_queue";

async fn connect(database: &SharedDatabase) -> ConnectionProbe {
    let url = PostgresUrl::new(&database.url()).unwrap();
    ConnectionProbe::connect(&url, None, machine_clock().as_ref())
        .await
        .unwrap()
}

/// Waits until somebody waits for a lock.
async fn until_blocked(client: &ConnectionProbe) {
    let blocked = "SELECT 1 FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while client
        .client()
        .query_typed(blocked, &[])
        .await
        .unwrap()
        .is_empty()
    {
        tokio::task::yield_now().await;
    }
}

/// Stores a timer that is due.
async fn save_due(store: &PostgresTimerStore) -> TimerKey {
    let key = TimerKey::named(TenantId::default(), "raced");
    let now = machine_clock().now();
    let timer = SaveTimer {
        key: key.clone(),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: now.saturating_sub(Duration::from_secs(1)),
        data: None,
        origin: ScheduleOrigin::Replacement,
    };
    store.save(vec![timer], now).await.unwrap();
    key
}

async fn deletion_during_a_claim(store: PostgresTimerStore, database: &SharedDatabase) {
    let (key, now) = (save_due(&store).await, machine_clock().now());
    let (claiming, watching) = (connect(database).await, connect(database).await);
    claiming.client().batch_execute(CLAIM).await.unwrap();
    let deleting = tokio::spawn(async move { store.delete(vec![key], now).await });
    until_blocked(&watching).await;
    claiming.client().batch_execute("COMMIT").await.unwrap();
    let outcome = deleting.await.unwrap().unwrap().remove(0).unwrap();
    assert_eq!(outcome, DeleteOutcome::Firing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_for_a_claim_that_is_being_written_and_sees_it() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let Some(database) = SharedDatabase::create() else {
            return;
        };
        let set = format!(
            "ALTER DATABASE {} SET default_transaction_isolation = '{isolation}'",
            database.name()
        );
        psql(&database.url(), &set).unwrap();
        let url = PostgresUrl::new(&database.url()).unwrap();
        let store = open(&PostgresSettings::timers(url)).await;
        deletion_during_a_claim(store, &database).await;
    }
}

/// An owner that was suspended renews what has expired. Who deletes has seen that it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ended_is_not_renewed_while_its_timer_is_being_deleted() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let url = PostgresUrl::new(&database.url()).unwrap();
    let store = open(&PostgresSettings::timers(url)).await;
    let (key, now) = (save_due(&store).await, machine_clock().now());
    let short = Duration::from_millis(1);
    let claim = store
        .claim_due(now, 1, short)
        .await
        .unwrap()
        .claims
        .remove(0);
    let claim = ClaimRef {
        firing_id: claim.timer.firing_id(),
        token: claim.token,
    };
    let (holding, watching) = (connect(&database).await, connect(&database).await);
    let ended = "SELECT 1 FROM timer_claims WHERE timer_id <> 0 AND lease_until < now()";
    while watching
        .client()
        .query_typed(ended, &[])
        .await
        .unwrap()
        .is_empty()
    {
        tokio::task::yield_now().await;
    }
    // A deletion that has decided waits before it writes.
    let pause = "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS \
            'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN OLD; END'; \
        CREATE TRIGGER pause BEFORE DELETE ON timer_queue FOR EACH ROW EXECUTE FUNCTION pause(); \
        SELECT pg_advisory_lock(7)";
    holding.client().batch_execute(pause).await.unwrap();
    let deleting = {
        let store = store.clone();
        tokio::spawn(async move { store.delete(vec![key], now).await })
    };
    until_blocked(&watching).await;
    let renewed = store.renew(vec![claim], now, Duration::from_secs(8)).await;
    let release = "SELECT pg_advisory_unlock(7)";
    holding.client().batch_execute(release).await.unwrap();
    let deleted = deleting.await.unwrap().unwrap().remove(0).unwrap();
    assert_eq!(deleted, DeleteOutcome::Deleted);
    assert_eq!(renewed.unwrap().remove(0).unwrap(), ClaimOutcome::Lost);
}
