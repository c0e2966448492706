//! Scheduling, reading and cancelling, and what each answer means.

use std::time::{Duration, SystemTime};

use punctual::{
    CancelOutcome, CorrelationId, EnsureOutcome, ErrorKind, ScheduleOutcome, TenantId, Timer,
    TimerKey, TimerPageQuery, TimerState, Timestamp,
};

use crate::fixture::{SECOND, at, in_memory, key};

#[tokio::test]
async fn a_timer_comes_back_with_its_data_and_not_early() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let timer = Timer::after(key("a"), 3 * SECOND)
        .data(&vec![1, 2])
        .unwrap();
    assert_eq!(
        punctual.schedule(timer).await.unwrap(),
        ScheduleOutcome::Created
    );
    clock.advance(Duration::from_millis(2_999)).await;
    assert_eq!(heard.count(), 0);
    clock.advance(Duration::from_millis(1)).await;
    let [due] = &heard.all()[..] else {
        panic!("once")
    };
    assert_eq!(due.key(), key("a"));
    assert_eq!(due.read::<Vec<u8>>().unwrap(), [1, 2]);
    assert_eq!(due.reached_at, at("2026-12-24T00:00:03Z"));
}

#[tokio::test]
async fn a_delay_begins_after_the_present_fraction_of_a_millisecond() {
    let (clock, heard, punctual, _running) = in_memory().await;
    clock.advance(Duration::from_micros(400)).await;
    let _ = punctual
        .schedule(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 0, "only 999.6 ms have passed on whole ones");
    clock.advance(Duration::from_micros(600)).await;
    assert_eq!(heard.count(), 1);
}

#[tokio::test]
async fn what_is_due_already_fires_as_soon_as_time_goes_on() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let _ = punctual
        .schedule(Timer::at(key("a"), Timestamp::MIN))
        .await
        .unwrap();
    let _ = punctual
        .schedule(Timer::at(key("b"), SystemTime::UNIX_EPOCH))
        .await
        .unwrap();
    clock.advance(Duration::ZERO).await;
    assert_eq!(heard.count(), 2);
}

#[tokio::test]
async fn every_answer_of_schedule_replace_and_cancel() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let timer = |delay| Timer::after(key("a"), delay);
    assert_eq!(
        punctual.cancel(&key("a")).await.unwrap(),
        CancelOutcome::NotFound
    );
    assert_eq!(
        punctual.schedule(timer(SECOND)).await.unwrap(),
        ScheduleOutcome::Created
    );
    assert_eq!(
        punctual.schedule(timer(5 * SECOND)).await.unwrap(),
        ScheduleOutcome::Rescheduled
    );
    assert_eq!(
        punctual.cancel(&key("a")).await.unwrap(),
        CancelOutcome::Cancelled
    );
    assert_eq!(punctual.find(&key("a")).await.unwrap(), None);
    assert_eq!(
        punctual.schedule(timer(SECOND)).await.unwrap(),
        ScheduleOutcome::Created
    );
    clock.advance(10 * SECOND).await;
    assert_eq!(heard.count(), 1);
    let error = punctual.schedule(timer(SECOND)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyReached);
    let error = punctual.ensure(timer(SECOND)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyReached);
    assert_eq!(
        punctual.cancel(&key("a")).await.unwrap(),
        CancelOutcome::AlreadyReached
    );
    clock.advance(10 * SECOND).await;
    assert_eq!(heard.count(), 1);
    assert_eq!(
        punctual.replace(timer(SECOND)).await.unwrap(),
        ScheduleOutcome::Rescheduled
    );
    clock.advance(10 * SECOND).await;
    assert_eq!(heard.count(), 2);
    let firings = heard.all();
    assert_ne!(firings[0].firing_id, firings[1].firing_id);
    let entry = punctual.find(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.reached_at(), Some(firings[1].reached_at));
}

/// Sixty days in which somebody schedules a reminder under one key every third day.
#[tokio::test]
async fn every_schedule_that_was_answered_with_ok_fires() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let mut promised = 0;
    for _ in 0..20 {
        let timer = || Timer::after(key("a"), Duration::from_hours(24));
        match punctual.schedule(timer()).await {
            Ok(_) => promised += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AlreadyReached);
                assert!(error.to_string().contains("replace"), "{error}");
                assert!(!error.is_retryable());
                let replaced = punctual.replace(timer()).await.unwrap();
                assert_eq!(replaced, ScheduleOutcome::Rescheduled);
                promised += 1;
            }
        }
        clock.advance(Duration::from_hours(72)).await;
    }
    assert_eq!(heard.count(), promised);
}

#[tokio::test]
async fn a_batch_with_a_timer_that_has_fired_is_an_error_and_the_others_fire() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let timer = |name| Timer::after(key(name), SECOND);
    punctual.schedule_all([timer("a")]).await.unwrap();
    clock.advance(SECOND).await;
    let error = punctual
        .schedule_all([timer("a"), timer("b")])
        .await
        .unwrap_err();
    let [of_a, of_b] = error.outcomes() else {
        panic!("one outcome each")
    };
    assert_eq!(of_a.as_ref().unwrap_err().kind(), ErrorKind::AlreadyReached);
    assert_eq!(of_b.as_ref().unwrap(), &ScheduleOutcome::Created);
    assert!(!error.is_retryable());
    let error = punctual::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::AlreadyReached);
    assert!(error.to_string().contains("replace"), "{error}");
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 2, "a once, and b");
}

/// A program with a daily job that is deployed every evening, so that it never runs for a whole day.
#[tokio::test]
async fn a_daily_job_that_is_ensured_at_every_start_runs_every_day() {
    use crate::fixture::{Heard, clock};
    let folder = tempfile::tempdir().unwrap();
    let (clock, heard) = (clock(), Heard::default());
    for start in 0..7 {
        let told = heard.clone();
        let punctual = punctual::Punctual::builder()
            .sqlite(folder.path().join("timers.db"))
            .fake_clock(clock.clone())
            .on_due_with(move |due, punctual| {
                told.hear(due.clone());
                async move {
                    let next = due.due_at.saturating_add(Duration::from_hours(24));
                    let _ = punctual.schedule(Timer::at(due.key(), next)).await?;
                    Ok(())
                }
            });
        let punctual = punctual.build().await.unwrap();
        let running = punctual.start().await.unwrap();
        let daily = Timer::after(key("daily"), Duration::from_hours(24));
        let expected = match start {
            0 => EnsureOutcome::Created,
            _ => EnsureOutcome::AlreadyScheduled,
        };
        assert_eq!(punctual.ensure(daily).await.unwrap(), expected);
        clock.advance(Duration::from_hours(12)).await;
        running.shutdown().await.unwrap();
    }
    assert_eq!(heard.count(), 3, "three and a half days have passed");
}

#[tokio::test]
async fn ensuring_moves_no_timer_that_became_due_while_nobody_fired() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, heard) = (crate::fixture::clock(), crate::fixture::Heard::default());
    let start = || {
        let file = folder.path().join("timers.db");
        heard
            .builder()
            .sqlite(file)
            .fake_clock(clock.clone())
            .build()
    };
    let timer = || Timer::after(key("a"), Duration::from_hours(1));
    let first = start().await.unwrap();
    assert_eq!(first.ensure(timer()).await.unwrap(), EnsureOutcome::Created);
    first.close().await;
    clock.advance(Duration::from_hours(2)).await;
    let second = start().await.unwrap();
    let kept = EnsureOutcome::AlreadyScheduled;
    assert_eq!(second.ensure(timer()).await.unwrap(), kept);
    let running = second.start().await.unwrap();
    clock.advance(Duration::ZERO).await;
    assert_eq!(heard.count(), 1, "it is overdue, and fires at once");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_batch_of_any_length_is_scheduled_in_order() {
    let (clock, heard, punctual, _running) = in_memory().await;
    let mut timers: Vec<Timer> = (0..10_001)
        .map(|n| Timer::after(key(&n.to_string()), SECOND))
        .collect();
    timers.push(Timer::after(key("0"), 2 * SECOND));
    let outcomes = punctual.schedule_all(timers).await.unwrap();
    assert_eq!(outcomes.len(), 10_002);
    assert_eq!(outcomes[0], ScheduleOutcome::Created);
    assert_eq!(outcomes[10_001], ScheduleOutcome::Rescheduled);
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 10_000);
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 10_001);
}

#[tokio::test]
async fn a_batch_that_is_refused_has_the_reason_for_each() {
    let (_clock, _heard, punctual, running) = in_memory().await;
    running.shutdown().await.unwrap();
    let timers = (0..3).map(|n| Timer::after(key(&n.to_string()), SECOND));
    let error = punctual.schedule_all(timers).await.unwrap_err();
    assert_eq!(error.outcomes().len(), 3);
    assert!(
        error
            .to_string()
            .starts_with("3 of 3 timers were not scheduled"),
        "{error}"
    );
    assert!(!error.is_retryable());
    assert_eq!(punctual::Error::from(error).kind(), ErrorKind::Stopped);
}

#[tokio::test]
async fn a_tenant_s_timers_are_listed_and_a_request_s_are_traced() {
    let (clock, _heard, punctual, _running) = in_memory().await;
    let request: CorrelationId = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e".parse().unwrap();
    let other = TenantId::new("other").unwrap();
    for seconds in [3, 1, 2] {
        let name = seconds.to_string();
        let timer = Timer::after(key(&name), seconds * SECOND).correlation(request);
        let _ = punctual.schedule(timer).await.unwrap();
        let theirs = Timer::after(TimerKey::named(other.clone(), &name), seconds * SECOND);
        let _ = punctual.schedule(theirs).await.unwrap();
    }
    clock.advance(SECOND).await;
    let query = |state, after| TimerPageQuery {
        tenant_id: TenantId::default(),
        state,
        after,
        limit: 2,
    };
    let first = punctual.list(query(None, None)).await.unwrap();
    assert_eq!(first.timers.len(), 2);
    let rest = punctual.list(query(None, first.next)).await.unwrap();
    assert_eq!(rest.timers.len(), 1);
    assert!(rest.next.is_none());
    let reached = query(Some(TimerState::Reached), None);
    assert_eq!(punctual.list(reached).await.unwrap().timers.len(), 1);
    let traced = punctual.trace(request, 10).await.unwrap();
    let keys: Vec<_> = traced
        .iter()
        .map(|entry| entry.timer().key.clone())
        .collect();
    assert_eq!(keys, [key("1"), key("2"), key("3")]);
}

#[tokio::test]
async fn data_that_is_too_long_is_refused_before_anything_is_stored() {
    let long = "x".repeat(20_000);
    let error = Timer::after(key("a"), SECOND).data(&long).unwrap_err();
    let error = punctual::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("at most 16384"), "{error}");
}

#[test]
fn due_times_of_the_date_libraries_are_taken() {
    let text = "2026-12-24T18:00:00Z";
    let of_chrono = chrono::DateTime::parse_from_rfc3339(text).unwrap();
    let of_jiff: jiff::Timestamp = text.parse().unwrap();
    let same = Timer::at(key("a"), at(text));
    assert_eq!(Timer::at(key("a"), of_chrono), same);
    assert_eq!(Timer::at(key("a"), of_jiff), same);
}

/// Three days of a shop's own logic: a reminder each day until the order is paid.
#[tokio::test]
async fn three_days_of_reminders_take_no_time() {
    use crate::fixture::{Heard, clock};
    let (clock, heard) = (clock(), Heard::default());
    let told = heard.clone();
    let punctual = punctual::Punctual::builder()
        .in_memory(clock.clone())
        .on_due_with(move |due, punctual| {
            let told = told.clone();
            async move {
                told.hear(due.clone());
                let next = due.due_at.saturating_add(Duration::from_hours(24));
                let _ = punctual.schedule(Timer::at(due.key(), next)).await?;
                Ok(())
            }
        });
    let punctual = punctual.build().await.unwrap();
    let running = punctual.start().await.unwrap();
    let order = key("order-123");
    let _ = punctual
        .schedule(Timer::after(order.clone(), Duration::from_hours(24)))
        .await
        .unwrap();
    clock.advance(Duration::from_hours(60)).await;
    assert_eq!(heard.count(), 2, "unpaid: one a day");
    assert_eq!(
        punctual.cancel(&order).await.unwrap(),
        CancelOutcome::Cancelled
    );
    clock.advance(Duration::from_hours(12)).await;
    assert_eq!(heard.count(), 2, "paid: no more");
    running.shutdown().await.unwrap();
}
