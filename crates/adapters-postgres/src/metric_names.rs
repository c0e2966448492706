//! The names of the metrics of this store.

/// Connections established to the database.
pub const CONNECTIONS: &str = "postgres_connections_total";
/// Timers claimed.
pub const CLAIMS: &str = "postgres_claims_total";
/// Timers claimed after the lease of another instance had ended.
pub const TAKE_OVERS: &str = "postgres_lease_take_overs_total";
/// Seconds by which the clock of this process is ahead of the server's.
pub const CLOCK_OFFSET: &str = "postgres_clock_offset_seconds";
/// Age of the oldest snapshot that keeps dead rows from being removed, in transactions.
pub const OLDEST_XMIN_AGE: &str = "postgres_oldest_xmin_age";
/// Bytes of write-ahead log that the database server has written since this store was opened.
pub const WAL_BYTES: &str = "postgres_wal_bytes_total";
/// Whether notifications of other instances arrive: 1, or 0 while the store polls instead.
pub const LISTENING: &str = "postgres_listening";

/// Every metric of this store, with its description.
pub const ALL: &[(&str, &str)] = &[
    (CONNECTIONS, "Connections established to the database"),
    (CLAIMS, "Timers claimed by this instance"),
    (
        TAKE_OVERS,
        "Timers claimed after the lease of another instance had ended",
    ),
    (
        CLOCK_OFFSET,
        "Seconds by which the clock of this process is ahead of the database server's",
    ),
    (
        OLDEST_XMIN_AGE,
        "Age in transactions of the oldest snapshot on the database server",
    ),
    (
        WAL_BYTES,
        "Bytes of write-ahead log written by the whole database server, for whomever",
    ),
    (
        LISTENING,
        "1 while notifications of other instances arrive, 0 while this one polls",
    ),
];

/// Counters among them.
const COUNTERS: [&str; 4] = [CONNECTIONS, CLAIMS, TAKE_OVERS, WAL_BYTES];

/// Describes all metrics to the installed recorder, and exports the counters from the start as 0, so that
/// an alert can be set on them.
pub fn describe() {
    for (name, description) in ALL {
        if COUNTERS.contains(name) {
            metrics::describe_counter!(*name, *description);
            metrics::counter!(*name).increment(0);
        } else {
            metrics::describe_gauge!(*name, *description);
        }
    }
}
