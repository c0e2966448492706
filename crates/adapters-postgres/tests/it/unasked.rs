//! What a server says unasked, and how a connection ends.

use punctual_adapters_postgres::tokio_postgres::Client;
use punctual_adapters_postgres::{ConnectionProbe, PostgresSettings, PostgresUrl};
use punctual_adapters_system::SystemClock;
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey};
use punctual_ports::{PortErrorKind, SaveTimer, TimerPersistencePort};
use punctual_test_servers::PostgresServer;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::store::{machine_clock, open};

async fn connect(server: &PostgresServer) -> ConnectionProbe {
    let url = PostgresUrl::new(&server.url()).unwrap();
    let clock = SystemClock::start().unwrap();
    ConnectionProbe::connect(&url, None, &clock).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_receives_notifications() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let url = PostgresUrl::new(&server.url()).unwrap();
    let clock = SystemClock::start().unwrap();
    let (sender, mut received) = mpsc::unbounded_channel();
    let listener = ConnectionProbe::connect_listening(&url, &clock, move |notification| {
        let _ = sender.send(notification.payload().to_owned());
    });
    let listener = listener.await.unwrap();
    listener
        .client()
        .batch_execute("LISTEN timers")
        .await
        .unwrap();
    let other = connect(&server).await;
    let notify = "NOTIFY timers, 'soon'; NOTIFY others, 'x'; NOTIFY timers, 'now'";
    other.client().batch_execute(notify).await.unwrap();
    assert_eq!(received.recv().await.as_deref(), Some("soon"));
    assert_eq!(received.recv().await.as_deref(), Some("now"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_handle_or_its_server() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let client = connect(&server).await.into_client();
    let error = client.query_typed("SELECT 1", &[]).await.unwrap_err();
    assert!(error.is_closed(), "{error:?}");

    assert_eq!(connect(&server).await.close().await, "it was closed");

    let terminated = connect(&server).await;
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'punctual test'",
    );
    let reason = terminated.ended().await;
    assert!(reason.contains("terminating connection"), "{reason}");
    let killed = connect(&server).await;
    server.kill();
    assert!(!killed.ended().await.is_empty());
    assert!(killed.client().is_closed());
}

/// Cancels the wait of a commit, once there is one.
async fn cancel_wait(client: &Client) {
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while client.query_typed(cancel, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_wait_for_a_standby_was_cancelled_is_seen_to_be_one() {
    let Some(server) = PostgresServer::start_with(&[("synchronous_standby_names", "nobody")])
    else {
        return;
    };
    let (probe, other) = (connect(&server).await, connect(&server).await);
    assert_eq!(probe.cancelled_sync_waits(), 0);
    for count in 1..=3 {
        let create = format!("CREATE TABLE t{count} ()");
        let commit = probe.client().query_typed(&create, &[]);
        let (committed, ()) = tokio::join!(commit, cancel_wait(other.client()));
        committed.unwrap();
        assert_eq!(probe.cancelled_sync_waits(), count);
    }
    // Another warning is none of these.
    probe.client().batch_execute("COMMIT").await.unwrap();
    assert_eq!(probe.cancelled_sync_waits(), 3);
}

/// The server has said that it committed, and warned that no standby has it: after a failover it may be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_whose_wait_for_a_standby_was_cancelled_is_no_success() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let url = PostgresUrl::new(&server.url()).unwrap();
    let store = open(&PostgresSettings::timers(url)).await;
    let other = connect(&server).await;
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.execute("SELECT pg_reload_conf()");
    let now = machine_clock().now();
    let timer = SaveTimer {
        key: TimerKey::named(TenantId::default(), "a"),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: now,
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let saving = tokio::spawn(async move { store.save(vec![timer], now).await });
    cancel_wait(other.client()).await;
    let outcome = saving.await.unwrap().unwrap().remove(0);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("standby"), "{error}");
}
