//! Scheduling inside the caller's own transaction.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_postgres::tokio_postgres::{Client, NoTls, Notification, Transaction};
use punctual_adapters_postgres::{
    CommitNotify, ConnectionProbe, PostgresSettings, PostgresTimerStore, PostgresUrl, SchemaSet,
    Statements, tokio_postgres,
};
use punctual_adapters_system::SystemClock;
use punctual_domain::{
    CorrelationId, MarkOutcome, ScheduleOrigin, TenantId, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    Claim, ClaimOutcome, ClockPort, FiredTimer, PortError, PortErrorKind, RetryLater, SaveOutcome,
    SaveTimer, TimerPersistencePort, TimerQueuePort,
};
use punctual_test_servers::SharedDatabase;
use tokio::sync::mpsc;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(8);

/// A shop whose orders are in the same database as its timers, on the machine's clock.
struct Shop {
    database: SharedDatabase,
    clock: Arc<SystemClock>,
    store: PostgresTimerStore,
}

impl Shop {
    /// `None` if there is no server.
    async fn open() -> Option<Self> {
        Self::open_with(|_| ()).await
    }

    async fn open_with(change: impl FnOnce(&mut PostgresSettings)) -> Option<Self> {
        let database = SharedDatabase::create()?;
        let clock = Arc::new(SystemClock::start().unwrap());
        let mut settings = PostgresSettings::timers(PostgresUrl::new(&database.url()).unwrap());
        change(&mut settings);
        let opening = PostgresTimerStore::open(&settings, clock.clone(), Uuid::from_u128(1));
        let store = opening.await.unwrap();
        let shop = Self {
            database,
            clock,
            store,
        };
        let orders = "CREATE TABLE orders (id text PRIMARY KEY)";
        shop.client().await.batch_execute(orders).await.unwrap();
        Some(shop)
    }

    /// A connection of the caller's.
    async fn client(&self) -> Client {
        let url = self.database.url();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn timer(&self, name: &str) -> SaveTimer {
        SaveTimer {
            key: key(name),
            correlation_id: CorrelationId::from_uuid(Uuid::nil()),
            due_at: self.clock.now(),
            data: None,
            origin: ScheduleOrigin::Direct,
        }
    }

    async fn schedule(&self, transaction: &Transaction<'_>, timer: &SaveTimer) -> SaveOutcome {
        let now = self.clock.now();
        let saved = self.store.schedule_in(transaction, timer, now).await;
        saved.unwrap()
    }

    /// Why the timer `a` is not scheduled.
    async fn refuse(&self, transaction: &Transaction<'_>) -> PortError {
        let (timer, now) = (self.timer("a"), self.clock.now());
        let saved = self.store.schedule_in(transaction, &timer, now).await;
        saved.unwrap_err()
    }

    async fn save(&self, timer: &SaveTimer) -> SaveOutcome {
        let saved = self.store.save(vec![timer.clone()], self.clock.now()).await;
        *saved.unwrap()[0].as_ref().unwrap()
    }

    async fn find(&self, name: &str) -> Option<TimerEntry> {
        self.store.find(key(name)).await.unwrap()
    }

    /// What is due and free. The server's clock may be a moment behind.
    async fn claim(&self) -> Vec<Claim> {
        let now = self.clock.now().saturating_add(Duration::from_secs(1));
        let batch = self.store.claim_due(now, 100, LEASE).await;
        batch.unwrap().claims
    }

    async fn mark(&self, claims: &[&Claim]) -> Vec<Result<MarkOutcome, PortErrorKind>> {
        let fired = claims.iter().map(|claim| FiredTimer {
            firing_id: claim.timer.firing_id(),
            reached_at: self.clock.now().max(claim.timer.registration.due_at),
        });
        let marked = self.store.mark_fired(fired.collect()).await.unwrap();
        let kind = |it: Result<_, PortError>| it.map_err(|error| error.kind());
        marked.into_iter().map(kind).collect()
    }
}

fn key(name: &str) -> TimerKey {
    TimerKey::named(TenantId::default(), name)
}

async fn setting(transaction: &Transaction<'_>, name: &str) -> String {
    let show = format!("SHOW {name}");
    transaction
        .query_typed_one(&show, &[])
        .await
        .unwrap()
        .get(0)
}

/// Waits until a connection of the database waits for a lock.
async fn until_somebody_waits(client: &Client) {
    let waiting = "SELECT 1 FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while client.query_typed(waiting, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_row_and_its_timer_commit_or_roll_back_together() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let mut mine = shop.client().await;
    for (name, commits) in [("kept", true), ("dropped", false)] {
        let transaction = mine.transaction().await.unwrap();
        let order = format!("INSERT INTO orders VALUES ('{name}')");
        transaction.batch_execute(&order).await.unwrap();
        let outcome = shop.schedule(&transaction, &shop.timer(name)).await;
        assert_eq!(outcome, SaveOutcome::Created);
        assert_eq!(shop.find(name).await, None);
        assert!(shop.claim().await.is_empty(), "nobody has committed");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(shop.find(name).await.is_some(), commits, "{name}");
        assert_eq!(shop.claim().await.len(), usize::from(commits), "{name}");
    }
    let orders = mine.query_typed("SELECT id FROM orders", &[]).await;
    assert_eq!(orders.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_are_the_same_as_for_any_other_schedule() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let [direct, reached] = ["a", "b"].map(|name| shop.timer(name));
    shop.save(&direct).await;
    let deleted_at = shop.clock.now();
    let deleted = shop.store.delete(vec![key("a")], deleted_at).await;
    // Due timers of a server that has just been created may be firing.
    let _ = deleted.unwrap();
    shop.save(&reached).await;
    let claims = shop.claim().await;
    let claim = claims.iter().find(|claim| claim.timer.key == key("b"));
    assert_eq!(
        shop.mark(&[claim.unwrap()]).await,
        [Ok(MarkOutcome::Marked)]
    );

    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    let outcome = async |timer: SaveTimer| shop.schedule(&transaction, &timer).await;
    assert_eq!(outcome(reached.clone()).await, SaveOutcome::AlreadyReached);
    let sent_at = Timestamp::MIN;
    let late = SaveTimer {
        origin: ScheduleOrigin::Command { sent_at },
        ..direct
    };
    assert_eq!(outcome(late).await, SaveOutcome::Stale);
    assert_eq!(outcome(shop.timer("new")).await, SaveOutcome::Created);
    assert_eq!(outcome(shop.timer("new")).await, SaveOutcome::Rescheduled);
    let again = SaveTimer {
        origin: ScheduleOrigin::Replacement,
        ..reached
    };
    assert_eq!(outcome(again).await, SaveOutcome::Rescheduled);
    transaction.commit().await.unwrap();
    assert!(shop.find("new").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_key_is_scheduled_anew() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let later = SaveTimer {
        due_at: shop.clock.now().saturating_add(Duration::from_hours(1)),
        ..shop.timer("a")
    };
    shop.save(&later).await;
    let deleted = shop.store.delete(vec![key("a")], shop.clock.now()).await;
    let deleted = *deleted.unwrap()[0].as_ref().unwrap();
    assert_eq!(deleted, punctual_ports::DeleteOutcome::Deleted);
    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    let outcome = shop.schedule(&transaction, &shop.timer("a")).await;
    assert_eq!(outcome, SaveOutcome::Created);
    transaction.commit().await.unwrap();
    assert_eq!(shop.claim().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_of_a_service_call_that_is_not_there_is_not_stored() {
    let Some(shop) = Shop::open_with(|settings| settings.set = SchemaSet::Shared).await else {
        return;
    };
    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    let outcome = shop.schedule(&transaction, &shop.timer("orphan")).await;
    assert_eq!(outcome, SaveOutcome::NoParent);
    transaction.commit().await.unwrap();
    assert_eq!(shop.find("orphan").await, None);
}

/// By `now()` it would be registered when the transaction began, and a command that came in between would
/// count as newer.
#[tokio::test(flavor = "multi_thread")]
async fn a_timer_is_registered_when_it_is_scheduled_and_not_when_its_transaction_began() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let (mut mine, other) = (shop.client().await, shop.client().await);
    let transaction = mine.transaction().await.unwrap();
    let begun = "SELECT (extract(epoch FROM now()) * 1000)::int8";
    let begun: i64 = transaction
        .query_typed_one(begun, &[])
        .await
        .unwrap()
        .get(0);
    let clock = "SELECT trunc(extract(epoch FROM clock_timestamp()) * 1000)::int8";
    let read_clock = async || -> i64 { other.query_typed_one(clock, &[]).await.unwrap().get(0) };
    let mut scheduled_after = begun;
    while scheduled_after < begun + 2 {
        scheduled_after = read_clock().await;
    }
    // The first is inserted, the second changes what the first has inserted.
    for outcome in [SaveOutcome::Created, SaveOutcome::Rescheduled] {
        assert_eq!(shop.schedule(&transaction, &shop.timer("a")).await, outcome);
    }
    shop.schedule(&transaction, &shop.timer("b")).await;
    transaction.commit().await.unwrap();
    for name in ["a", "b"] {
        let registered_at = shop
            .find(name)
            .await
            .unwrap()
            .timer()
            .registration
            .registered_at;
        assert!(registered_at.as_millis() >= scheduled_after, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_transaction_with_the_same_key_waits_for_the_first() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let (mut one, mut two, other) = tokio::join!(shop.client(), shop.client(), shop.client());
    for (name, commits, expected) in [
        ("a", true, SaveOutcome::Rescheduled),
        ("b", false, SaveOutcome::Created),
    ] {
        let timer = shop.timer(name);
        let first = one.transaction().await.unwrap();
        shop.schedule(&first, &timer).await;
        let second = two.transaction().await.unwrap();
        let end_first = async {
            until_somebody_waits(&other).await;
            if commits {
                first.commit().await.unwrap();
            } else {
                first.rollback().await.unwrap();
            }
        };
        let (outcome, ()) = tokio::join!(shop.schedule(&second, &timer), end_first);
        assert_eq!(outcome, expected, "{name}");
        second.commit().await.unwrap();
    }
    assert_eq!(shop.claim().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_another_transaction_is_bounded() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let (mut one, mut two) = tokio::join!(shop.client(), shop.client());
    let first = one.transaction().await.unwrap();
    shop.schedule(&first, &shop.timer("a")).await;
    let bound = "SET LOCAL lock_timeout = '20ms'";
    let second = two.transaction().await.unwrap();
    second.batch_execute(bound).await.unwrap();
    let error = shop.refuse(&second).await;
    assert_eq!(error.kind(), PortErrorKind::Busy);
    second.rollback().await.unwrap();

    // A snapshot of its own cannot see what the first has committed meanwhile.
    let isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    let second = two.transaction().await.unwrap();
    second.batch_execute(isolation).await.unwrap();
    first.commit().await.unwrap();
    let error = shop.refuse(&second).await;
    assert_eq!(error.kind(), PortErrorKind::Busy);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_bound_of_the_callers_counts_and_its_settings_are_as_they_were() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let mut mine = shop.client().await;
    let sql = Statements::of("public");
    for (theirs, during) in [("0", "5s"), ("20ms", "20ms"), ("1min", "5s")] {
        let transaction = mine.transaction().await.unwrap();
        let set = format!("SET LOCAL lock_timeout = '{theirs}'");
        transaction.batch_execute(&set).await.unwrap();
        transaction.batch_execute(&sql.bound_waits).await.unwrap();
        assert_eq!(setting(&transaction, "lock_timeout").await, during);
        transaction.batch_execute(&sql.restore_waits).await.unwrap();
        for outcome in [SaveOutcome::Created, SaveOutcome::Rescheduled] {
            assert_eq!(shop.schedule(&transaction, &shop.timer("a")).await, outcome);
            assert_eq!(setting(&transaction, "lock_timeout").await, theirs);
            assert_eq!(setting(&transaction, "enable_seqscan").await, "on");
            assert_eq!(setting(&transaction, "synchronous_commit").await, "on");
        }
        transaction.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_savepoint_takes_back_leaves_nothing() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let mut mine = shop.client().await;
    let mut transaction = mine.transaction().await.unwrap();
    shop.schedule(&transaction, &shop.timer("kept")).await;
    let inner = transaction.savepoint("mine").await.unwrap();
    shop.schedule(&inner, &shop.timer("dropped")).await;
    shop.schedule(&inner, &shop.timer("kept")).await;
    inner.rollback().await.unwrap();
    let inner = transaction.savepoint("mine").await.unwrap();
    shop.schedule(&inner, &shop.timer("also kept")).await;
    inner.commit().await.unwrap();
    transaction.commit().await.unwrap();
    let mut claimed: Vec<_> = shop
        .claim()
        .await
        .into_iter()
        .map(|it| it.timer.key)
        .collect();
    let mut expected = [key("kept"), key("also kept")];
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_found_whatever_the_search_path_and_temporary_tables_are() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let mut mine = shop.client().await;
    let theirs = "CREATE TEMP TABLE timers (LIKE public.timers INCLUDING ALL); \
        CREATE TEMP TABLE timer_queue (LIKE public.timer_queue INCLUDING ALL); \
        CREATE SCHEMA theirs; SET search_path = theirs";
    mine.batch_execute(theirs).await.unwrap();
    let transaction = mine.transaction().await.unwrap();
    for outcome in [SaveOutcome::Created, SaveOutcome::Rescheduled] {
        assert_eq!(shop.schedule(&transaction, &shop.timer("a")).await, outcome);
    }
    transaction.commit().await.unwrap();
    assert_eq!(shop.claim().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_on_another_database_is_refused_before_it_is_written_to() {
    let (Some(shop), Some(other)) = (Shop::open().await, Shop::open().await) else {
        return;
    };
    let mut theirs = other.client().await;
    let transaction = theirs.transaction().await.unwrap();
    let error = shop.refuse(&transaction).await;
    assert_eq!(error.kind(), PortErrorKind::Rejected);
    assert!(error.to_string().contains(other.database.name()), "{error}");
    assert!(error.to_string().contains("the schema public"), "{error}");
    transaction.commit().await.unwrap();
    assert_eq!(other.find("a").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_takes_no_timer() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let mut mine = shop.client().await;
    shop.store.close().await;
    let transaction = mine.transaction().await.unwrap();
    let error = shop.refuse(&transaction).await;
    assert_eq!(error.kind(), PortErrorKind::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reschedule_during_a_firing_leaves_the_new_schedule_free() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let timer = shop.timer("a");
    shop.save(&timer).await;
    let old = shop.claim().await;
    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    let outcome = shop.schedule(&transaction, &timer).await;
    assert_eq!(outcome, SaveOutcome::Rescheduled);
    assert!(shop.claim().await.is_empty(), "nobody has committed");
    transaction.commit().await.unwrap();
    assert_eq!(shop.mark(&[&old[0]]).await, [Ok(MarkOutcome::Moved)]);
    let new = shop.claim().await;
    assert_eq!(new.len(), 1);
    assert_eq!(shop.mark(&[&new[0]]).await, [Ok(MarkOutcome::Marked)]);
}

/// As when a handler reschedules its own timer in a transaction that stays open.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_delays_no_other_timers() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let names = ["a", "b", "c", "d"];
    for name in names {
        shop.save(&shop.timer(name)).await;
    }
    let claims = shop.claim().await;
    let of = |name| claims.iter().find(|it| it.timer.key == key(name)).unwrap();
    let [a, b, c, d] = names.map(of);
    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    shop.schedule(&transaction, &shop.timer("a")).await;

    let all = || vec![a.reference(), b.reference()];
    let renewed = shop.store.renew(all(), shop.clock.now(), LEASE).await;
    let applied = renewed.unwrap().into_iter().map(Result::ok);
    let applied: Vec<_> = applied
        .map(|it| it == Some(ClaimOutcome::Applied))
        .collect();
    assert_eq!(applied, [false, true], "renewed");
    let marked = shop.mark(&[a, b]).await;
    assert_eq!(marked, [Err(PortErrorKind::Busy), Ok(MarkOutcome::Marked)]);
    let retry = |claim: &Claim| RetryLater::new(claim.reference(), shop.clock.now(), "busy");
    let retried = shop.store.retry_later(vec![retry(a), retry(c)]).await;
    let retried: Vec<_> = retried.unwrap().into_iter().map(Result::ok).collect();
    assert_eq!(retried, [None, Some(ClaimOutcome::Applied)]);
    let released = shop.store.release(vec![a.reference(), d.reference()]).await;
    let released: Vec<_> = released.unwrap().into_iter().map(Result::ok).collect();
    assert_eq!(released[1], Some(ClaimOutcome::Applied));
    let batch = ["a", "e", "c", "f"].map(|name| shop.timer(name)).to_vec();
    let saved = shop.store.save(batch, shop.clock.now()).await.unwrap();
    let saved: Vec<_> = saved.into_iter().map(Result::ok).collect();
    let (created, rescheduled) = (SaveOutcome::Created, SaveOutcome::Rescheduled);
    let expected = [None, Some(created), Some(rescheduled), Some(created)];
    assert_eq!(saved, expected);

    transaction.commit().await.unwrap();
    assert_eq!(shop.mark(&[a]).await, [Ok(MarkOutcome::Moved)]);
}

/// The payloads of all notifications up to the one that ends this.
async fn notifications(shop: &Shop, work: impl AsyncFnOnce(Client)) -> Vec<String> {
    let url = PostgresUrl::new(&shop.database.url()).unwrap();
    let (sender, mut received) = mpsc::unbounded_channel();
    let hear = move |notification: Notification| {
        let _ = sender.send(notification.payload().to_owned());
    };
    let listener = ConnectionProbe::connect_listening(&url, shop.clock.as_ref(), hear);
    let listener = listener.await.unwrap();
    let listen = "LISTEN punctual_timers";
    listener.client().batch_execute(listen).await.unwrap();
    work(shop.client().await).await;
    let end = "NOTIFY punctual_timers, 'end'";
    shop.client().await.batch_execute(end).await.unwrap();
    let mut payloads = Vec::new();
    loop {
        match received.recv().await.unwrap() {
            end if end == "end" => return payloads,
            payload => payloads.push(payload),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_wakes_others_where_that_is_worth_it() {
    use CommitNotify::{Always, IfSoon, Never};
    for (setting, polls, expected) in [
        (IfSoon, false, 1),
        (IfSoon, true, 0),
        (Always, true, 2),
        (Never, false, 0),
    ] {
        let Some(shop) = Shop::open_with(|settings| settings.commit_notify = setting).await else {
            return;
        };
        if polls {
            assert!(shop.claim().await.is_empty());
        }
        let payloads = notifications(&shop, async |mut mine: Client| {
            let later = SaveTimer {
                due_at: shop.clock.now().saturating_add(Duration::from_hours(1)),
                ..shop.timer("later")
            };
            for commits in [true, false] {
                let transaction = mine.transaction().await.unwrap();
                shop.schedule(&transaction, &shop.timer("now")).await;
                shop.schedule(&transaction, &later).await;
                if commits {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
            }
        });
        let payloads = payloads.await;
        assert_eq!(payloads.len(), expected, "{setting:?}: {payloads:?}");
    }
}

/// The instance that stored it learns of the commit by the notification, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_watching_store_learns_of_the_commit_at_once() {
    let Some(shop) = Shop::open_with(|it| it.commit_notify = CommitNotify::Always).await else {
        return;
    };
    let (sender, mut changes) = mpsc::unbounded_channel();
    let store = shop.store.clone();
    let watch = tokio::spawn(async move {
        let on_change = Arc::new(move || sender.send(()).unwrap_or_default());
        Box::pin(store.watch_others(on_change)).await;
    });
    // It listens.
    changes.recv().await.unwrap();
    let mut mine = shop.client().await;
    let transaction = mine.transaction().await.unwrap();
    shop.schedule(&transaction, &shop.timer("a")).await;
    while changes.try_recv().is_ok() {}
    transaction.commit().await.unwrap();
    changes.recv().await.unwrap();
    assert_eq!(shop.claim().await.len(), 1);
    watch.abort();
}

/// In a transaction of the caller's the planner is the caller's, too: no statement may depend on settings.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_whole_table_under_the_settings_of_the_caller() {
    let Some(shop) = Shop::open().await else {
        return;
    };
    let fill = "INSERT INTO timers (tenant_id, service_call_id, correlation_id, due_at, registered_at) \
            SELECT 't' || n % 10, gen_random_uuid(), gen_random_uuid(), now(), now() \
            FROM generate_series(1, 20000) n; \
        INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, tenant_id) \
            SELECT id, due_at, registered_at, due_at, tenant_id FROM timers; \
        INSERT INTO timer_firings (timer_id, reached_at) SELECT id, due_at FROM timers; \
        INSERT INTO timer_claims SELECT id, 1, gen_random_uuid(), now() FROM timers";
    let client = shop.client().await;
    client.batch_execute(fill).await.unwrap();
    let sql = Statements::of("public");
    let keys = "ARRAY['t1'], ARRAY['0190a8f4-0000-7000-8000-000000000001'::uuid]";
    let (id, at) = ("ARRAY[5::bigint]", "ARRAY[now()]");
    let uuid = "ARRAY['0190a8f4-0000-7000-8000-000000000001'::uuid]";
    let none = "ARRAY[NULL::text]";
    let statements = [
        (&sql.lock_timers, "text[], uuid[]", keys.to_owned()),
        (&sql.lock_queue, "text[], uuid[]", keys.to_owned()),
        (
            &sql.reschedule_timers,
            "bigint[], uuid[], timestamptz[], timestamptz[], text[]",
            format!("{id}, {uuid}, {at}, {at}, {none}"),
        ),
        (
            &sql.requeue,
            "bigint[], timestamptz[], timestamptz[], text[]",
            format!("{id}, {at}, {at}, ARRAY['t1']"),
        ),
        (&sql.remove_firings, "bigint[]", id.to_owned()),
        (&sql.remove_claims, "bigint[]", id.to_owned()),
    ];
    let unknown = "UPDATE pg_class SET reltuples = 0 WHERE relname LIKE 'timer%'";
    for statistics in ["ANALYZE", unknown] {
        client.batch_execute(statistics).await.unwrap();
        for (number, (text, types, values)) in statements.iter().enumerate() {
            let prepare = format!("PREPARE s{number} ({types}) AS {text}");
            client.batch_execute(&prepare).await.unwrap();
            let explain = format!("EXPLAIN EXECUTE s{number} ({values})");
            let plan = client.simple_query(&explain).await.unwrap();
            let plan = format!("{plan:#?}");
            assert!(!plan.contains("Seq Scan"), "{text}: {plan}");
            let deallocate = format!("DEALLOCATE s{number}");
            client.batch_execute(&deallocate).await.unwrap();
        }
    }
}
