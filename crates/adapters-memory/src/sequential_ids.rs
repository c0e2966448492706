//! Ids that are the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_ports::IdPort;
use uuid::Uuid;

/// Counts up from one. The ids have the layout of UUID version 7 with the count in their last
/// bits, so they sort, and a test can name the third one.
#[derive(Debug, Default)]
pub struct SequentialIds(AtomicU64);

impl SequentialIds {
    /// Begins with [`SequentialIds::nth`] of one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id that the `n`-th call gives.
    pub const fn nth(n: u64) -> Uuid {
        const VERSION_7: u128 = 0x7 << 76;
        const VARIANT: u128 = 0b10 << 62;
        // The count is split around the fixed bits so that order is kept.
        let high = (n >> 32) as u128;
        let low = (n & 0xffff_ffff) as u128;
        Uuid::from_u128(high << 80 | VERSION_7 | VARIANT | low)
    }
}

impl IdPort for SequentialIds {
    fn next_id(&self) -> Uuid {
        Self::nth(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_are_version_seven_and_known_in_advance() {
        let ids = SequentialIds::new();
        assert_eq!(ids.next_id(), SequentialIds::nth(1));
        assert_eq!(ids.next_id(), SequentialIds::nth(2));
        assert_eq!(SequentialIds::nth(2).get_version_num(), 7);
        assert!(SequentialIds::nth(u64::MAX) > SequentialIds::nth(u64::from(u32::MAX)));
    }
}
