//! Timers of your own program, on one SQLite file: schedules a few reminders and prints each as it
//! fires. A second run schedules them anew, whether they have fired or not.
//!
//! Run it with `cargo run --release -p punctual --example embed`.

use std::time::Duration;

use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), punctual::Error> {
    let (fired, mut firings) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .sqlite("data/reminders.db")
        .on_due(move |due: DueTimeReached| {
            let fired = fired.clone();
            async move {
                let late = due.reached_at.since(due.due_at);
                println!(
                    "{}  {} ({late:?} late)",
                    due.reached_at,
                    due.read::<String>()?
                );
                fired.send(())?;
                Ok(())
            }
        })
        .build()
        .await?;
    let running = punctual.start().await?;

    let reminders = [("tea", 600), ("pasta", 200), ("meeting", 400), ("now", 0)];
    for (name, millis) in reminders {
        let key = TimerKey::named(TenantId::default(), name);
        let timer = Timer::after(key, Duration::from_millis(millis)).data(name)?;
        // An earlier run's timer of that name may have fired: let it fire again.
        let outcome = punctual.replace(timer).await?;
        println!("{}  {name} in {millis} ms: {outcome:?}", punctual.now());
    }

    for _ in reminders {
        tokio::select! {
            _ = firings.recv() => {}
            why = running.stopped() => return Err(why),
        }
    }
    let report = running.shutdown().await?;
    println!("stopped, {} unfinished", report.unfinished);
    Ok(())
}
