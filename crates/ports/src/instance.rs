//! The instances that share a store, as each of them sees all.

use std::time::Duration;

use punctual_domain::Timestamp;
use uuid::Uuid;

/// An instance that has the store open, to fire its timers and to make its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Drawn when it opened the store.
    pub id: Uuid,
    /// What its operator knows it by, such as host and process.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// The modules that it runs.
    pub modules: String,
    /// When it opened the store.
    pub started_at: Timestamp,
    /// When it last said that it lives.
    pub heartbeat_at: Timestamp,
    /// Milliseconds by which its clock is ahead of the store's.
    pub clock_offset_millis: i64,
    /// What it is working on, where that is known.
    pub claimed: Option<ClaimedWork>,
}

impl Instance {
    /// Interval of the heartbeats.
    pub const HEARTBEAT: Duration = Duration::from_secs(5);
    /// An instance whose last heartbeat is older is taken for dead.
    pub const LIVES_FOR: Duration = Duration::from_secs(15);
    /// Maximum number of instances in an answer.
    pub const MOST: usize = 1_000;
}

/// Number of claims of an instance whose lease has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimedWork {
    /// Timers that it is firing.
    pub timers: u64,
    /// HTTP attempts that it is making.
    pub attempts: u64,
    /// Messages of the outbox that it is publishing.
    pub messages: u64,
}
