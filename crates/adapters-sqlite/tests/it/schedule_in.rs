//! Scheduling inside the caller's own transaction.

use std::sync::atomic::{AtomicBool, Ordering};

use punctual_adapters_sqlite::{SchemaSet, schedule_in};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey};
use punctual_ports::{DeleteOutcome, PortErrorKind, SaveOutcome, SaveTimer, TimerPersistencePort};
use rusqlite::TransactionBehavior;
use uuid::Uuid;

use crate::store::{OnFile, at};

fn timer(name: &str, origin: ScheduleOrigin) -> SaveTimer {
    SaveTimer {
        key: TimerKey::named(TenantId::default(), name),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: at(5_000),
        data: None,
        origin,
    }
}

#[tokio::test]
async fn the_callers_row_and_its_timer_commit_or_roll_back_together() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let mut mine = file.outsider();
    mine.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        .unwrap();
    for (name, commits) in [("kept", true), ("dropped", false)] {
        let transaction = mine
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        transaction
            .execute("INSERT INTO orders VALUES (?1)", [name])
            .unwrap();
        let timer = timer(name, ScheduleOrigin::Direct);
        let outcome = schedule_in(&transaction, &timer, at(0)).unwrap();
        assert_eq!(outcome, SaveOutcome::Created);
        assert_eq!(file.store.find(timer.key.clone()).await.unwrap(), None);
        if commits {
            transaction.commit().unwrap();
        } else {
            transaction.rollback().unwrap();
        }
        let found = file.store.find(timer.key).await.unwrap();
        assert_eq!(found.is_some(), commits, "{name}");
    }
    let orders: i64 = mine
        .query_row("SELECT count(*) FROM orders", [], |row| row.get(0))
        .unwrap();
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn the_rules_are_the_same_as_for_any_other_schedule() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let direct = timer("a", ScheduleOrigin::Direct);
    file.store.save(vec![direct.clone()], at(10)).await.unwrap();
    let deleted = file.store.delete(vec![direct.key.clone()], at(20)).await;
    assert_eq!(
        *deleted.unwrap()[0].as_ref().unwrap(),
        DeleteOutcome::Deleted
    );

    let mut mine = file.outsider();
    let transaction = mine
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let late = timer("a", ScheduleOrigin::Command { sent_at: at(20) });
    let outcome = |timer| schedule_in(&transaction, timer, at(30)).unwrap();
    assert_eq!(outcome(&late), SaveOutcome::Stale);
    assert_eq!(outcome(&direct), SaveOutcome::Created);
    assert_eq!(outcome(&direct), SaveOutcome::Rescheduled);
    transaction.commit().unwrap();
    assert!(file.store.find(direct.key).await.unwrap().is_some());
}

#[tokio::test]
async fn a_timer_of_a_service_call_that_is_not_there_is_not_stored() {
    let file = OnFile::new(SchemaSet::Shared);
    let mut mine = file.outsider();
    let transaction = mine
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let orphan = timer("orphan", ScheduleOrigin::Direct);
    let outcome = schedule_in(&transaction, &orphan, at(0)).unwrap();
    assert_eq!(outcome, SaveOutcome::NoParent);
    transaction.commit().unwrap();
    assert_eq!(file.store.find(orphan.key).await.unwrap(), None);
}

/// A transaction that has not read yet can wait for the write lock.
#[tokio::test]
async fn a_transaction_that_begins_with_it_waits_for_the_write_lock() {
    static WAITED: AtomicBool = AtomicBool::new(false);
    let file = OnFile::new(SchemaSet::TimersOnly);
    let (mut other, mut mine) = (file.outsider(), file.outsider());
    let timer = timer("a", ScheduleOrigin::Direct);
    let held = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    mine.busy_handler(Some(|_| {
        WAITED.store(true, Ordering::SeqCst);
        false
    }))
    .unwrap();
    let transaction = mine.transaction().unwrap();
    let busy = schedule_in(&transaction, &timer, at(0)).unwrap_err();
    assert_eq!(busy.kind(), PortErrorKind::Busy);
    assert!(WAITED.load(Ordering::SeqCst), "it waited for the lock");
    held.rollback().unwrap();
    schedule_in(&transaction, &timer, at(0)).unwrap();
}
