//! Scheduling inside a caller's own transaction.

use std::path::PathBuf;
use std::time::Duration;

use punctual::rusqlite::{Connection, TransactionBehavior};
use punctual::testing::{ClockPort, FakeClock};
use punctual::{DueTimeReached, ErrorKind, Punctual, Running, ScheduleOutcome, Timer};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::fixture::{Heard, SECOND, clock, in_memory, key};

struct Shop {
    _folder: TempDir,
    path: PathBuf,
    mine: Connection,
    clock: FakeClock,
    heard: Heard,
    punctual: Punctual,
    _running: Running,
}

impl Shop {
    /// A shop whose orders are in the same file as its timers, on a fake clock.
    async fn open() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("shop.db");
        let (clock, heard) = (clock(), Heard::default());
        let builder = heard.builder().sqlite(&path).fake_clock(clock.clone());
        let punctual = builder.build().await.unwrap();
        let running = punctual.start().await.unwrap();
        let mine = Connection::open(&path).unwrap();
        mine.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY)")
            .unwrap();
        Self {
            _folder: folder,
            path,
            mine,
            clock,
            heard,
            punctual,
            _running: running,
        }
    }

    fn orders(&self) -> i64 {
        let count = |row: &punctual::rusqlite::Row<'_>| row.get(0);
        self.mine
            .query_row("SELECT count(*) FROM orders", [], count)
            .unwrap()
    }
}

#[tokio::test]
async fn a_transaction_of_a_handler_is_found_by_its_hint_long_before_the_next_poll() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("shop.db");
    let (clock, heard) = (clock(), Heard::default());
    let (file, hearing) = (path.clone(), heard.clone());
    let minutes = Duration::from_mins;
    // It commits while time passes, so no poll at the beginning of that can have found its timer.
    let handler = move |due: DueTimeReached, punctual: Punctual| {
        hearing.hear(due.clone());
        if due.key() == key("first") {
            let mut mine = Connection::open(&file).unwrap();
            let behaviour = TransactionBehavior::Immediate;
            let transaction = mine.transaction_with_behavior(behaviour).unwrap();
            let next = Timer::after(key("next"), minutes(10));
            let _ = punctual.schedule_in(&transaction, next).unwrap();
            transaction.commit().unwrap();
        }
        std::future::ready(Ok(()))
    };
    let builder = Punctual::builder().on_due_with(handler).sqlite(&path);
    let punctual = builder.fake_clock(clock.clone()).build().await.unwrap();
    let _running = punctual.start().await.unwrap();
    let first = Timer::after(key("first"), minutes(10));
    let _ = punctual.schedule(first).await.unwrap();
    clock.advance(minutes(30)).await;
    let heard = heard.all();
    assert_eq!(heard.len(), 2, "the poll is an hour away");
    assert_eq!(heard[1].reached_at, heard[1].due_at);
}

#[tokio::test]
async fn row_and_timer_commit_together_and_the_timer_fires_on_time() {
    let mut shop = Shop::open().await;
    shop.clock.advance(10 * SECOND).await;
    let behaviour = TransactionBehavior::Immediate;
    let transaction = shop.mine.transaction_with_behavior(behaviour).unwrap();
    transaction
        .execute("INSERT INTO orders VALUES ('a')", [])
        .unwrap();
    let timer = Timer::after(key("a"), SECOND).data("pay").unwrap();
    let outcome = shop.punctual.schedule_in(&transaction, timer).unwrap();
    assert_eq!(outcome, ScheduleOutcome::Created);
    transaction.commit().unwrap();
    shop.clock.advance(SECOND).await;
    let heard = shop.heard.all();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].reached_at, heard[0].due_at);
    assert_eq!(heard[0].read::<String>().unwrap(), "pay");
    assert_eq!(shop.orders(), 1);
}

#[tokio::test]
async fn a_rolled_back_transaction_leaves_neither() {
    let mut shop = Shop::open().await;
    let transaction = shop.mine.transaction().unwrap();
    transaction
        .execute("INSERT INTO orders VALUES ('a')", [])
        .unwrap();
    let timer = Timer::after(key("a"), SECOND);
    let _ = shop.punctual.schedule_in(&transaction, timer).unwrap();
    transaction.rollback().unwrap();
    shop.clock.advance(Duration::from_mins(1)).await;
    assert_eq!(shop.heard.count(), 0);
    assert_eq!(shop.orders(), 0);
    assert_eq!(shop.punctual.find(&key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_commit_after_the_due_time_is_found_long_before_the_next_poll() {
    let mut shop = Shop::open().await;
    // A poll has just been: the next is five seconds away.
    shop.clock.advance(10 * SECOND).await;
    let transaction = shop.mine.transaction().unwrap();
    let timer = Timer::after(key("a"), Duration::from_millis(10));
    let _ = shop.punctual.schedule_in(&transaction, timer).unwrap();
    shop.clock.advance(Duration::from_millis(100)).await;
    assert_eq!(shop.heard.count(), 0, "nobody has committed");
    transaction.commit().unwrap();
    shop.clock.advance(Duration::from_millis(200)).await;
    assert_eq!(shop.heard.count(), 1);
}

#[tokio::test]
async fn a_timer_that_has_fired_is_not_scheduled_again() {
    let mut shop = Shop::open().await;
    let _ = shop
        .punctual
        .schedule(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    shop.clock.advance(SECOND).await;
    let transaction = shop.mine.transaction().unwrap();
    let error = shop
        .punctual
        .schedule_in(&transaction, Timer::after(key("a"), SECOND))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyReached);
    assert!(error.to_string().contains("replace"), "{error}");
}

#[tokio::test]
async fn a_transaction_on_another_file_is_refused_before_it_is_written_to() {
    let mut shop = Shop::open().await;
    let mut memory = Connection::open_in_memory().unwrap();
    let transaction = memory.transaction().unwrap();
    let timer = || Timer::after(key("a"), SECOND);
    let refused = shop.punctual.schedule_in(&transaction, timer());
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("on no file"), "{error}");
    assert!(error.to_string().contains("shop.db"), "{error}");
    drop(transaction);
    // The same file by another name is the same file.
    let link = shop.path.with_extension("link");
    std::os::unix::fs::symlink(&shop.path, &link).unwrap();
    shop.mine = Connection::open(&link).unwrap();
    let transaction = shop.mine.transaction().unwrap();
    let _ = shop.punctual.schedule_in(&transaction, timer()).unwrap();
}

#[tokio::test]
async fn a_transaction_that_cannot_write_any_more_is_told_how_to_begin() {
    let mut shop = Shop::open().await;
    let transaction = shop.mine.transaction().unwrap();
    let count = |row: &punctual::rusqlite::Row<'_>| row.get::<_, i64>(0);
    transaction
        .query_row("SELECT count(*) FROM orders", [], count)
        .unwrap();
    // Somebody else writes in between.
    let timer = || Timer::after(key("a"), SECOND);
    let _ = shop.punctual.schedule(timer()).await.unwrap();
    let error = shop
        .punctual
        .schedule_in(&transaction, timer())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(
        error.to_string().contains("TransactionBehavior::Immediate"),
        "{error}"
    );
}

#[tokio::test]
async fn timers_in_memory_cannot_be_in_a_transaction() {
    let (_clock, _heard, punctual, _running) = in_memory().await;
    let mut memory = Connection::open_in_memory().unwrap();
    let transaction = memory.transaction().unwrap();
    let refused = punctual.schedule_in(&transaction, Timer::after(key("a"), SECOND));
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("build with `sqlite`"), "{error}");
}

/// A temporary table of the caller's that happens to have our name is not where timers belong.
#[tokio::test]
async fn a_temporary_table_of_the_same_name_takes_no_timer() {
    let mut shop = Shop::open().await;
    let theirs = "CREATE TEMP TABLE timer_schedules AS SELECT * FROM main.timer_schedules; \
        CREATE UNIQUE INDEX temp.one ON timer_schedules (tenant_id, service_call_id); \
        CREATE TEMP TABLE tombstones AS SELECT * FROM main.tombstones";
    shop.mine.execute_batch(theirs).unwrap();
    let transaction = shop.mine.transaction().unwrap();
    let timer = Timer::after(key("a"), SECOND);
    let _ = shop.punctual.schedule_in(&transaction, timer).unwrap();
    transaction.commit().unwrap();
    shop.clock.advance(SECOND).await;
    assert_eq!(shop.heard.count(), 1);
}

/// On a fake clock, too, a commit long after the due time does not wait for the next poll.
#[tokio::test]
async fn what_others_committed_is_found_when_time_goes_on() {
    let mut shop = Shop::open().await;
    // What the engine has to write at the beginning would wait for our lock.
    shop.clock.advance(SECOND).await;
    let transaction = shop.mine.transaction().unwrap();
    let timer = |name| Timer::after(key(name), SECOND);
    let _ = shop.punctual.schedule_in(&transaction, timer("a")).unwrap();
    shop.clock.advance(Duration::from_mins(1)).await;
    transaction.commit().unwrap();
    shop.clock.advance(Duration::ZERO).await;
    assert_eq!(shop.heard.count(), 1);

    let client = Punctual::builder().sqlite_client(&shop.path);
    let client = client.fake_clock(shop.clock.clone()).build().await.unwrap();
    let _ = client.schedule(timer("b")).await.unwrap();
    shop.clock.advance(SECOND).await;
    assert_eq!(shop.heard.count(), 2);
}

/// A read of a file takes real time, which a fake clock cannot see. A task that sleeps on that clock
/// is no reason to let its time pass meanwhile.
#[tokio::test]
async fn time_does_not_pass_during_a_read_of_the_file_while_a_task_sleeps() {
    let shop = Shop::open().await;
    let sleeper = shop.clock.clone();
    tokio::spawn(async move { sleeper.sleep_for(Duration::from_hours(1_000)).await });
    for n in 0..20 {
        let timer = Timer::after(key(&n.to_string()), SECOND);
        let _ = shop.punctual.schedule(timer).await.unwrap();
        shop.clock.advance(Duration::from_mins(1)).await;
    }
    let heard = shop.heard.all();
    assert_eq!(heard.len(), 20);
    assert!(heard.iter().all(|due| due.reached_at == due.due_at));
}

/// On the machine's clock, with a poll that comes once a day: only the hint or the watch over
/// foreign commits can find them.
#[tokio::test(flavor = "multi_thread")]
async fn on_the_machine_s_clock_it_does_not_wait_for_the_poll_either() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("shop.db");
    let (told, mut heard) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .sqlite(&path)
        .polling_interval(Duration::from_hours(24))
        .on_due(move |due| {
            let sent = told.send(due.read::<String>());
            async move { Ok(sent?) }
        })
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let mut mine = Connection::open(&path).unwrap();
    let transaction = mine.transaction().unwrap();
    let timer = Timer::after(key("a"), Duration::from_millis(20));
    let timer = timer.data("in a transaction").unwrap();
    let _ = punctual.schedule_in(&transaction, timer).unwrap();
    transaction.commit().unwrap();
    assert_eq!(heard.recv().await.unwrap().unwrap(), "in a transaction");
    let client = Punctual::builder()
        .sqlite_client(&path)
        .build()
        .await
        .unwrap();
    let timer = Timer::after(key("b"), Duration::ZERO)
        .data("by a client")
        .unwrap();
    let _ = client.schedule(timer).await.unwrap();
    assert_eq!(heard.recv().await.unwrap().unwrap(), "by a client");
    running.shutdown().await.unwrap();
}
