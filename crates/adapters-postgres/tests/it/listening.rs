//! Notifications between instances, and what happens where none arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_postgres::{PostgresTimerStore, PostgresUrl};
use punctual_ports::{Backend, TimerPersistencePort, TimerQueuePort};
use punctual_test_servers::{PgBouncer, Proxy};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::scratch::{Scratch, client_settings, key, now, open, settings, timer_of};
use crate::store::machine_clock;
use crate::warnings::Warnings;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An instance whose change feed is watched.
struct Watched {
    store: PostgresTimerStore,
    changes: Arc<AtomicUsize>,
    waker: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl Watched {
    /// A store that is polled, but not because of changes: those it only counts.
    async fn new(store: PostgresTimerStore) -> Self {
        poll(&store).await;
        let polled = store.clone();
        let polling = tokio::spawn(async move {
            loop {
                machine_clock().sleep_for(Duration::from_millis(200)).await;
                poll(&polled).await;
            }
        });
        let (changes, waker) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let both = (Arc::clone(&changes), Arc::clone(&waker));
        let on_change = Arc::new(move || {
            both.0.fetch_add(1, Ordering::SeqCst);
            both.1.notify_one();
        });
        let watched = store.clone();
        let watching = tokio::spawn(async move {
            Backend::watch(&watched, machine_clock(), on_change).await;
        });
        Self {
            store,
            changes,
            waker,
            tasks: [polling, watching],
        }
    }

    fn changes(&self) -> usize {
        self.changes.load(Ordering::SeqCst)
    }

    /// Waits for the next change, and returns how long that took.
    async fn next_change(&self) -> Duration {
        let clock = machine_clock();
        let before = clock.monotonic();
        tokio::select! {
            () = self.waker.notified() => {}
            () = clock.sleep_for(PATIENCE) => panic!("nothing has changed"),
        }
        clock.monotonic().saturating_sub(before)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A poll that claims nothing. It may fail while the store is being closed.
async fn poll(store: &PostgresTimerStore) {
    let lease = Duration::from_secs(1);
    let _ = store.claim_due(now(), 0, lease).await;
}

/// How long it takes at least until a change follows upon a timer of another instance. Without
/// notifications it would be half a second, or the next sweep.
async fn fastest_of_five(watched: &Watched, other: &PostgresTimerStore) -> Duration {
    let mut fastest = PATIENCE;
    for number in 0..5 {
        let soon = timer_of(key(number), now());
        other.save(vec![soon], now()).await.unwrap();
        fastest = fastest.min(watched.next_change().await);
    }
    fastest
}

/// Number of connections that listen.
fn listeners(scratch: &Scratch) -> String {
    scratch.execute(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'punctual listen'",
    )
}

async fn until_there_is_a_listener(scratch: &Scratch) {
    while listeners(scratch) == "0" {
        machine_clock().sleep_for(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_of_another_instance_wakes_this_one_within_milliseconds() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let watched = Watched::new(scratch.store().await).await;
    // That notifications arrive is the first change.
    watched.next_change().await;
    let other = open(&client_settings(&scratch.url())).await.unwrap();
    // Nobody is woken for what is due long after the next poll.
    let changes = watched.changes();
    let later = timer_of(key(9), now().saturating_add(Duration::from_hours(1)));
    other.save(vec![later], now()).await.unwrap();
    assert!(fastest_of_five(&watched, &other).await < Duration::from_millis(100));
    // A sweep may find the same timers.
    assert!(watched.changes() <= changes + 6, "{}", watched.changes());
    watched.store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_say_on_the_channel_is_ignored() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let watched = Watched::new(scratch.store().await).await;
    watched.next_change().await;
    let id = Uuid::nil();
    let foreign = [
        String::new(),
        "hello".to_owned(),
        format!("{id}:test:public"),
        format!("{id}:1800000000000:another"),
        format!("{id}:soon:public"),
        "x:1:public".to_owned(),
        "\u{1f980}:::".repeat(500),
    ];
    for payload in foreign {
        scratch.execute(&format!("NOTIFY punctual_timers, '{payload}'"));
    }
    let changes = watched.changes();
    scratch.execute(&format!("NOTIFY punctual_timers, '{id}:0:public'"));
    watched.next_change().await;
    assert_eq!(watched.changes(), changes + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_was_terminated_comes_back() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let watched = Watched::new(scratch.store().await).await;
    watched.next_change().await;
    let other = open(&client_settings(&scratch.url())).await.unwrap();
    for number in 0..3 {
        scratch.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'punctual listen'",
        );
        // A poll, since something may have been missed, and then that notifications arrive again.
        watched.next_change().await;
        until_there_is_a_listener(&scratch).await;
        watched.next_change().await;
        let soon = timer_of(key(number), now());
        other.save(vec![soon], now()).await.unwrap();
        watched.next_change().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_can_listen_polls_take_the_place_of_notifications() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let proxy = Proxy::start(&scratch.url());
    let mut settings = scratch.settings();
    settings.listen_url = Some(PostgresUrl::new(&proxy.url()).unwrap());
    let watched = Watched::new(open(&settings).await.unwrap()).await;
    watched.next_change().await;
    proxy.refuse();
    proxy.cut();
    for _ in 0..4 {
        let waited = watched.next_change().await;
        assert!(waited < Duration::from_secs(5), "{waited:?}");
    }
    proxy.resume();
    until_there_is_a_listener(&scratch).await;
}

#[tokio::test]
async fn behind_a_pooler_it_says_what_to_set_and_polls() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let Some(pooler) = PgBouncer::start(&scratch.url()) else {
        return;
    };
    let warnings = Warnings::collect();
    let watched = Watched::new(open(&settings(&pooler.url())).await.unwrap()).await;
    for _ in 0..3 {
        watched.next_change().await;
    }
    let said = warnings.said();
    assert!(
        said.iter().any(
            |it| it.contains("notifications do not arrive: polling instead")
                && it.contains("set DATABASE_LISTEN_URL to the address of the server itself")
        ),
        "{said:?}"
    );
    drop(watched);

    let mut with_listener = settings(&pooler.url());
    with_listener.listen_url = Some(PostgresUrl::new(&scratch.url()).unwrap());
    let watched = Watched::new(open(&with_listener).await.unwrap()).await;
    watched.next_change().await;
    until_there_is_a_listener(&scratch).await;
    let other = open(&client_settings(&pooler.url())).await.unwrap();
    assert!(fastest_of_five(&watched, &other).await < Duration::from_millis(100));
}
