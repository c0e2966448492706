//! Ids from the clock and the random numbers of the operating system.

use punctual_ports::IdPort;
use uuid::Uuid;

/// Generates UUIDs of version 7, increasing within this process even if the wall clock is set back.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidIds;

impl IdPort for UuidIds {
    fn next_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}
