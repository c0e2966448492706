//! The log: one file of JSON values, each a list of records that hold together or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use punctual::ports::{
    BusPosition, DeadLetter, DeadLetterOrigin, ServiceCallId, TenantId, TimerEntry, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is stored from here on.
#[derive(Serialize, Deserialize)]
pub(crate) enum Record {
    /// The timer, in whatever state it is now. Leases are not stored: they end with the process.
    Timer {
        entry: TimerEntry,
        retry_at: Option<Timestamp>,
    },
    /// A tombstone in place of the timer.
    Deleted(TenantId, ServiceCallId, Timestamp),
    /// Neither the timer nor a tombstone.
    Purged(TenantId, ServiceCallId),
    DeadLetter(u64, #[serde(with = "DeadLetterJson")] DeadLetter),
    DeadLetterRemoved(u64),
    Position(#[serde(with = "PositionJson")] BusPosition),
}

/// The fields of a dead letter, for serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "DeadLetter")]
struct DeadLetterJson {
    id: String,
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    origin: DeadLetterOrigin,
    tenant_id: Option<TenantId>,
    payload: Vec<u8>,
    reason: String,
    failed_at: Timestamp,
}

/// The fields of a position, for serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "BusPosition")]
struct PositionJson {
    stream: String,
    stream_created_at: String,
    last_sequence: u64,
    last_message_id: String,
    acknowledged_at: Timestamp,
    covers_until: Timestamp,
}

fn as_text<S: Serializer>(origin: &DeadLetterOrigin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(origin)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeadLetterOrigin, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// The file, open for appending and locked against a second process.
pub(crate) struct Log(File);

impl Log {
    /// Opens the file, makes it if there is none, and hands every record over.
    pub(crate) fn open(path: &Path, mut replay: impl FnMut(Record)) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path)?;
        file.try_lock()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let mut changes = serde_json::Deserializer::from_slice(&text).into_iter::<Vec<Record>>();
        let mut complete = 0;
        while let Some(change) = changes.next() {
            match change {
                Ok(records) => records.into_iter().for_each(&mut replay),
                // A kill in the middle of a write leaves a part of it, which nobody was promised.
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(error.into()),
            }
            complete = changes.byte_offset() as u64;
        }
        file.set_len(complete)?;
        file.sync_all()?;
        // The name of a new file is durable only with its folder.
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Self(file))
    }

    /// Appends, and returns once it is on the disk.
    pub(crate) fn append(&mut self, changes: &[u8]) -> io::Result<()> {
        self.0.write_all(changes)?;
        self.0.sync_data()
    }
}
