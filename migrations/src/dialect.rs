//! Which database a schema is written for.

/// Which database a schema is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SQLite: a file.
    Sqlite,
    /// PostgreSQL: a schema on a server.
    Postgres,
}

impl Dialect {
    /// Every dialect there is.
    pub const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];
}
