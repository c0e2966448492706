//! What a run did, and how far a file has come.

use punctual_domain::Timestamp;

/// One migration of a file's set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationState {
    /// Its place in the order.
    pub version: u32,
    /// Its name, which begins with the version.
    pub name: &'static str,
    /// When the file went through it; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// How far a file has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Every migration of the set, in order.
    pub migrations: Vec<MigrationState>,
}

impl Status {
    /// How many migrations are still to be applied.
    pub fn pending(&self) -> usize {
        self.migrations
            .iter()
            .filter(|migration| migration.applied_at.is_none())
            .count()
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every migration of the set, in order; none is pending any more.
    pub migrations: Vec<MigrationState>,
    /// How many of them this run applied; they are the last ones.
    pub applied_now: usize,
}
