//! Schedules timers in a log and appends their events to a file, until its input ends or it is killed.
//!
//! `own-store FOLDER [COUNT]` schedules COUNT timers, each due within a second, and prints those that are
//! stored: `serviceCallId dueAt`, a line each. However it ends, the next start goes on where it was.

use std::error::Error;
use std::io::{read_to_string, stdin};
use std::path::PathBuf;
use std::time::Duration;

use own_store::{FileBus, LogStore};
use punctual::{Punctual, TenantId, Timer, TimerKey, Timestamp, WorkerSettings};

/// Number of timers that are stored with one sync.
const AT_ONCE: u64 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give a folder")?);
    let count: u64 = arguments.next().map_or(Ok(0), |count| count.parse())?;
    std::fs::create_dir_all(&folder)?;
    let punctual = Punctual::builder()
        .store(LogStore::open(folder.join("timers.log"))?)
        .bus(FileBus::open(folder.join("events.jsonl"))?)
        .worker(WorkerSettings {
            publish_batch: 100, // one sync for many events
            ..WorkerSettings::default()
        })
        .build()
        .await?;
    let running = punctual.start().await?;
    schedule(&punctual, count).await?;
    tokio::task::spawn_blocking(|| read_to_string(stdin())).await??;
    running.shutdown().await?;
    Ok(())
}

async fn schedule(punctual: &Punctual, count: u64) -> Result<(), Box<dyn Error>> {
    let run = punctual.now();
    for first in (0..count).step_by(AT_ONCE as usize) {
        let keys = (first..count.min(first + AT_ONCE)).map(|n| {
            let key = TimerKey::named(TenantId::default(), &format!("{n} of {run}"));
            let wait = Duration::from_millis(n * 37 % 1_000);
            (key, punctual.now().saturating_add(wait))
        });
        let due: Vec<(TimerKey, Timestamp)> = keys.collect();
        let timers = due
            .iter()
            .map(|(key, due_at)| Timer::at(key.clone(), *due_at));
        let _ = punctual.schedule_all(timers).await?;
        for (key, due_at) in due {
            println!("{} {due_at}", key.service_call_id);
        }
    }
    Ok(())
}
