//! The migrations of a SQLite file.

use crate::Migration;
use crate::migration::migration;

/// What several sets get is one file, with the same number and name in each.
const BUS_POSITIONS: Migration = migration!(
    "sqlite",
    5,
    "0005_bus_positions",
    "12be413b0f0436b78c8b099c96d51943b782691df93bff124445a3b233cb447b"
);
const TENANT_READY: Migration = migration!(
    "sqlite",
    7,
    "0007_tenant_ready",
    "a2adab489f576302ed089b91aeaeafe0270a791bd42c18628bebcdee289af3ff"
);
const LAST_ERROR: Migration = migration!(
    "sqlite",
    9,
    "0009_last_error",
    "71a8ba9de57e20b2934c3e9e707d7e1e665180050f5fd446e5d3a1305ad58075"
);
const DATABASE_ID: Migration = migration!(
    "sqlite",
    11,
    "0011_database_id",
    "41cbcd0ba1acdbba723f74e44006dc33464be7ec247204b2ad6bd66f74855588"
);

/// The first two have the names of the original specification, which has no 0002.
pub(crate) const SHARED: [Migration; 10] = [
    migration!(
        "sqlite",
        1,
        "0001_bootstrap_schema",
        "168f53f222076a336398e90187f8d16dbbe8ecde0ba3cebaf34a13341be09909"
    ),
    migration!(
        "sqlite",
        3,
        "0003_timer_schedules_schema",
        "17d596dadf8705b1bbaf21f2ffe3e7c0753500a112307aa1553d6f96387fe084"
    ),
    migration!(
        "sqlite",
        4,
        "0004_timer_engine",
        "6599bdaea7d053bb4dcfbe42fcfdba2f28fda7fedd701ea5f152ff77f6baa9ef"
    ),
    BUS_POSITIONS,
    migration!(
        "sqlite",
        6,
        "0006_service_calls",
        "52962727ab745d73cd78373c0a74f85d7025a3b21fff9f75c8246a41ac0ea401"
    ),
    TENANT_READY,
    migration!(
        "sqlite",
        8,
        "0008_attempts_by_port",
        "2b38c6acf61370c7bbba58dc2d1bed90f2922d3a8f71e2b408263e41691245b3"
    ),
    LAST_ERROR,
    migration!(
        "sqlite",
        10,
        "0010_dispatch_and_check",
        "3c276d1f17a05121f4a8035e85e9197ae12e75f0f5558c2b4e7aaa2354a88d4c"
    ),
    DATABASE_ID,
];

pub(crate) const TIMERS_ONLY: [Migration; 5] = [
    migration!(
        "sqlite_timers",
        1,
        "0001_timer_schedules",
        "ad46a30d87e78ec5d3eb390c06161d24ca18e9f34d4109e16e4c8ec1721dcb8a"
    ),
    BUS_POSITIONS,
    TENANT_READY,
    LAST_ERROR,
    DATABASE_ID,
];

pub(crate) const EXECUTION_ONLY: [Migration; 3] = [
    migration!(
        "sqlite_execution",
        1,
        "0001_http_execution_log",
        "77e6e3ab2e4dd2d19acc0566df0a926c9864d390ea195d8740a3f880dc50af3e"
    ),
    BUS_POSITIONS,
    DATABASE_ID,
];
