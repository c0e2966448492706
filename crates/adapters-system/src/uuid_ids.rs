//! New ids from the clock and the operating system's randomness.

use punctual_ports::IdPort;
use uuid::Uuid;

/// Makes UUIDs of version 7, each greater than the one before within this process, also if the
/// wall clock is set back.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidIds;

impl IdPort for UuidIds {
    fn next_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}
