//! How to test code that waits for days: the code below reminds a customer once a day until the
//! order is paid, and gives up after the third time. Its test lives through a week in milliseconds,
//! with the real engine, and nothing sleeps.
//!
//! Run it with `cargo run --release -p punctual --features testing --example fake_clock`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::{Builder, Error, HandlerError, Punctual, TenantId, Timer, TimerKey};

/// Your own code: it knows nothing of fake clocks.
#[derive(Clone, Default)]
struct Dunning {
    mails: Arc<Mutex<Vec<String>>>,
}

const A_DAY: Duration = Duration::from_hours(24);

impl Dunning {
    fn key(order: &str) -> TimerKey {
        TimerKey::named(TenantId::default(), &format!("dunning {order}"))
    }

    async fn order_placed(punctual: &Punctual, order: &str) -> Result<(), Error> {
        let first = Timer::after(Self::key(order), A_DAY).data(&(order, 1))?;
        punctual.schedule(first).await.map(drop)
    }

    async fn order_paid(punctual: &Punctual, order: &str) -> Result<(), Error> {
        punctual.cancel(&Self::key(order)).await.map(drop)
    }

    fn on(&self, builder: Builder) -> Builder {
        let dunning = self.clone();
        builder.on_due_with(move |due, punctual| {
            let dunning = dunning.clone();
            async move {
                let (order, time): (String, u32) = due.read().map_err(HandlerError::poison)?;
                dunning.mail(format!("{order}: reminder {time}"));
                if time < 3 {
                    let next = due.due_at.saturating_add(A_DAY);
                    let timer = Timer::at(due.key(), next).data(&(order, time + 1))?;
                    let _ = punctual.schedule(timer).await?;
                }
                Ok(())
            }
        })
    }

    fn mail(&self, text: String) {
        if let Ok(mut mails) = self.mails.lock() {
            mails.push(text);
        }
    }

    fn mails(&self) -> Vec<String> {
        self.mails
            .lock()
            .map(|mails| mails.clone())
            .unwrap_or_default()
    }
}

/// Your own test: in a test file it would be under `#[tokio::test]`.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let clock = FakeClock::new("2026-12-20T09:00:00Z".parse()?);
    let dunning = Dunning::default();
    let builder = Punctual::builder().in_memory(clock.clone());
    let punctual = dunning.on(builder).build().await?;
    let running = punctual.start().await?;

    Dunning::order_placed(&punctual, "order-1").await?;
    Dunning::order_placed(&punctual, "order-2").await?;
    clock.advance(Duration::from_hours(23)).await;
    assert!(dunning.mails().is_empty(), "not before a day has passed");
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(dunning.mails().len(), 2);
    Dunning::order_paid(&punctual, "order-1").await?;
    clock.advance(Duration::from_hours(24 * 6)).await;
    let of_second = |mail: &&String| mail.starts_with("order-2");
    assert_eq!(dunning.mails().iter().filter(of_second).count(), 3);
    assert_eq!(dunning.mails().len(), 4, "and none for what was paid");

    running.shutdown().await?;
    println!(
        "a week has passed, and all is as it should be: {:?}",
        dunning.mails()
    );
    Ok(())
}
