//! A program outside the workspace that embeds `punctual` with nothing but its default features:
//! it schedules, fires and shuts down.

use std::time::Duration;

use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (fired, mut firings) = tokio::sync::mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .sqlite("timers.db")
        .on_due(move |due: DueTimeReached| {
            let told = fired.send(due.read::<String>());
            async move { Ok(told?) }
        })
        .build()
        .await?;
    let running = punctual.start().await?;
    let key = TimerKey::named(TenantId::default(), &format!("first of {}", punctual.now()));
    let timer = Timer::after(key, Duration::from_millis(50)).data("Ada")?;
    println!("{:?}", punctual.schedule(timer).await?);
    let name = firings.recv().await.ok_or("nobody was told")??;
    running.shutdown().await?;
    println!("reminded {name}");
    Ok(())
}
