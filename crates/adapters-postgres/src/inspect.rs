//! What an operator should know about a server before it goes into production.

use punctual_ports::ClockPort;
use time::Duration;
use tokio_postgres::{Client, Error, Row};

use crate::connect::{Connected, connect_unchecked};
use crate::explain::explain;
use crate::{ConnectError, PostgresUrl};

/// What is read besides the facts that decide about a connection. Every role may read all of it.
const STATE: &str = "\
SELECT pg_catalog.current_setting('server_version') AS server_version,
       pg_catalog.current_setting('synchronous_standby_names') AS standby_names,
       pg_catalog.current_setting('autovacuum') AS autovacuum,
       pg_catalog.current_setting('max_connections')::pg_catalog.int8
         - pg_catalog.current_setting('superuser_reserved_connections')::pg_catalog.int8 AS max_connections,
       coalesce((SELECT sum(numbackends) FROM pg_catalog.pg_stat_database), 0)::pg_catalog.int8 AS connections,
       coalesce((SELECT max(pg_catalog.age(held.xid)) FROM (
           SELECT backend_xmin AS xid FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid()
           UNION ALL SELECT xmin FROM pg_catalog.pg_replication_slots
           UNION ALL SELECT catalog_xmin FROM pg_catalog.pg_replication_slots
           UNION ALL SELECT transaction FROM pg_catalog.pg_prepared_xacts) AS held), 0)::pg_catalog.int8
         AS oldest_xmin_age";

const STANDBYS: &str = "\
SELECT application_name, coalesce(state, '') AS state, coalesce(sync_state, '') AS sync_state
  FROM pg_catalog.pg_stat_replication ORDER BY application_name, pid LIMIT 100";

const TIME: &str = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8 AS micros";

/// What [`examine`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of the server, and none follows from another"
)]
#[non_exhaustive]
pub struct Inspection {
    /// The address of the host that answered, without the password.
    pub server: String,
    /// Its version, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub server_version: String,
    /// Its major version.
    pub major_version: i32,
    /// Why an engine would not use it, if so.
    pub refusal: Option<ConnectError>,
    /// Without it a crash of the machine may destroy the database.
    pub has_fsync: bool,
    /// Without it a crash of the machine may destroy pages, unless the disk writes them as a whole.
    pub has_full_page_writes: bool,
    /// Without it dead rows accumulate, and polls become slower.
    pub has_autovacuum: bool,
    /// What a commit waits for, as this role has it set.
    pub synchronous_commit: String,
    /// The standbys that a commit waits for; empty if there are none.
    pub synchronous_standby_names: String,
    /// The standbys that are connected, 100 at most.
    pub standbys: Vec<Standby>,
    /// Whether it is a standby itself.
    pub is_in_recovery: bool,
    /// Number of transactions since the oldest snapshot that somebody holds: dead rows that are newer
    /// cannot be removed.
    pub oldest_xmin_age: u64,
    /// How far its clock is ahead of ours; negative if it is behind. It is measured up to
    /// `clock_offset_error` in both directions.
    pub clock_offset: Duration,
    /// Half of the round trip that the offset was measured with, and a millisecond.
    pub clock_offset_error: Duration,
    /// Number of connections to all of its databases.
    pub connections: u64,
    /// Number of connections that it allows, without those that are reserved for superusers.
    pub max_connections: u64,
    /// The role whose privileges count.
    pub user: String,
    /// The schema of the tables.
    pub schema: Option<String>,
    /// Whether the role may create tables in the schema, which a migration needs.
    pub may_create_tables: bool,
}

/// A standby that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standby {
    /// The name under which it connected.
    pub name: String,
    /// Such as `streaming`; empty if our role may not see it.
    pub state: String,
    /// Such as `sync` or `async`; empty if our role may not see it.
    pub sync_state: String,
}

/// The newest major version that the tests of this crate run on.
const VERIFIED: i32 = 15;

impl Inspection {
    /// Whether the tests of this crate run on its version. Newer ones are expected to work.
    pub const fn is_version_verified(&self) -> bool {
        self.major_version == VERIFIED
    }
}

/// Connects and reports on the server, without changing anything. `schema` is that of the tables, by
/// default the first of the search path.
///
/// # Errors
/// If there is no connection, or what answers is not PostgreSQL 15 or newer. What else would be refused is
/// in [`Inspection::refusal`].
pub async fn examine(
    url: &PostgresUrl,
    schema: Option<&str>,
    clock: &dyn ClockPort,
) -> Result<Inspection, ConnectError> {
    let connected = connect_unchecked(url, schema, clock, "check").await?;
    let limit = url.connect_timeout;
    let server = connected.facts.server.clone();
    let read = tokio::select! {
        biased;
        read = read(&connected, clock) => read,
        () = clock.sleep_for(limit) => {
            let reason = format!("it was connected, but answers nothing within {} s", limit.as_secs());
            return Err(ConnectError::Unreachable { server, reason });
        }
    };
    read.map_err(|error| explain(url, server, &error))
}

async fn read(connected: &Connected, clock: &dyn ClockPort) -> Result<Inspection, Error> {
    let (client, facts) = (&connected.client, &connected.facts);
    let state = client.query_typed_one(STATE, &[]).await?;
    let count = |name| {
        state
            .try_get::<_, i64>(name)
            .map(|it| u64::try_from(it).unwrap_or(0))
    };
    let standbys = client.query_typed(STANDBYS, &[]).await?;
    let standbys = standbys.iter().map(standby).collect::<Result<_, _>>()?;
    let (clock_offset, clock_offset_error) = clock_offset(client, clock).await?;
    Ok(Inspection {
        server: facts.server.clone(),
        server_version: state.try_get("server_version")?,
        major_version: facts.version_num / 10_000,
        refusal: facts.check().err(),
        has_fsync: facts.has_fsync,
        has_full_page_writes: facts.has_full_page_writes,
        has_autovacuum: state.try_get::<_, &str>("autovacuum")? == "on",
        synchronous_commit: facts.synchronous_commit.clone(),
        synchronous_standby_names: state.try_get("standby_names")?,
        standbys,
        is_in_recovery: facts.is_in_recovery,
        oldest_xmin_age: count("oldest_xmin_age")?,
        clock_offset,
        clock_offset_error,
        connections: count("connections")?,
        max_connections: count("max_connections")?,
        user: facts.user.clone(),
        schema: facts.schema.clone(),
        may_create_tables: facts.may_create,
    })
}

fn standby(row: &Row) -> Result<Standby, Error> {
    Ok(Standby {
        name: row.try_get("application_name")?,
        state: row.try_get("state")?,
        sync_state: row.try_get("sync_state")?,
    })
}

/// The offset of the server's clock, and how far it may be wrong: the shortest of three round trips.
async fn clock_offset(
    client: &Client,
    clock: &dyn ClockPort,
) -> Result<(Duration, Duration), Error> {
    let mut best: Option<(Duration, Duration)> = None;
    for _ in 0..3 {
        // In this order: a pause in between makes the error larger, not the offset.
        let (started, before) = (clock.monotonic(), clock.now());
        let row = client.query_typed_one(TIME, &[]).await?;
        let took = clock.monotonic().saturating_sub(started);
        let theirs = Duration::microseconds(row.try_get("micros")?);
        let half = Duration::try_from(took / 2).unwrap_or(Duration::MAX);
        // Ours is cut to a millisecond, so that half of one is the best guess for the rest.
        let ours = Duration::milliseconds(before.as_millis())
            .saturating_add(half)
            .saturating_add(Duration::microseconds(500));
        let error = half.saturating_add(Duration::milliseconds(1));
        if best.is_none_or(|(_, least)| error < least) {
            best = Some((theirs.saturating_sub(ours), error));
        }
    }
    Ok(best.unwrap_or_default())
}
