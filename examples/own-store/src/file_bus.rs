//! A bus that publishes only: it appends events to a file, for readers that it does not know.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use punctual::ports::{
    BatchResult, EventBusPort, MessageEnvelope, PortError, PortErrorKind, PublishOutcome,
    Subscribe, Subscription, async_trait,
};

/// Appends each event to a file, one JSON envelope a line, and answers when it is on the disk.
pub struct FileBus {
    file: Arc<Mutex<File>>,
}

impl FileBus {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path)?;
        // A kill in the middle of a write leaves a part of a line. It was not accepted and is published
        // again; readers skip it, as long as the next line begins on its own.
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last)?;
        }
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
        })
    }
}

#[async_trait]
impl EventBusPort for FileBus {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let length = batch.len();
        let file = Arc::clone(&self.file);
        let written = tokio::task::spawn_blocking(move || append(&file, &batch)).await;
        match written.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(()) => Ok(vec![Ok(PublishOutcome::Accepted); length]),
            // Unknown is not done: the engine publishes the same events again, and readers tell
            // repetitions by their firingId.
            Err(error) => Err(PortError::new(
                PortErrorKind::Unavailable,
                "append events",
                error.to_string(),
            )),
        }
    }

    async fn subscribe(&self, _: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        let why = "this bus publishes only: read its file";
        Err(PortError::new(PortErrorKind::Rejected, "subscribe", why))
    }
}

fn append(file: &Mutex<File>, batch: &[MessageEnvelope]) -> io::Result<()> {
    let mut lines = Vec::new();
    for envelope in batch {
        let json = envelope.to_json()?;
        // In JSON a line break is never a part of a value, so that a blank is as good.
        lines.extend(
            json.iter()
                .map(|&byte| if byte == b'\n' { b' ' } else { byte }),
        );
        lines.push(b'\n');
    }
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all(&lines)?;
    file.sync_data()
}
