//! What `examine` reports about a server.

use punctual_adapters_postgres::{ConnectErrorKind, ConnectionProbe, PostgresUrl, examine};
use punctual_adapters_system::SystemClock;
use punctual_test_servers::{PgBouncer, PostgresServer};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_reported_on_as_it_is() {
    let Some(server) = PostgresServer::start_with(&[
        ("max_connections", "20"),
        ("superuser_reserved_connections", "2"),
        ("synchronous_standby_names", "nobody"),
        ("full_page_writes", "off"),
    ]) else {
        return;
    };
    let clock = SystemClock::start().unwrap();
    let url = PostgresUrl::new(&server.url()).unwrap();
    let found = examine(&url, None, &clock).await.unwrap();
    assert_eq!(found.server, server.url());
    assert_eq!(found.server_version, server.execute("SHOW server_version"));
    assert!(found.major_version >= 15);
    assert_eq!(found.is_version_verified(), found.major_version == 15);
    assert_eq!(found.refusal, None);
    assert!(found.has_fsync && found.has_autovacuum && !found.has_full_page_writes);
    assert_eq!(found.synchronous_commit, "on");
    assert_eq!(found.synchronous_standby_names, "nobody");
    assert_eq!(found.standbys, []);
    assert!(!found.is_in_recovery);
    assert_eq!(found.max_connections, 18);
    assert!((1..18).contains(&found.connections), "{found:?}");
    assert_eq!(
        (found.user.as_str(), found.schema.as_deref()),
        ("punctual", Some("public"))
    );
    assert!(found.may_create_tables);
    // The same machine has the same clock.
    assert!(
        found.clock_offset.abs() <= found.clock_offset_error,
        "{found:?}"
    );

    let Some(pooler) = PgBouncer::start(&server.url()) else {
        return;
    };
    let through = PostgresUrl::new(&pooler.url()).unwrap();
    let through = examine(&through, None, &clock).await.unwrap();
    assert_eq!(through.server_version, found.server_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_refused_is_reported_and_not_refused() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    server.execute(
        "CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on;
         CREATE ROLE lazy LOGIN; ALTER ROLE lazy SET synchronous_commit = off",
    );
    let clock = SystemClock::start().unwrap();
    for (user, kind) in [
        ("reader", ConnectErrorKind::ReadOnly),
        ("lazy", ConnectErrorKind::Server),
    ] {
        let url = PostgresUrl::new(&server.url_as(user)).unwrap();
        let found = examine(&url, None, &clock).await.unwrap();
        assert_eq!(found.refusal.unwrap().kind(), kind, "{user}");
        assert!(!found.may_create_tables);
    }
    let url = PostgresUrl::new(&server.url_as("missing")).unwrap();
    let error = examine(&url, None, &clock).await.unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Authentication);
}

/// A transaction that stays open keeps dead rows from being removed.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_shows() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE TABLE t ()");
    let clock = SystemClock::start().unwrap();
    let url = PostgresUrl::new(&server.url()).unwrap();
    let holder = ConnectionProbe::connect(&url, None, &clock);
    let holder = holder.await.unwrap();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM t";
    holder.client().batch_execute(begin).await.unwrap();
    let before = examine(&url, None, &clock).await.unwrap().oldest_xmin_age;
    for _ in 0..5 {
        server.execute("INSERT INTO t DEFAULT VALUES");
    }
    let after = examine(&url, None, &clock).await.unwrap().oldest_xmin_age;
    assert!(after >= before + 5, "{before}, then {after}");
}
