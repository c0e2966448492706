//! Trouble of a server and of the way to it: what was acknowledged stays, what is unknown is an error, and
//! repeating it is harmless.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_postgres::{
    ConnectError, ConnectionProbe, PostgresSettings, PostgresTimerStore,
};
use punctual_domain::{
    DeadLetterOrigin, DeleteOutcome, ScheduleOrigin, TimerKey, TimerState, Timestamp,
};
use punctual_ports::{
    Backend, Claim, ClaimOutcome, DeadLetter, DeadLetterClaim, DeadLetterPort, FiredTimer,
    MarkOutcome, PortError, PortErrorKind, RetryLater, SaveOutcome, SaveTimer,
    TimerPersistencePort, TimerQueuePort,
};
use punctual_test_servers::{PostgresServer, Proxy};

use crate::scratch::{Scratch, key, now, open, save_some, settings, timer, timer_of};
use crate::store::machine_clock;

const LEASE: Duration = Duration::from_mins(1);

/// The last words of a transaction; its first ones are `READ COMMITTED`.
const COMMIT: &str = "COMMIT\0";

/// Where a commit is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It has not happened.
    Before,
    /// It has happened, and nobody gets to know it.
    After,
}

const CUTS: [Cut; 2] = [Cut::Before, Cut::After];

/// A store behind a proxy, and another way to the same tables.
struct Behind {
    proxy: Proxy,
    store: PostgresTimerStore,
    direct: PostgresTimerStore,
    _scratch: Scratch,
}

impl Behind {
    async fn new() -> Option<Self> {
        let scratch = Scratch::new()?;
        let proxy = Proxy::start(&scratch.url());
        Some(Self {
            store: open(&settings(&proxy.url())).await.unwrap(),
            proxy,
            direct: scratch.store().await,
            _scratch: scratch,
        })
    }

    /// Cuts the next commit of the store.
    async fn cut(&self, cut: Cut) {
        // One that polls tells nobody of what it saves: that would be another commit.
        self.store.claim_due(now(), 0, LEASE).await.unwrap();
        match cut {
            Cut::Before => self.proxy.cut_before(COMMIT),
            Cut::After => self.proxy.cut_after(COMMIT),
        }
    }

    async fn state(&self, number: usize) -> Option<TimerState> {
        let found = self.direct.find(key(number)).await.unwrap();
        found.map(|entry| entry.state())
    }
}

fn is_unavailable<T: std::fmt::Debug>(outcome: Result<T, PortError>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable());
}

/// The outcome of a batch of one.
fn only<T>(outcomes: Result<Vec<Result<T, PortError>>, PortError>) -> Result<T, PortError> {
    outcomes.and_then(|mut outcomes| outcomes.remove(0))
}

async fn save(store: &PostgresTimerStore, timer: SaveTimer) -> Result<SaveOutcome, PortError> {
    only(store.save(vec![timer], now()).await)
}

async fn claim_one(store: &PostgresTimerStore) -> Claim {
    let mut batch = store.claim_due(now(), 10, LEASE).await.unwrap();
    assert_eq!(batch.claims.len(), 1);
    batch.claims.remove(0)
}

fn fired(claim: &Claim) -> FiredTimer {
    FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: now(),
    }
}

async fn delete(store: &PostgresTimerStore, key: TimerKey) -> Result<DeleteOutcome, PortError> {
    only(store.delete(vec![key], now()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_whose_commit_was_cut_is_an_error_and_may_be_repeated() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        let mut command = timer(number);
        command.origin = ScheduleOrigin::Command { sent_at: now() };
        behind.cut(cut).await;
        is_unavailable(save(&behind.store, command.clone()).await);
        let is_stored = behind.state(number).await.is_some();
        assert_eq!(is_stored, cut == Cut::After);
        let expected = match cut {
            Cut::Before => SaveOutcome::Created,
            Cut::After => SaveOutcome::Unchanged,
        };
        let again = save(&behind.store, command.clone()).await.unwrap();
        assert_eq!(again, expected, "{cut:?}");
        // A newer command whose commit is cut in a change of what is stored.
        command.origin = ScheduleOrigin::Command {
            sent_at: now().saturating_add(Duration::from_millis(5)),
        };
        machine_clock().sleep_for(Duration::from_millis(10)).await;
        command.due_at = now();
        let wanted = command.due_at;
        // The insert that finds it existing is committed first.
        assert_eq!(
            save(&behind.store, command.clone()).await.unwrap(),
            SaveOutcome::Rescheduled
        );
        let entry = behind.direct.find(key(number)).await.unwrap().unwrap();
        assert_eq!(entry.timer().registration.due_at, wanted);
    }
    assert_eq!(behind.proxy.cuts(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_whose_commit_was_cut_is_an_error_and_may_be_repeated() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        save(&behind.direct, timer(number)).await.unwrap();
        let claim = claim_one(&behind.store).await;
        behind.cut(cut).await;
        is_unavailable(behind.store.mark_fired(vec![fired(&claim)]).await);
        let (state, expected) = match cut {
            Cut::Before => (TimerState::Scheduled, MarkOutcome::Marked),
            Cut::After => (TimerState::Reached, MarkOutcome::AlreadyReached),
        };
        assert_eq!(behind.state(number).await, Some(state));
        let again = only(behind.store.mark_fired(vec![fired(&claim)]).await);
        assert_eq!(again.unwrap(), expected);
        assert_eq!(behind.state(number).await, Some(TimerState::Reached));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_not_waited_for() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        save_some(&behind.direct, number * 10..number * 10 + 10).await;
        behind.cut(cut).await;
        is_unavailable(behind.store.claim_due(now(), 100, LEASE).await);
        let batch = behind.store.claim_due(now(), 100, LEASE).await.unwrap();
        assert_eq!(batch.claims.len(), 10, "{cut:?}");
        let marks = batch.claims.iter().map(fired).collect();
        for marked in behind.store.mark_fired(marks).await.unwrap() {
            assert_eq!(marked.unwrap(), MarkOutcome::Marked);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_whose_commit_was_cut_is_an_error_and_may_be_repeated() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        save(&behind.direct, timer(number)).await.unwrap();
        behind.cut(cut).await;
        is_unavailable(delete(&behind.store, key(number)).await);
        let expected = match cut {
            Cut::Before => DeleteOutcome::Deleted,
            Cut::After => DeleteOutcome::NotFound,
        };
        let again = delete(&behind.store, key(number)).await.unwrap();
        assert_eq!(again, expected);
        assert_eq!(behind.state(number).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_whose_commit_was_cut_counts_one_attempt() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        save(&behind.direct, timer(number)).await.unwrap();
        let claim = claim_one(&behind.store).await;
        let later = now().saturating_add(Duration::from_hours(1));
        let retry = RetryLater::new(claim.reference(), later, "no");
        behind.cut(cut).await;
        is_unavailable(behind.store.retry_later(vec![retry.clone()]).await);
        let expected = match cut {
            Cut::Before => ClaimOutcome::Applied,
            Cut::After => ClaimOutcome::Lost,
        };
        let again = only(behind.store.retry_later(vec![retry]).await).unwrap();
        assert_eq!(again, expected, "{cut:?}");
        let entry = behind.direct.find(key(number)).await.unwrap().unwrap();
        assert_eq!(entry.failures().attempts, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_whose_commit_was_cut_is_recorded_once() {
    let Some(behind) = Behind::new().await else {
        return;
    };
    for (number, cut) in CUTS.into_iter().enumerate() {
        save(&behind.direct, timer(number)).await.unwrap();
        let claim = claim_one(&behind.store).await;
        let given_up = DeadLetterClaim {
            claim: claim.reference(),
            reached_at: now(),
            dead_letter: DeadLetter {
                id: number.to_string(),
                origin: DeadLetterOrigin::Firing,
                tenant_id: Some(claim.timer.key.tenant_id.clone()),
                payload: vec![0, 255],
                reason: "never".to_owned(),
                failed_at: now(),
            },
        };
        behind.cut(cut).await;
        is_unavailable(behind.store.dead_letter(vec![given_up.clone()]).await);
        let expected = match cut {
            Cut::Before => ClaimOutcome::Applied,
            Cut::After => ClaimOutcome::Lost,
        };
        let again = only(behind.store.dead_letter(vec![given_up]).await).unwrap();
        assert_eq!(again, expected, "{cut:?}");
        assert_eq!(behind.state(number).await, Some(TimerState::Reached));
        let recorded = behind.direct.list(None, 10).await.unwrap();
        assert_eq!(recorded.len(), number + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nothing_is_answered_every_operation_ends_in_its_time() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let proxy = Proxy::start(&scratch.url());
    let mut settings = settings(&proxy.url());
    settings.time_limit = Duration::from_millis(500);
    let store = open(&settings).await.unwrap();
    save_some(&store, 0..1).await;
    let claim = claim_one(&store).await;
    store.find(key(0)).await.unwrap();
    delete(&store, key(9)).await.unwrap();
    proxy.hang();
    let clock = machine_clock();
    // The second time, the connections are given up, and others cannot be made.
    for _ in 0..2 {
        let before = clock.monotonic();
        let many = (1..20).map(|number| save(&store, timer(number)));
        let (saved, found, claimed, marked, deleted) = tokio::join!(
            futures_util::future::join_all(many),
            store.find(key(0)),
            store.claim_due(now(), 10, LEASE),
            store.mark_fired(vec![fired(&claim)]),
            delete(&store, key(0)),
        );
        saved.into_iter().for_each(is_unavailable);
        is_unavailable(found);
        is_unavailable(claimed);
        is_unavailable(marked);
        is_unavailable(deleted);
        let took = clock.monotonic().saturating_sub(before);
        // A claim first ends what an earlier one may have claimed.
        assert!(took < 5 * settings.time_limit, "{took:?}");
    }
    assert!(Backend::write_health(&store).problem.is_some());
    proxy.resume();
    for number in 0..20 {
        // What was sent while it hung may have been stored.
        let saved = until_available(|| save(&store, timer(number))).await;
        assert!(
            matches!(saved, SaveOutcome::Created | SaveOutcome::Rescheduled),
            "{saved:?}"
        );
    }
    assert!(Backend::write_health(&store).problem.is_none());
}

/// Tries again while the database is away, or busy with what was sent to it before.
async fn until_available<T, F: Future<Output = Result<T, PortError>>>(work: impl Fn() -> F) -> T {
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                machine_clock().sleep_for(Duration::from_millis(20)).await;
            }
        }
    }
}

/// What those who save share with whoever makes the trouble.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    acknowledged: AtomicUsize,
}

/// Saves one after the other until told to stop; returns the numbers that were acknowledged.
async fn keep_saving(store: PostgresTimerStore, load: Arc<Load>, first: usize) -> Vec<usize> {
    let mut acknowledged = Vec::new();
    let mut number = first;
    while !load.is_over.load(Ordering::SeqCst) {
        match save(&store, timer(number)).await {
            Ok(_) => {
                acknowledged.push(number);
                load.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        number += 10;
    }
    acknowledged
}

/// Whether a deletion of a due timer is refused, as it may be firing.
async fn is_firing(store: &PostgresTimerStore, number: usize) -> bool {
    let outcome = until_available(|| delete(store, key(number))).await;
    match outcome {
        DeleteOutcome::Firing => true,
        DeleteOutcome::Deleted => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_crashes_loses_claims_and_nothing_else() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let store = open(&settings(&server.url())).await.unwrap();
    let other = open(&settings(&server.url())).await.unwrap();
    let later = now().saturating_add(Duration::from_hours(1));
    for number in [100_001, 100_002] {
        save(&store, timer_of(key(number), later)).await.unwrap();
    }
    let mut crashes = 0;
    let mut claimed_at = Timestamp::MIN;
    let lease = Duration::from_secs(3);
    while crashes < 2 {
        let load = Arc::new(Load::default());
        let first = crashes * 50_000;
        let saving: Vec<_> = (0..4)
            .map(|saver| tokio::spawn(keep_saving(store.clone(), Arc::clone(&load), first + saver)))
            .collect();
        let before = loop {
            claimed_at = now();
            let batch = until_available(|| store.claim_due(now(), 5, lease)).await;
            let is_loaded = load.acknowledged.load(Ordering::SeqCst) > 100;
            if !batch.claims.is_empty() && is_loaded {
                break batch.claims;
            }
        };
        server.kill();
        server.restart();
        load.is_over.store(true, Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for saver in saving {
            acknowledged.extend(saver.await.unwrap());
        }
        let stored = server.execute("SELECT service_call_id FROM timers");
        let stored: HashSet<&str> = stored.lines().collect();
        for number in acknowledged {
            let id = key(number).service_call_id.to_string();
            assert!(stored.contains(id.as_str()), "{number} was acknowledged");
        }
        // Others claim at once what was claimed.
        let mut left: Vec<_> = before.iter().map(|it| it.timer.key.clone()).collect();
        while !left.is_empty() {
            let batch = until_available(|| other.claim_due(now(), 1_000, LEASE)).await;
            left.retain(|key| batch.claims.iter().all(|it| it.timer.key != *key));
            let claims = batch.claims.iter().map(Claim::reference).collect();
            other.release(claims).await.unwrap();
        }
        crashes += 1;
    }
    // Handlers may still be at work with claims that nobody knows.
    let due = 0;
    assert!(is_firing(&store, due).await);
    let not_due = delete(&store, key(100_001)).await.unwrap();
    assert_eq!(not_due, DeleteOutcome::Deleted);
    while is_firing(&store, due).await {
        machine_clock().sleep_for(Duration::from_millis(100)).await;
    }
    assert!(now().since(claimed_at) >= lease);
    assert_eq!(
        delete(&other, key(100_002)).await.unwrap(),
        DeleteOutcome::Deleted
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_restarted_is_found_again() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let store = open(&settings(&server.url())).await.unwrap();
    save_some(&store, 0..10).await;
    let batch = store.claim_due(now(), 5, LEASE).await.unwrap();
    assert_eq!(batch.claims.len(), 5);
    server.stop();
    for outcome in [
        save(&store, timer(50)).await.map(drop),
        store.find(key(0)).await.map(drop),
        store.claim_due(now(), 5, LEASE).await.map(drop),
    ] {
        is_unavailable(outcome);
    }
    server.restart();
    // After an orderly end claims are still there.
    let others = until_available(|| store.claim_due(now(), 10, LEASE)).await;
    assert_eq!(others.claims.len(), 5);
    for claim in batch.claims.iter().chain(&others.claims) {
        let marked = until_available(|| async { only(store.mark_fired(vec![fired(claim)]).await) });
        assert_eq!(marked.await, MarkOutcome::Marked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_free_connection_is_unavailable_until_there_is_one() {
    let Some(server) = PostgresServer::start_with(&[
        ("max_connections", "6"),
        ("superuser_reserved_connections", "0"),
    ]) else {
        return;
    };
    let store = open(&settings(&server.url())).await.unwrap();
    save_some(&store, 0..1).await;
    let mut taken = Vec::new();
    let mut refused = 0;
    // Connections that were closed just now end a little later.
    while refused < 3 {
        match take_connection(&settings(&server.url())).await {
            Ok(probe) => taken.push(probe),
            Err(_) => refused += 1,
        }
        machine_clock().sleep_for(Duration::from_millis(50)).await;
    }
    // For claims it needs another one than for saves.
    let error = store.claim_due(now(), 1, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable);
    assert!(error.to_string().contains("too many clients"), "{error}");
    let error = open(&settings(&server.url())).await.err().unwrap();
    assert!(error.is_retryable(), "{error}");
    drop(taken);
    let batch = until_available(|| store.claim_due(now(), 1, LEASE)).await;
    assert_eq!(batch.claims.len(), 1);
}

async fn take_connection(settings: &PostgresSettings) -> Result<ConnectionProbe, ConnectError> {
    let clock = machine_clock();
    ConnectionProbe::connect(&settings.url, None, clock.as_ref()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_foreign_transaction_has_locked_is_busy_and_claims_pass_over_it() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let store = scratch.store().await;
    save_some(&store, 0..3).await;
    let outsider = take_connection(&scratch.settings()).await.unwrap();
    let lock = "BEGIN; SELECT 1 FROM timers t JOIN timer_queue q ON q.timer_id = t.id
        WHERE t.id = 1 FOR UPDATE";
    outsider.client().batch_execute(lock).await.unwrap();
    let clock = machine_clock();
    let before = clock.monotonic();
    // The others are claimed at once.
    let batch = store.claim_due(now(), 10, LEASE).await.unwrap();
    assert_eq!(batch.claims.len(), 2);
    let took = clock.monotonic().saturating_sub(before);
    assert!(took < Duration::from_secs(2), "{took:?}");

    let mut moved = timer(0);
    moved.due_at = now();
    let (saved, deleted) = tokio::join!(save(&store, moved), delete(&store, key(0)));
    for error in [saved.map(drop).unwrap_err(), deleted.map(drop).unwrap_err()] {
        assert_eq!(error.kind(), PortErrorKind::Busy, "{error}");
        assert!(error.is_retryable());
    }
    let took = clock.monotonic().saturating_sub(before);
    assert!(took < Duration::from_secs(9), "{took:?}");
    // A lock on one timer keeps nobody from another.
    save_some(&store, 10..12).await;
    assert!(Backend::write_health(&store).problem.is_none());
    outsider.client().batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        delete(&store, key(0)).await.unwrap(),
        DeleteOutcome::Deleted
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_wait_for_a_foreign_transaction_hold_up_no_others() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let store = scratch.store().await;
    let other = TimerKey::named("other".parse().unwrap(), "1");
    let later = now().saturating_add(Duration::from_hours(1));
    for key in [key(0), other.clone()] {
        save(&store, timer_of(key, later)).await.unwrap();
    }
    let outsider = take_connection(&scratch.settings()).await.unwrap();
    let lock = "BEGIN; SELECT 1 FROM timers WHERE id = 1 FOR UPDATE";
    outsider.client().batch_execute(lock).await.unwrap();
    let blocked_ended = AtomicUsize::new(0);
    let blocked = (0..10).map(|_| async {
        let outcome = delete(&store, key(0)).await;
        blocked_ended.fetch_add(1, Ordering::SeqCst);
        outcome
    });
    let passing = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while scratch.execute(waiting) == "0" {
            machine_clock().sleep_for(Duration::from_millis(5)).await;
        }
        let outcome = delete(&store, other).await.unwrap();
        (outcome, blocked_ended.load(Ordering::SeqCst))
    };
    let (blocked, passed) = tokio::join!(futures_util::future::join_all(blocked), passing);
    assert_eq!(passed, (DeleteOutcome::Deleted, 0));
    for outcome in blocked {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), PortErrorKind::Busy, "{error}");
        assert!(error.is_retryable());
    }
    outsider.client().batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        delete(&store, key(0)).await.unwrap(),
        DeleteOutcome::Deleted
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_happens_once_the_foreign_transaction_has_ended() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let store = scratch.store().await;
    let later = now().saturating_add(Duration::from_hours(1));
    save(&store, timer_of(key(0), later)).await.unwrap();
    let outsider = take_connection(&scratch.settings()).await.unwrap();
    let lock = "BEGIN; SELECT 1 FROM timers WHERE id = 1 FOR UPDATE";
    outsider.client().batch_execute(lock).await.unwrap();
    let ending = async {
        let waiting = "SELECT xact_start FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let mut tries = HashSet::new();
        // The second one waits: the first has given up.
        while tries.len() < 2 {
            tries.extend(scratch.rows(waiting));
            tokio::task::yield_now().await;
        }
        outsider.client().batch_execute("ROLLBACK").await.unwrap();
    };
    let deleting = (0..3).map(|_| delete(&store, key(0)));
    let (deleted, ()) = tokio::join!(futures_util::future::join_all(deleting), ending);
    let mut deleted: Vec<_> = deleted.into_iter().map(Result::unwrap).collect();
    deleted.sort_by_key(|outcome| *outcome != DeleteOutcome::Deleted);
    assert_eq!(
        deleted,
        [
            DeleteOutcome::Deleted,
            DeleteOutcome::NotFound,
            DeleteOutcome::NotFound
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_ended_by_the_server_and_leaves_nothing() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let mut settings = scratch.settings();
    settings.time_limit = Duration::from_secs(1);
    let store = open(&settings).await.unwrap();
    save_some(&store, 0..1).await;
    // A trigger of somebody else's that does not end by itself.
    scratch.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_sleep(600); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE INSERT ON timers FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let error = save(&store, timer(1)).await.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("statement timeout"), "{error}");
    scratch.execute("DROP TRIGGER slow ON timers");
    assert_eq!(save(&store, timer(1)).await.unwrap(), SaveOutcome::Created);
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND state <> 'idle' AND pid <> pg_backend_pid()";
    assert_eq!(scratch.execute(busy), "0");
}
