//! How far a broker has acknowledged what we published, kept where the broker cannot lose it.

use async_trait::async_trait;
use punctual_domain::Timestamp;

use crate::PortError;

/// The last message that a broker's stream has acknowledged to us.
///
/// A broker that is restored from an older copy no longer has that message, and then whatever was
/// acknowledged after the copy was made has to be published again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusPosition {
    /// The stream's name.
    pub stream: String,
    /// Which stream of that name: when the broker made it, in the broker's own words.
    pub made_at: String,
    /// The highest sequence that was acknowledged.
    pub last_sequence: u64,
    /// The deduplication id of the message that has it.
    pub last_message_id: String,
    /// When it was acknowledged.
    pub acknowledged_at: Timestamp,
    /// Whatever was published before this instant and acknowledged has a sequence of at most
    /// `last_sequence`. What was published later is in doubt if the process ends without a word.
    pub covers_until: Timestamp,
}

/// Keeps the position of each stream.
///
/// # Contract
/// - A kept position is durable when `keep` answers, and comes back as it was.
/// - There is one position for each stream name; keeping another replaces it, whatever it says.
/// - A stream without a position has none: `None` and not an error.
/// - Sequences up to 2^63 - 1 can be kept. A greater one may be `Rejected`; the position before it
///   stays then.
#[async_trait]
pub trait BusPositionPort: Send + Sync {
    /// The position of a stream.
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError>;

    /// Keeps a position in place of the one before.
    async fn keep(&self, position: BusPosition) -> Result<(), PortError>;
}
