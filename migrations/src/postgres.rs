//! The migrations of a schema on a PostgreSQL server.
//!
//! They have the numbers and names of SQLite's. Where SQLite changes a table that files in the field
//! already had, the table here is complete from the beginning, and the file of the change only says so.

use crate::Migration;
use crate::migration::migration;

/// What several sets get is one file, with the same number and name in each.
const BUS_POSITIONS: Migration = migration!(
    "postgres",
    5,
    "0005_bus_positions",
    "5b44783922d1a9bff3e60d16e5f39bd15746cdf05743dfa9aebda251f3d759ec"
);
const TENANT_READY: Migration = migration!(
    "postgres",
    7,
    "0007_tenant_ready",
    "b5d2ce6d4ebdfb6bb72e3cce49011bcb33fc51c055fc58af41d10b21313bd15d"
);
const LAST_ERROR: Migration = migration!(
    "postgres",
    9,
    "0009_last_error",
    "7f433aaa01db814910e8ed708fc2d09c1faeac2ebf052b21bb273c9053849b20"
);
const DATABASE_ID: Migration = migration!(
    "postgres",
    11,
    "0011_database_id",
    "b47b6d8642bb37d4f7ed3471e00c0ad20125aa29cde1771dc11c284be9268a8f"
);

pub(crate) const SHARED: [Migration; 10] = [
    migration!(
        "postgres",
        1,
        "0001_bootstrap_schema",
        "77d0e93afe11937135e94e2357b5ccc4dd39066b8dcc43d188304d69178495b8"
    ),
    migration!(
        "postgres",
        3,
        "0003_timer_schedules_schema",
        "1e604577f7b868a253fce6166f2e621e388414f8fefb059e96a252825eb35c64"
    ),
    migration!(
        "postgres",
        4,
        "0004_timer_engine",
        "345acf8c82ac0f1eb894157341c7434dd533386c7bef860a4bd2da0dcde5c3da"
    ),
    BUS_POSITIONS,
    migration!(
        "postgres",
        6,
        "0006_service_calls",
        "ec8b19d7dc8905e383baff010c07ee1027840d2ff1ae45285e3845dc3bb699f7"
    ),
    TENANT_READY,
    migration!(
        "postgres",
        8,
        "0008_attempts_by_port",
        "087bd3d289d4d3717ebbfb9e8e066821315228ea16b6936fcb44a9c44c76b37c"
    ),
    LAST_ERROR,
    migration!(
        "postgres",
        10,
        "0010_dispatch_and_check",
        "d7e23f04318c7285e341051687bcbbff8f7a1eadaa677d981698f87698195a82"
    ),
    DATABASE_ID,
];

pub(crate) const TIMERS_ONLY: [Migration; 5] = [
    migration!(
        "postgres_timers",
        1,
        "0001_timer_schedules",
        "2052f94ab290f5262fe8d74741868ab3800f1f4374079e3c69105e2f04a8bcc8"
    ),
    BUS_POSITIONS,
    TENANT_READY,
    LAST_ERROR,
    DATABASE_ID,
];

pub(crate) const EXECUTION_ONLY: [Migration; 3] = [
    migration!(
        "postgres_execution",
        1,
        "0001_http_execution_log",
        "0f5f274ba1abe61a1aec1927b67470b61c47d3e2f51dd75597cbaab1a593c5b7"
    ),
    BUS_POSITIONS,
    DATABASE_ID,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What the timers of the shared set have, and those on their own have not.
    const KEY: &str = ",
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls (tenant_id, service_call_id)
        ON DELETE CASCADE";

    /// Its statements, without the comment that the file begins with.
    fn statements(migration: &Migration) -> Vec<&str> {
        let (_, sql) = migration.sql.split_once("\n\n").unwrap();
        sql.split(";\n\n")
            .map(|it| it.trim_end().trim_end_matches(';'))
            .collect()
    }

    #[test]
    fn timers_alone_have_the_tables_of_the_shared_set_but_for_the_foreign_key() {
        let [schedules, engine] = [1, 2].map(|index| SHARED[index].sql);
        assert!(schedules.contains(KEY));
        let shared = schedules.replace(KEY, "") + engine;
        for statement in statements(&TIMERS_ONLY[0]) {
            assert!(shared.contains(statement), "{statement}");
        }
    }

    #[test]
    fn the_shared_set_adds_nothing_to_the_timers_but_a_trigger() {
        let alone = TIMERS_ONLY[0].sql;
        let [schedules, engine] = [1, 2].map(|index| {
            let shared = statements(&SHARED[index]);
            let added = shared.into_iter().filter(|it| !alone.contains(it));
            added.filter_map(|it| it.lines().next()).collect::<Vec<_>>()
        });
        assert_eq!(schedules, ["CREATE TABLE timers ("]);
        assert_eq!(
            engine,
            [
                "CREATE FUNCTION remove_parts_of_timers() RETURNS trigger",
                "CREATE TRIGGER remove_parts_of_timers",
            ]
        );
    }

    #[test]
    fn attempts_alone_have_the_tables_of_the_shared_set_but_for_what_takes_the_place_of_calls() {
        let shared: String = SHARED.iter().map(|it| it.sql).collect();
        assert!(shared.contains(KEY));
        let shared = shared.replace(KEY, "");
        let alone = statements(&EXECUTION_ONLY[0]);
        let own = alone.into_iter().filter(|it| !shared.contains(it));
        let own: Vec<_> = own.filter_map(|it| it.lines().next()).collect();
        assert_eq!(
            own,
            [
                "CREATE INDEX idx_http_execution_log_finished_at",
                "CREATE TABLE tombstones (",
                "CREATE INDEX idx_tombstones_deleted_at",
            ]
        );
    }
}
