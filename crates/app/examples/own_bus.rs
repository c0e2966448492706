//! A program of your own with a bus of your own: events leave through an `EventBusPort` adapter that
//! appends them to a file, one JSON envelope a line, and answers only when they are on the disk.
//! Yours would talk to a queue or a webhook; its contract is in `punctual::ports::EventBusPort`.
//!
//! Run it with `cargo run --release -p punctual --example own_bus`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual::ports::{
    BatchResult, EventBusPort, MessageEnvelope, PortError, PortErrorKind, PublishOutcome,
    Subscribe, Subscription,
};
use punctual::{Punctual, TenantId, Timer, TimerKey, WorkerSettings};
use tokio::sync::watch;

/// Appends what is published to a file.
struct Journal {
    file: Arc<Mutex<File>>,
    /// How many events were written.
    written: watch::Sender<usize>,
}

impl Journal {
    fn open(path: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
            written: watch::Sender::new(0),
        })
    }
}

#[async_trait]
impl EventBusPort for Journal {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let length = batch.len();
        let file = Arc::clone(&self.file);
        // Writing blocks, so not here.
        let written = tokio::task::spawn_blocking(move || append(&file, &batch)).await;
        match written {
            Ok(Ok(())) => {
                self.written.send_modify(|written| *written += length);
                Ok(vec![Ok(PublishOutcome::Accepted); length])
            }
            // Unknown is not done: the engine publishes the same envelopes again, and whoever reads
            // the file tells repetitions by their firingId.
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(error) => Err(failed(&error.to_string())),
        }
    }

    async fn subscribe(&self, _: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        let why = "nobody can be told through a journal: read the file";
        Err(PortError::new(PortErrorKind::Rejected, "subscribe", why))
    }
}

fn failed(why: &str) -> PortError {
    PortError::new(PortErrorKind::Unavailable, "write the journal", why)
}

fn append(file: &Mutex<File>, batch: &[MessageEnvelope]) -> std::io::Result<()> {
    let mut lines = Vec::new();
    for envelope in batch {
        lines.append(&mut envelope.to_json()?);
        lines.push(b'\n');
    }
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all(&lines)?;
    file.sync_data()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let journal = Journal::open(Path::new("data/journal.ndjson"))?;
    let mut written = journal.written.subscribe();
    let punctual = Punctual::builder()
        .sqlite("data/journal.db")
        .bus(journal)
        .worker(WorkerSettings {
            publish_batch: 100, // one sync for many events
            ..WorkerSettings::default()
        })
        .build()
        .await?;
    let running = punctual.start().await?;
    let (tenant, now) = (TenantId::new("acme")?, punctual.now());
    let timers = (0..1_000).map(|n| {
        let key = TimerKey::named(tenant.clone(), &format!("{n} of {now}"));
        Timer::after(key, Duration::from_millis(n % 500))
    });
    let scheduled = punctual.schedule_all(timers).await?;
    println!("{} timers were scheduled", scheduled.len());
    written
        .wait_for(|written| *written >= scheduled.len())
        .await?;
    running.shutdown().await?;
    println!("their events are in data/journal.ndjson");
    Ok(())
}
