//! A test of one's own reminder logic over three days, as an embedder would write it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::{Punctual, TenantId, Timer, TimerKey};

#[tokio::test]
async fn a_reminder_comes_every_day_until_the_third() {
    let clock = FakeClock::new("2026-12-24T08:00:00Z".parse().unwrap());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let outbox = Arc::clone(&sent);
    let punctual = Punctual::builder()
        .in_memory(clock.clone())
        .on_due_with(move |due, punctual| {
            outbox.lock().unwrap().push(due.due_at.to_string());
            async move {
                let tomorrow = due.due_at.saturating_add(Duration::from_hours(24));
                let _ = punctual.schedule(Timer::at(due.key(), tomorrow)).await?;
                Ok(())
            }
        })
        .build()
        .await
        .unwrap();
    let running = punctual.start().await.unwrap();
    let key = TimerKey::named(TenantId::default(), "order-123");
    let first = Timer::after(key, Duration::from_hours(24));
    punctual.ensure(first).await.unwrap();
    clock.advance(Duration::from_hours(3 * 24)).await;
    assert_eq!(
        *sent.lock().unwrap(),
        [
            "2026-12-25T08:00:00.000Z",
            "2026-12-26T08:00:00.000Z",
            "2026-12-27T08:00:00.000Z"
        ]
    );
    running.shutdown().await.unwrap();
}
