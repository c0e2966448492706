//! An engine that sends its events through NATS JetStream and takes commands from there.
//!
//! Start a broker with `nats-server -js`, then run
//! `cargo run --release -p punctual --features nats --example nats` and, in another terminal, anything that publishes a
//! `ScheduleTimer` (docs/messages.md), for example `timer-service send`.

use std::time::Duration;

use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let punctual = Punctual::builder()
        .sqlite("data/nats-example.db")
        .nats(url)
        .take_commands()
        // Optional: another process may be the one that reads the events.
        .on_due(|due: DueTimeReached| async move {
            println!("{} of {} is due", due.service_call_id, due.tenant_id);
            Ok(())
        })
        .build()
        .await?;
    let running = punctual.start().await?;
    match punctual.readiness() {
        Ok(()) => println!("the broker is ready"),
        Err(why) => println!("timers are stored until the broker is ready: {why}"),
    }
    let key = TimerKey::named(TenantId::default(), "hello");
    let timer = Timer::after(key, Duration::from_secs(2));
    let _ = punctual.replace(timer).await?;
    tokio::select! {
        why = running.stopped() => eprintln!("{why}"),
        _ = tokio::signal::ctrl_c() => {}
    }
    running.shutdown().await?;
    Ok(())
}
