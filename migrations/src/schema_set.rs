//! Which tables a database file has, and the migrations that lead there.

use crate::Migration;

/// Which tables a database file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaSet {
    /// All modules in one file: timers belong to service calls.
    Shared,
    /// Timers on a file of their own, without service calls.
    TimersOnly,
}

/// The first two have the names of the original specification, which has no 0002.
const SHARED: [Migration; 3] = [
    Migration {
        version: 1,
        name: "0001_bootstrap_schema",
        sql: include_str!("../sqlite/0001_bootstrap_schema.sql"),
    },
    Migration {
        version: 3,
        name: "0003_timer_schedules_schema",
        sql: include_str!("../sqlite/0003_timer_schedules_schema.sql"),
    },
    Migration {
        version: 4,
        name: "0004_timer_engine",
        sql: include_str!("../sqlite/0004_timer_engine.sql"),
    },
];

const TIMERS_ONLY: [Migration; 1] = [Migration {
    version: 1,
    name: "0001_timer_schedules",
    sql: include_str!("../sqlite_timers/0001_timer_schedules.sql"),
}];

impl SchemaSet {
    /// Every set there is.
    pub const ALL: [Self; 2] = [Self::Shared, Self::TimersOnly];

    /// The name that a file's history records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::TimersOnly => "timers-only",
        }
    }

    /// The migrations of a SQLite file, in the order in which they are applied.
    pub const fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Shared => &SHARED,
            Self::TimersOnly => &TIMERS_ONLY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_ascend_and_each_name_begins_with_its_version() {
        for set in SchemaSet::ALL {
            let migrations = set.migrations();
            assert!(migrations.is_sorted_by(|a, b| a.version < b.version));
            for migration in migrations {
                let prefix = format!("{:04}_", migration.version);
                assert!(migration.name.starts_with(&prefix), "{}", migration.name);
            }
        }
    }

    /// Files in the field carry these. A change to a migration that anybody may have applied makes
    /// this program refuse their file, so the change belongs into a new migration instead.
    #[test]
    fn the_checksums_of_known_migrations_never_change() {
        let checksums: Vec<(&str, String)> = SchemaSet::ALL
            .iter()
            .flat_map(|set| set.migrations())
            .map(|migration| (migration.name, migration.checksum()[..16].to_owned()))
            .collect();
        let expected = [
            ("0001_bootstrap_schema", "168f53f222076a33"),
            ("0003_timer_schedules_schema", "17d596dadf8705b1"),
            ("0004_timer_engine", "6599bdaea7d053bb"),
            ("0001_timer_schedules", "ad46a30d87e78ec5"),
        ];
        assert_eq!(
            checksums,
            expected.map(|(name, sum)| (name, sum.to_owned()))
        );
    }

    #[test]
    fn no_migration_asks_the_database_for_the_time() {
        for migration in SchemaSet::ALL.iter().flat_map(|set| set.migrations()) {
            let sql = migration.sql.to_ascii_lowercase();
            for clock in ["'now'", "current_timestamp", "unixepoch", "julianday"] {
                assert!(!sql.contains(clock), "{} uses {clock}", migration.name);
            }
        }
    }
}
