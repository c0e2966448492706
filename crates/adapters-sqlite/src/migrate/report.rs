//! The result of a migration run, and the migrations of a file.

use punctual_domain::Timestamp;

/// One migration of a file's set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationState {
    /// Its position in the order.
    pub version: u32,
    /// Its name, which begins with the version.
    pub name: &'static str,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// The migrations of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Every migration of the set, in order.
    pub migrations: Vec<MigrationState>,
}

impl Status {
    /// Number of pending migrations.
    pub fn pending(&self) -> usize {
        self.migrations
            .iter()
            .filter(|migration| migration.applied_at.is_none())
            .count()
    }
}

/// The result of a migration run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every migration of the set, in order; none is pending any more.
    pub migrations: Vec<MigrationState>,
    /// Number of migrations that this run applied; they are the last ones.
    pub applied_now: usize,
}
