//! The position up to which a broker acknowledged messages, stored where the broker cannot lose it.

use async_trait::async_trait;
use punctual_domain::Timestamp;

use crate::PortError;

/// The last message that a broker's stream has acknowledged.
///
/// A broker restored from an older backup lacks that message, and then the messages acknowledged after
/// the backup have to be published again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusPosition {
    /// The stream's name.
    pub stream: String,
    /// When the stream was created, as the broker formats it; distinguishes streams of the same name.
    pub stream_created_at: String,
    /// The highest acknowledged sequence.
    pub last_sequence: u64,
    /// The deduplication id of the message with that sequence.
    pub last_message_id: String,
    /// When it was acknowledged.
    pub acknowledged_at: Timestamp,
    /// Every acknowledged message published before this instant has a sequence of at most
    /// `last_sequence`. Later ones are in doubt after a crash.
    pub covers_until: Timestamp,
}

/// Stores the position of each stream.
///
/// # Contract
/// - A position is durable when `save` returns, and is read back unchanged.
/// - There is one position per stream name; `save` replaces it unconditionally.
/// - A stream without a position is `None`, not an error.
/// - Sequences up to 2^63 - 1 can be stored. A greater one may be `Rejected`, which leaves the position
///   before it.
#[async_trait]
pub trait BusPositionPort: Send + Sync {
    /// Reads the position of a stream.
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError>;

    /// Stores a position in place of the one before.
    async fn save(&self, position: BusPosition) -> Result<(), PortError>;
}
