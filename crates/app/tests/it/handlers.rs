//! What a handler's answers lead to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::testing::{ClockPort, FakeClock};
use punctual::{
    Failures, HandlerError, Punctual, Running, TenantId, Timer, TimerKey, TimerPageQuery,
};
use tokio::sync::{Barrier, mpsc};

use crate::fixture::{Heard, SECOND, clock, key};

/// An engine whose handler hears, and then answers the n-th call as it is told.
async fn answering(
    answer: impl Fn(usize) -> Result<(), HandlerError> + Send + Sync + 'static,
) -> (FakeClock, Heard, Punctual, Running) {
    let (clock, heard) = (clock(), Heard::default());
    let told = heard.clone();
    let punctual = Punctual::builder()
        .in_memory(clock.clone())
        .on_due(move |due| {
            told.hear(due);
            std::future::ready(answer(told.count()))
        })
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let _ = punctual
        .schedule(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    (clock, heard, punctual, running)
}

async fn is_reached(punctual: &Punctual) -> bool {
    let entry = punctual.find(&key("a")).await.unwrap().unwrap();
    entry.reached_at().is_some()
}

#[tokio::test]
async fn an_error_of_any_kind_brings_the_event_again_under_the_same_id() {
    let (clock, heard, punctual, _running) = answering(|call| match call {
        1 => Err("a text".into()),
        2 => Err(std::io::Error::other("an error").into()),
        3 => Err(HandlerError::retry("on purpose")),
        _ => Ok(()),
    })
    .await;
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 1, "not at once");
    assert!(!is_reached(&punctual).await);
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(heard.count(), 4);
    assert!(is_reached(&punctual).await);
    let firings = heard.all();
    assert!(
        firings
            .iter()
            .all(|due| due.firing_id == firings[0].firing_id)
    );
    assert_eq!(punctual.dead_letters(None, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_panic_is_an_error_like_any_other() {
    let (clock, heard, punctual, _running) = answering(|call| {
        assert!(call > 1, "the first call panics");
        Ok(())
    })
    .await;
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(heard.count(), 2);
    assert!(is_reached(&punctual).await);
}

#[tokio::test]
async fn poison_is_kept_as_a_dead_letter_and_comes_no_more() {
    let poison = |_| Err(HandlerError::poison("no such customer"));
    let (clock, heard, punctual, _running) = answering(poison).await;
    clock.advance(Duration::from_hours(24)).await;
    assert_eq!(heard.count(), 1);
    let dead_letters = punctual.dead_letters(None, 10).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
    assert!(
        dead_letters[0]
            .dead_letter
            .reason
            .contains("no such customer")
    );
    assert_eq!(
        dead_letters[0].dead_letter.id,
        heard.all()[0].firing_id.to_string()
    );
    punctual
        .forget_dead_letter(dead_letters[0].sequence)
        .await
        .unwrap();
    punctual
        .forget_dead_letter(dead_letters[0].sequence)
        .await
        .unwrap();
    assert_eq!(punctual.dead_letters(None, 10).await.unwrap(), []);
    // What can be handled by now may be tried again.
    let _ = punctual
        .replace(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 2);
}

/// An engine whose handler schedules its own key for a day later, and then answers.
async fn rearming(
    builder: punctual::Builder,
    answer: impl Fn() -> Result<(), HandlerError> + Send + Sync + 'static,
) -> (Heard, Punctual) {
    let (heard, answer) = (Heard::default(), Arc::new(answer));
    let told = heard.clone();
    let punctual = builder.on_due_with(move |due, punctual| {
        told.hear(due.clone());
        let answer = Arc::clone(&answer);
        async move {
            let next = due.due_at.saturating_add(Duration::from_hours(24));
            let _ = punctual.schedule(Timer::at(due.key(), next)).await?;
            answer()
        }
    });
    (heard, punctual.build().await.unwrap())
}

#[tokio::test]
async fn a_handler_that_rearms_its_timer_and_then_fails_keeps_the_new_schedule_alone() {
    let folder = tempfile::tempdir().unwrap();
    let answers: [fn() -> Result<(), HandlerError>; 3] = [
        || Err("after all not".into()),
        || Err(HandlerError::poison("never")),
        || panic!("after it was scheduled"),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        let file = folder.path().join(format!("{n}.db"));
        for is_on_disk in [false, true] {
            let clock = clock();
            let builder = if is_on_disk {
                Punctual::builder().sqlite(&file).fake_clock(clock.clone())
            } else {
                Punctual::builder().in_memory(clock.clone())
            };
            let (heard, punctual) = rearming(builder, answer).await;
            let _running = punctual.start().await.unwrap();
            punctual
                .ensure(Timer::after(key("a"), SECOND))
                .await
                .unwrap();
            clock.advance(Duration::from_hours(23)).await;
            assert_eq!(heard.count(), 1, "no retry");
            let entry = punctual.find(&key("a")).await.unwrap().unwrap();
            let due_at = entry.timer().registration.due_at;
            assert_eq!(due_at.to_string(), "2026-12-25T00:00:01.000Z");
            assert_eq!(entry.reached_at(), None);
            assert_eq!(entry.failures(), &Failures::default());
            assert_eq!(punctual.dead_letters(None, 10).await.unwrap(), []);
            clock.advance(Duration::from_hours(2)).await;
            assert_eq!(heard.count(), 2, "the day after");
        }
    }
}

#[tokio::test]
async fn a_failing_handler_is_seen_in_find_and_list_without_any_log() {
    let (clock, heard, punctual, _running) = answering(|call| match call {
        3 => Ok(()),
        _ => Err(format!("the mail server is away: {call}").into()),
    })
    .await;
    let query = || TimerPageQuery {
        tenant_id: TenantId::default(),
        state: None,
        after: None,
        limit: 10,
    };
    clock.advance(SECOND).await;
    let entry = punctual.find(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.failures().attempts, 1);
    let error = entry.failures().last_error.as_ref().unwrap();
    assert!(error.contains("the mail server is away: 1"), "{error}");
    let listed = punctual.list(query()).await.unwrap().timers;
    assert_eq!(listed, [entry]);
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(heard.count(), 3);
    let entry = punctual.find(&key("a")).await.unwrap().unwrap();
    assert!(entry.reached_at().is_some());
    assert_eq!(entry.failures().attempts, 2, "what it took is still there");
    let error = entry.failures().last_error.as_ref().unwrap();
    assert!(error.contains("the mail server is away: 2"), "{error}");
}

#[tokio::test]
async fn a_failing_handler_holds_up_no_other_timer() {
    let (clock, heard) = (clock(), Heard::default());
    let told = heard.clone();
    let punctual = Punctual::builder()
        .in_memory(clock.clone())
        .on_due(move |due| {
            let fails = due.data.is_none();
            told.hear(due);
            async move { if fails { Err("always".into()) } else { Ok(()) } }
        })
        .build()
        .await
        .unwrap();
    let _running = punctual.start().await.unwrap();
    let failing = (0..100).map(|n| Timer::after(key(&n.to_string()), SECOND));
    punctual.schedule_all(failing).await.unwrap();
    clock.advance(Duration::from_mins(10)).await;
    let timer = Timer::after(key("good"), SECOND).data("x").unwrap();
    let _ = punctual.schedule(timer).await.unwrap();
    clock.advance(SECOND).await;
    let good = heard.all().into_iter().find(|due| due.data.is_some());
    let good = good.expect("it was told");
    assert_eq!(good.reached_at, good.due_at);
}

/// On the machine's clock: 64 handlers wait for each other, and the 65th does not begin before one
/// of them is done.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_handlers_of_a_tenant_run_at_once_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (meet, running_now) = (Arc::new(Barrier::new(64)), Arc::new(AtomicUsize::new(0)));
    let (done, mut counts) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .sqlite(folder.path().join("timers.db"))
        .on_due(move |_| {
            let (meet, running_now, done) = (meet.clone(), running_now.clone(), done.clone());
            async move {
                let now = running_now.fetch_add(1, Ordering::SeqCst) + 1;
                meet.wait().await;
                running_now.fetch_sub(1, Ordering::SeqCst);
                done.send(now)?;
                Ok(())
            }
        })
        .build()
        .await
        .unwrap();
    let timers = (0..128).map(|n| Timer::after(key(&n.to_string()), Duration::ZERO));
    punctual.schedule_all(timers).await.unwrap();
    let running = punctual.start().await.unwrap();
    let mut most = 0;
    for _ in 0..128 {
        most = most.max(counts.recv().await.unwrap());
    }
    assert_eq!(most, 64);
    running.shutdown().await.unwrap();
}

/// On a file, and with more claimed timers in the way than one poll reads.
#[tokio::test]
async fn tenants_whose_handlers_hang_or_are_slow_make_nobody_late() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (clock, late) = (clock(), Arc::new(Mutex::new(Vec::new())));
    let (waiting, noting) = (clock.clone(), Arc::clone(&late));
    let punctual = Punctual::builder()
        .sqlite(folder.path().join("timers.db"))
        .fake_clock(clock.clone())
        .on_due(move |due| {
            let (clock, late) = (waiting.clone(), noting.clone());
            async move {
                match due.tenant_id.as_str().split('-').next() {
                    Some("hanging") => clock.sleep_for(Duration::from_hours(9)).await,
                    Some("slow") => clock.sleep_for(SECOND).await,
                    _ => late.lock().unwrap().push(clock.now().since(due.due_at)),
                }
                Ok(())
            }
        })
        .build()
        .await
        .unwrap();
    let _running = punctual.start().await.unwrap();
    let timer = |tenant: &str, n: u64, after: Duration| {
        let tenant = TenantId::new(tenant).unwrap();
        Timer::after(TimerKey::named(tenant, &n.to_string()), after)
    };
    for tenant in ["hanging-1", "hanging-2", "slow-1", "slow-2", "slow-3"] {
        let timers = (0..700).map(|n| timer(tenant, n, Duration::ZERO));
        punctual.schedule_all(timers).await.unwrap();
    }
    clock.advance(SECOND).await;
    let others = (0..500_u64).map(|n| {
        let after = Duration::from_millis(100 + 2 * n);
        timer(&format!("healthy-{}", n % 5), n, after)
    });
    punctual.schedule_all(others).await.unwrap();
    clock.advance(SECOND * 3).await;
    let mut late = late.lock().unwrap().clone();
    late.sort_unstable();
    assert_eq!(late.len(), 500);
    assert!(late[494] <= Duration::from_millis(100), "{:?}", late[494]);
}
