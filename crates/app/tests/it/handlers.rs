//! What a handler's answers lead to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::{HandlerError, Punctual, Running, TenantId, Timer, TimerKey};
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
    punctual
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
    let letters = punctual.dead_letters(None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].letter.reason.contains("no such customer"));
    assert_eq!(letters[0].letter.id, heard.all()[0].firing_id.to_string());
    punctual
        .forget_dead_letter(letters[0].sequence)
        .await
        .unwrap();
    punctual
        .forget_dead_letter(letters[0].sequence)
        .await
        .unwrap();
    assert_eq!(punctual.dead_letters(None, 10).await.unwrap(), []);
    // What can be handled by now may be tried again.
    punctual
        .replace(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    clock.advance(SECOND).await;
    assert_eq!(heard.count(), 2);
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
    punctual.schedule(timer).await.unwrap();
    clock.advance(SECOND).await;
    let good = heard.all().into_iter().find(|due| due.data.is_some());
    let good = good.expect("it was told");
    assert_eq!(good.reached_at, good.due_at);
}

/// On the machine's clock: 64 handlers wait for each other, and the 65th does not begin before one
/// of them is done.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_handlers_run_at_once_and_no_more() {
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
    // Of as many tenants, since one alone leaves some places to others.
    let timers = (0..128).map(|n| {
        let tenant = TenantId::new(&format!("tenant-{n}")).unwrap();
        Timer::after(TimerKey::named(tenant, "a"), Duration::ZERO)
    });
    punctual.schedule_all(timers).await.unwrap();
    let running = punctual.start().await.unwrap();
    let mut most = 0;
    for _ in 0..128 {
        most = most.max(counts.recv().await.unwrap());
    }
    assert_eq!(most, 64);
    running.shutdown().await.unwrap();
}
