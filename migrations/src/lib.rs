//! The schemas of Punctual's databases and the order in which they grow. Pure: no driver, no I/O.

/// Which tables a database file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaSet {
    /// All modules in one file: timers belong to service calls.
    Shared,
    /// Timers on a file of their own, without service calls.
    TimersOnly,
}

impl SchemaSet {
    /// The name that a file's history records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::TimersOnly => "timers-only",
        }
    }
}
