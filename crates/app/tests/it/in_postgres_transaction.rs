//! Scheduling inside a caller's own transaction on PostgreSQL.

use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::tokio_postgres::{Client, NoTls};
use punctual::{ErrorKind, Punctual, Running, ScheduleOutcome, Timer, tokio_postgres};
use punctual_test_servers::SharedDatabase;
use tokio::sync::mpsc;

use crate::fixture::{Heard, SECOND, clock, in_memory, key};

/// A shop whose orders are in the same database as its timers, on a fake clock.
struct Shop {
    database: SharedDatabase,
    mine: Client,
    clock: FakeClock,
    heard: Heard,
    punctual: Punctual,
    _running: Running,
}

impl Shop {
    /// `None` if there is no server.
    async fn open() -> Option<Self> {
        let database = SharedDatabase::create()?;
        let (clock, heard) = (clock(), Heard::default());
        let builder = heard.builder().postgres(database.url());
        let punctual = builder.fake_clock(clock.clone()).build().await.unwrap();
        let running = punctual.start().await.unwrap();
        let mine = client(&database).await;
        let orders = "CREATE TABLE orders (id text PRIMARY KEY)";
        mine.batch_execute(orders).await.unwrap();
        Some(Self {
            database,
            mine,
            clock,
            heard,
            punctual,
            _running: running,
        })
    }

    async fn orders(&self) -> usize {
        let orders = self.mine.query("SELECT id FROM orders", &[]).await;
        orders.unwrap().len()
    }
}

async fn client(database: &SharedDatabase) -> Client {
    let url = database.url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn row_and_timer_commit_together_and_the_timer_fires_on_time() {
    let Some(mut shop) = Shop::open().await else {
        return;
    };
    shop.clock.advance(10 * SECOND).await;
    let transaction = shop.mine.transaction().await.unwrap();
    let order = "INSERT INTO orders VALUES ('a')";
    transaction.batch_execute(order).await.unwrap();
    let timer = Timer::after(key("a"), SECOND).data("pay").unwrap();
    let outcome = shop.punctual.schedule_in(&transaction, timer).await;
    assert_eq!(outcome.unwrap(), ScheduleOutcome::Created);
    transaction.commit().await.unwrap();
    shop.clock.advance(SECOND).await;
    let heard = shop.heard.all();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].reached_at, heard[0].due_at);
    assert_eq!(heard[0].read::<String>().unwrap(), "pay");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_transaction_leaves_neither() {
    let Some(mut shop) = Shop::open().await else {
        return;
    };
    let transaction = shop.mine.transaction().await.unwrap();
    let order = "INSERT INTO orders VALUES ('a')";
    transaction.batch_execute(order).await.unwrap();
    let timer = Timer::after(key("a"), SECOND);
    let _ = shop
        .punctual
        .schedule_in(&transaction, timer)
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    shop.clock.advance(Duration::from_mins(1)).await;
    assert_eq!(shop.heard.count(), 0);
    assert_eq!(shop.orders().await, 0);
    assert_eq!(shop.punctual.find(&key("a")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_after_the_due_time_is_found_by_the_hint() {
    let Some(mut shop) = Shop::open().await else {
        return;
    };
    // A poll has just been: the next is an hour away.
    shop.clock.advance(10 * SECOND).await;
    let transaction = shop.mine.transaction().await.unwrap();
    let timer = Timer::after(key("a"), Duration::from_millis(10));
    let _ = shop
        .punctual
        .schedule_in(&transaction, timer)
        .await
        .unwrap();
    shop.clock.advance(Duration::from_millis(100)).await;
    assert_eq!(shop.heard.count(), 0, "nobody has committed");
    transaction.commit().await.unwrap();
    shop.clock.advance(Duration::from_millis(200)).await;
    assert_eq!(shop.heard.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_has_fired_is_not_scheduled_again() {
    let Some(mut shop) = Shop::open().await else {
        return;
    };
    let timer = || Timer::after(key("a"), SECOND);
    let _ = shop.punctual.schedule(timer()).await.unwrap();
    shop.clock.advance(SECOND).await;
    let transaction = shop.mine.transaction().await.unwrap();
    let refused = shop.punctual.schedule_in(&transaction, timer()).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyReached);
    assert!(error.to_string().contains("replace"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_on_another_database_is_refused() {
    let (Some(shop), Some(other)) = (Shop::open().await, SharedDatabase::create()) else {
        return;
    };
    let mut theirs = client(&other).await;
    let transaction = theirs.transaction().await.unwrap();
    let timer = Timer::after(key("a"), SECOND);
    let refused = shop.punctual.schedule_in(&transaction, timer).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains(other.name()), "{error}");
    assert!(error.to_string().contains(shop.database.name()), "{error}");
    // It is still the caller's.
    transaction.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_elsewhere_cannot_be_in_a_transaction() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let (_clock, _heard, punctual, _running) = in_memory().await;
    let mut mine = client(&database).await;
    let transaction = mine.transaction().await.unwrap();
    let timer = Timer::after(key("a"), SECOND);
    let error = punctual.schedule_in(&transaction, timer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("build with `postgres`"),
        "{error}"
    );
}

/// On the machine's clock, scheduled by an engine that fires, and by a client beside it.
#[tokio::test(flavor = "multi_thread")]
async fn it_fires_on_the_machine_s_clock_whoever_has_scheduled_it() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let (told, mut heard) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .postgres(database.url())
        .on_due(move |due| {
            let sent = told.send(due.read::<String>());
            async move { Ok(sent?) }
        })
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let beside = Punctual::builder().postgres_client(database.url());
    let beside = beside.build().await.unwrap();
    let mut mine = client(&database).await;
    for (punctual, whose) in [(&punctual, "its own"), (&beside, "a client's")] {
        let transaction = mine.transaction().await.unwrap();
        let timer = Timer::after(key(whose), Duration::from_millis(20));
        let timer = timer.data(whose).unwrap();
        let _ = punctual.schedule_in(&transaction, timer).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(heard.recv().await.unwrap().unwrap(), whose);
    }
    running.shutdown().await.unwrap();
}
