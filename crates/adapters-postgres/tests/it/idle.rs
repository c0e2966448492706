//! The cost of an idle instance, which must be negligible.

use std::sync::Arc;
use std::time::Duration;

use punctual_ports::{Backend, TimerPersistencePort, TimerQueuePort};
use punctual_test_servers::PostgresServer;

use crate::scratch::{key, now, open, settings, timer_of};
use crate::store::machine_clock;

/// How long it is watched. Real time, as the server counts for itself.
const SECONDS: u64 = 6;
const SECOND: Duration = Duration::from_secs(1);

/// Counts what is executed, without the beginnings and ends of transactions and the settings in them.
const COUNTING: [(&str, &str); 2] = [
    ("shared_preload_libraries", "pg_stat_statements"),
    ("pg_stat_statements.track_utility", "off"),
];

/// All statements so far, without those that count.
const COUNT: &str = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
    WHERE query NOT LIKE '%pg_stat_statements%'";

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_instance_runs_at_most_two_statements_a_second() {
    let Some(server) = PostgresServer::start_with(&COUNTING) else {
        return;
    };
    server.execute("CREATE EXTENSION pg_stat_statements");
    let count = || -> u64 { server.execute(COUNT).parse().unwrap() };
    let store = open(&settings(&server.url())).await.unwrap();
    let later = now().saturating_add(Duration::from_hours(1));
    let saved = store.save(vec![timer_of(key(7), later)], now()).await;
    saved.unwrap().remove(0).unwrap();
    let watched = store.clone();
    let watching = tokio::spawn(async move {
        Backend::watch(&watched, machine_clock(), Arc::new(|| ())).await;
    });
    let clock = machine_clock();
    let poll = async || {
        let batch = store.claim_due(now(), 10, 30 * SECOND).await.unwrap();
        assert!(batch.claims.is_empty());
        clock.sleep_for(SECOND).await;
    };
    poll().await;
    poll().await;
    let before = count();
    for _ in 0..SECONDS {
        poll().await;
    }
    let counted = count() - before;
    // The worker polls, and nothing else is done so often.
    assert!(
        (SECONDS..=2 * SECONDS).contains(&counted),
        "{counted} in {SECONDS} s"
    );
    watching.abort();
}
