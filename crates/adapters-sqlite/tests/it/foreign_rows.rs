//! Rows that another program wrote in another form: they may fire late, but never early or for ever,
//! and they block no other timer.

use std::time::Duration;

use punctual_adapters_sqlite::SchemaSet;
use punctual_domain::{DeadLetterOrigin, TimerKey, Timestamp};
use punctual_ports::{
    ClaimOutcome, DeadLetter, DeadLetterClaim, DeadLetterPort, FiredTimer, MarkOutcome, RetryLater,
    TimerPersistencePort, TimerQueuePort,
};
use rusqlite::params;
use uuid::Uuid;

use crate::store::{OnFile, save_some, timer};

const LEASE: Duration = Duration::from_secs(30);
const ID: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";

fn on_file() -> OnFile {
    OnFile::new(SchemaSet::TimersOnly)
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Writes a row as another program might.
fn write(file: &OnFile, tenant: &[u8], id: &str, correlation: &str, due_at: &str) {
    let sql = "INSERT INTO timer_schedules \
        (tenant_id, service_call_id, correlation_id, due_at, registered_at) \
        VALUES (CAST(?1 AS TEXT), ?2, ?3, ?4, '2026-01-01T00:00:00Z')";
    let row = params![tenant, id, correlation, due_at];
    file.outsider().execute(sql, row).unwrap();
}

fn write_due(file: &OnFile, due_at: &str) {
    write(file, b"a", ID, ID, due_at);
}

#[tokio::test]
async fn a_time_in_another_form_is_marked_once_and_for_all() {
    for due_at in ["2026-01-02T00:00:00Z", "2026-01-02T00:00:00.000456Z"] {
        let file = on_file();
        write_due(&file, due_at);
        let now = instant("2026-01-03T00:00:00Z");
        let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
        let fired = FiredTimer {
            firing_id: batch.claims[0].timer.firing_id(),
            reached_at: now,
        };
        let marked = file.store.mark_fired(vec![fired]).await.unwrap();
        assert_eq!(*marked[0].as_ref().unwrap(), MarkOutcome::Marked);
        let later = now.saturating_add(LEASE);
        let again = file.store.claim_due(later, 10, LEASE).await.unwrap();
        assert_eq!(again.claims, [], "{due_at} has fired");
    }
}

#[tokio::test]
async fn a_time_in_another_form_can_be_retried_and_dead_lettered() {
    let file = on_file();
    write_due(&file, "2026-01-02T00:00:00Z");
    let now = instant("2026-01-03T00:00:00Z");
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    let retry_at = now.saturating_add(LEASE);
    let claim = batch.claims[0].reference();
    let retry = RetryLater::new(claim, retry_at, "it failed");
    let retried = file.store.retry_later(vec![retry]).await.unwrap();
    assert_eq!(*retried[0].as_ref().unwrap(), ClaimOutcome::Applied);
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    assert_eq!((batch.claims, batch.next_due_at), (vec![], Some(retry_at)));
    let batch = file.store.claim_due(retry_at, 10, LEASE).await.unwrap();
    assert_eq!(batch.claims[0].attempts, 1);
    let request = dead_letter(&batch.claims[0], retry_at);
    let outcomes = file.store.dead_letter(vec![request]).await.unwrap();
    assert_eq!(*outcomes[0].as_ref().unwrap(), ClaimOutcome::Applied);
}

fn dead_letter(claim: &punctual_ports::Claim, now: Timestamp) -> DeadLetterClaim {
    DeadLetterClaim {
        claim: claim.reference(),
        reached_at: now,
        dead_letter: DeadLetter {
            id: "letter".to_owned(),
            origin: DeadLetterOrigin::Firing,
            tenant_id: None,
            payload: vec![],
            reason: "never".to_owned(),
            failed_at: now,
        },
    }
}

#[tokio::test]
async fn a_dead_letter_of_an_earlier_version_is_listed_with_the_origin_it_had() {
    let file = on_file();
    let sql = "INSERT INTO dead_letters (id, source, payload, reason, failed_at) \
               VALUES (?1, ?1, x'00', 'never', '2026-01-02T00:00:00.000Z')";
    let sources = ["timer.events", "timer.commands.a.7", "outbox"];
    for source in sources {
        file.outsider().execute(sql, [source]).unwrap();
    }
    let dead_letters = file.store.list(None, 10).await.unwrap().into_iter();
    let origins: Vec<_> = dead_letters
        .map(|stored| stored.dead_letter.origin)
        .collect();
    let texts: Vec<_> = origins.iter().map(ToString::to_string).collect();
    assert_eq!(texts, sources);
    assert_eq!(origins[2], DeadLetterOrigin::Outbox(None));
}

#[tokio::test]
async fn a_time_with_an_offset_is_never_claimed_early() {
    let file = on_file();
    write_due(&file, "2026-01-02T00:00:00-05:00");
    let early = instant("2026-01-02T04:59:59.999Z");
    let batch = file.store.claim_due(early, 10, LEASE).await.unwrap();
    assert_eq!(batch.claims, []);
    let due = instant("2026-01-02T05:00:00Z");
    let batch = file.store.claim_due(due, 10, LEASE).await.unwrap();
    assert_eq!(batch.claims.len(), 1);
}

#[tokio::test]
async fn a_time_with_an_offset_is_not_polled_for_again_and_again() {
    let file = on_file();
    write_due(&file, "2026-01-02T02:00:00+02:00");
    let now = instant("2026-01-02T01:00:00Z");
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    assert!(batch.next_due_at.is_none_or(|next| next > now));
}

#[tokio::test]
async fn unreadable_rows_use_no_slots_of_a_claim() {
    for limit in [1, 4, 100] {
        let file = on_file();
        for (n, due_at) in [1, 3].into_iter().cycle().enumerate().take(300) {
            let id = Uuid::from_u128(n as u128).to_string();
            let due_at = format!("2026-01-0{due_at}T00:00:00.000Z");
            write(&file, b"a", &id, "no correlation id", &due_at);
        }
        write_due(&file, "2026-01-02T00:00:00.000Z");
        let now = instant("2026-01-04T00:00:00Z");
        let batch = file.store.claim_due(now, limit, LEASE).await.unwrap();
        assert_eq!(batch.claims.len(), 1, "of {limit}");
        let batch = file.store.claim_due(now, limit, LEASE).await.unwrap();
        assert!(batch.claims.is_empty() && !batch.more_due, "of {limit}");
    }
}

#[tokio::test]
async fn a_row_that_was_repaired_fires() {
    let file = on_file();
    write(&file, b"a", ID, "no id", "2026-01-02T00:00:00.000Z");
    let now = instant("2026-01-04T00:00:00Z");
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    assert_eq!(batch.claims, []);
    let mend = "UPDATE timer_schedules SET correlation_id = service_call_id";
    file.outsider().execute(mend, []).unwrap();
    let later = now.saturating_add(Duration::from_mins(2));
    let batch = file.store.claim_due(later, 10, LEASE).await.unwrap();
    assert_eq!(batch.claims.len(), 1);
}

#[tokio::test]
async fn a_tenant_that_is_no_text_blocks_no_other() {
    let file = on_file();
    write(&file, b"a\xff", "x", ID, "2026-01-02T00:00:00.000Z");
    save_some(&file.store, 0..20).await;
    let now = instant("2026-01-04T00:00:00Z");
    for _ in 0..5 {
        let batch = file.store.claim_due(now, 4, LEASE).await.unwrap();
        assert_eq!(batch.claims.len(), 4);
    }
}

/// Rows marked by another program were never published by us; none of them ends, restarts or repeats the
/// pages.
#[tokio::test]
async fn rows_that_others_have_marked_are_skipped_by_fired_since() {
    let file = on_file();
    let marked = [
        ("no correlation id", "2026-01-03T00:00:00.000Z"),
        (ID, "2026-01-03T00:00:00Z"),
        (ID, "2026-01-03T02:00:00.000+02:00"),
        (ID, "yesterday"),
    ];
    let outsider = file.outsider();
    for (n, (correlation, reached_at)) in marked.into_iter().cycle().enumerate().take(40) {
        let id = Uuid::from_u128(n as u128).to_string();
        write(&file, b"a", &id, correlation, "2026-01-02T00:00:00.000Z");
        let mark = "UPDATE timer_schedules SET state = 'Reached', reached_at = ?2 \
            WHERE service_call_id = ?1";
        outsider.execute(mark, params![id, reached_at]).unwrap();
    }
    save_some(&file.store, 0..2).await;
    let now = instant("2026-01-03T00:00:00Z");
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    let fired = batch.claims.iter().map(|claim| FiredTimer {
        firing_id: claim.timer.firing_id(),
        reached_at: now,
    });
    let marked = file.store.mark_fired(fired.collect()).await.unwrap();
    assert_eq!(marked.len(), 2);
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..10 {
        let page = file.store.fired_since(now, after, 1).await.unwrap();
        seen.extend(page.timers.iter().map(|fired| fired.timer().key.clone()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let ours: Vec<TimerKey> = batch.claims.into_iter().map(|it| it.timer.key).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(ours.iter().all(|key| seen.contains(key)));
}

#[tokio::test]
async fn an_item_that_a_trigger_refuses_is_not_half_done() {
    let file = on_file();
    save_some(&file.store, 0..2).await;
    let refuse = |table: &str| {
        format!(
            "CREATE TRIGGER no_{table} BEFORE INSERT ON {table} \
             BEGIN SELECT RAISE(ABORT, 'not here'); END;"
        )
    };
    let triggers = refuse("tombstones") + &refuse("dead_letters");
    file.outsider().execute_batch(&triggers).unwrap();
    let key: TimerKey = timer(1).key;
    let now = timer(0).due_at;
    let deleted = file.store.delete(vec![key.clone()], now).await.unwrap();
    assert!(deleted[0].is_err());
    assert!(file.store.find(key).await.unwrap().is_some());
    let batch = file.store.claim_due(now, 10, LEASE).await.unwrap();
    let outcomes = file
        .store
        .dead_letter(vec![dead_letter(&batch.claims[0], now)]);
    assert!(outcomes.await.unwrap()[0].is_err());
    let entry = file.store.find(timer(0).key).await.unwrap().unwrap();
    assert_eq!(entry.reached_at(), None);
    assert_eq!(file.store.list(None, 10).await.unwrap(), []);
}
