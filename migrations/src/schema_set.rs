//! Which tables a database has, and the migrations that lead there.

use crate::{Dialect, Migration, postgres, sqlite};

/// Which tables a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaSet {
    /// All modules in one database: timers belong to service calls.
    Shared,
    /// Timers in a database of their own, without service calls.
    TimersOnly,
    /// Attempts in a database of their own, with the messages about them, without service calls.
    ExecutionOnly,
}

impl SchemaSet {
    /// Every set there is.
    pub const ALL: [Self; 3] = [Self::Shared, Self::TimersOnly, Self::ExecutionOnly];

    /// Whether attempts and messages are kept in it.
    pub const fn has_attempts(self) -> bool {
        matches!(self, Self::Shared | Self::ExecutionOnly)
    }

    /// Whether timers are kept in it.
    pub const fn has_timers(self) -> bool {
        matches!(self, Self::Shared | Self::TimersOnly)
    }

    /// The name that a database's history records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::TimersOnly => "timers-only",
            Self::ExecutionOnly => "execution-only",
        }
    }

    /// The migrations of this set in a dialect, in the order in which they are applied. Both dialects
    /// have the same versions of a set under the same names.
    pub const fn migrations(self, dialect: Dialect) -> &'static [Migration] {
        match (dialect, self) {
            (Dialect::Sqlite, Self::Shared) => &sqlite::SHARED,
            (Dialect::Sqlite, Self::TimersOnly) => &sqlite::TIMERS_ONLY,
            (Dialect::Sqlite, Self::ExecutionOnly) => &sqlite::EXECUTION_ONLY,
            (Dialect::Postgres, Self::Shared) => &postgres::SHARED,
            (Dialect::Postgres, Self::TimersOnly) => &postgres::TIMERS_ONLY,
            (Dialect::Postgres, Self::ExecutionOnly) => &postgres::EXECUTION_ONLY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::fmt::Write as _;

    /// Each set in each dialect.
    fn lists() -> impl Iterator<Item = &'static [Migration]> {
        Dialect::ALL
            .into_iter()
            .flat_map(|dialect| SchemaSet::ALL.map(|set| set.migrations(dialect)))
    }

    #[test]
    fn versions_ascend_and_each_name_begins_with_its_version() {
        for migrations in lists() {
            assert!(migrations.is_sorted_by(|a, b| a.version < b.version));
            for migration in migrations {
                let prefix = format!("{:04}_", migration.version);
                assert!(migration.name.starts_with(&prefix), "{}", migration.name);
            }
        }
    }

    #[test]
    fn a_set_has_the_same_versions_and_names_in_each_dialect() {
        let names = |migrations: &[Migration]| -> Vec<_> {
            migrations.iter().map(|it| (it.version, it.name)).collect()
        };
        for set in SchemaSet::ALL {
            let [sqlite, postgres] = Dialect::ALL.map(|it| names(set.migrations(it)));
            assert_eq!(sqlite, postgres, "{}", set.name());
        }
    }

    /// Databases in the field carry these. A change to a migration that anybody may have applied makes
    /// this program refuse their database, so the change belongs into a new migration instead, and the
    /// checksum stays.
    #[test]
    fn the_checksum_of_each_migration_is_that_of_its_file() {
        for migration in lists().flatten() {
            let digest = Sha256::digest(migration.sql.replace("\r\n", "\n"));
            let mut hex = String::new();
            for byte in digest {
                write!(hex, "{byte:02x}").unwrap();
            }
            assert_eq!(migration.checksum, hex, "{}", migration.name);
        }
    }

    #[test]
    fn no_migration_asks_the_database_for_the_time() {
        let clocks = [
            "'now'",
            "now()",
            "current_timestamp",
            "clock_timestamp",
            "unixepoch",
            "julianday",
        ];
        for migration in lists().flatten() {
            let sql = migration.sql.to_ascii_lowercase();
            for clock in clocks {
                assert!(!sql.contains(clock), "{} uses {clock}", migration.name);
            }
        }
    }

    /// PostgreSQL takes no parameters where several statements are sent as one.
    #[test]
    fn no_migration_of_postgres_has_a_parameter() {
        for set in SchemaSet::ALL {
            for migration in set.migrations(Dialect::Postgres) {
                assert!(!migration.sql.contains(":now"), "{}", migration.name);
            }
        }
    }
}
