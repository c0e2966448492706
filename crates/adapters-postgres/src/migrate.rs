//! Schema migrations, in one transaction and under a lock (docs/decisions/0015).
//!
//! A database whose tables are there is only read: a program whose role may not create tables can use what
//! another one has created.

use punctual_domain::Timestamp;
use punctual_migrations::{Applied, Dialect, Migration, POSTGRES_HISTORY, SchemaSet, plan};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::OpenError;
use crate::connect::Connected;
use crate::open_error::Place;
use crate::values::Instant;

/// The lock that migrations of all schemas of a database take turns with.
const LOCK: i64 = 0x70_756e_6374_7561;

/// The name of a schema as it is written in a statement.
pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// Brings the tables of a schema up to date. `now` is recorded with what was applied.
pub(crate) async fn migrate(
    connected: &Connected,
    place: &Place,
    set: SchemaSet,
    now: Timestamp,
) -> Result<(), OpenError> {
    let client = &connected.client;
    let failed = |error: Error| place.failed(&error);
    let history = read_history(client, &place.schema).await.map_err(failed)?;
    if missing(place, &history, set)?.is_empty() {
        return Ok(());
    }
    connected.facts.check_may_create()?;
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = 0; \
         SET LOCAL search_path = {}; SELECT pg_catalog.pg_advisory_xact_lock({LOCK})",
        quoted(&place.schema)
    );
    let migrated = async {
        client.batch_execute(&begin).await.map_err(failed)?;
        // Another instance may have been faster.
        let history = read_history(client, &place.schema).await.map_err(failed)?;
        let missing = missing(place, &history, set)?;
        apply(client, &missing, set, now).await.map_err(failed)
    };
    if let Err(error) = migrated.await {
        crate::lane::roll_back(client).await;
        return Err(error);
    }
    client.batch_execute("COMMIT").await.map_err(failed)
}

/// Refuses a schema whose tables are not those of this program, and changes nothing. Returns the set that
/// it has, whichever is expected.
pub(crate) async fn check(
    client: &Client,
    place: &Place,
    expected: SchemaSet,
) -> Result<SchemaSet, OpenError> {
    let history = read_history(client, &place.schema)
        .await
        .map_err(|error| place.failed(&error))?;
    let is_there = |set: &SchemaSet| history.first().is_some_and(|it| it.set == set.name());
    let set = SchemaSet::ALL
        .into_iter()
        .find(is_there)
        .unwrap_or(expected);
    if missing(place, &history, set)?.is_empty() {
        return Ok(set);
    }
    Err(OpenError::Missing {
        server: place.server.clone(),
        schema: place.schema.clone(),
    })
}

fn missing(
    place: &Place,
    history: &[Applied],
    set: SchemaSet,
) -> Result<Vec<&'static Migration>, OpenError> {
    plan(history, set, Dialect::Postgres).map_err(|drift| place.drift(set, drift))
}

/// The history of a schema; none if it has no such table.
pub(crate) async fn read_history(client: &Client, schema: &str) -> Result<Vec<Applied>, Error> {
    // `to_regclass` would answer from what this connection knew before it waited for the lock.
    let exists = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c \
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'punctual_migrations')";
    let table = format!("{}.punctual_migrations", quoted(schema));
    let row = client
        .query_typed_one(exists, &[(&schema, Type::TEXT)])
        .await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(Vec::new());
    }
    let read = format!("SELECT version, name, checksum, set_name FROM {table} ORDER BY version");
    let rows = client.query_typed(&read, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(Applied {
                version: row.try_get::<_, i32>(0)?.unsigned_abs(),
                name: row.try_get(1)?,
                checksum: row.try_get(2)?,
                set: row.try_get(3)?,
            })
        })
        .collect()
}

async fn apply(
    client: &Client,
    missing: &[&'static Migration],
    set: SchemaSet,
    now: Timestamp,
) -> Result<(), Error> {
    client.batch_execute(POSTGRES_HISTORY).await?;
    for migration in missing {
        client.batch_execute(migration.sql).await?;
        let record = "INSERT INTO punctual_migrations \
            (version, name, checksum, set_name, applied_at, app_version) \
            VALUES ($1, $2, $3, $4, $5, $6)";
        let version = migration.version.cast_signed();
        client
            .query_typed(
                record,
                &[
                    (&version, Type::INT4),
                    (&migration.name, Type::TEXT),
                    (&migration.checksum, Type::TEXT),
                    (&set.name(), Type::TEXT),
                    (&Instant(now), Type::TIMESTAMPTZ),
                    (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                ],
            )
            .await?;
    }
    // The planner knows the tables from the first timer or attempt on.
    let tables = if set.has_timers() {
        "timers, timer_queue, timer_firings, timer_claims, dead_letters"
    } else {
        "http_execution_log, outbox, outbox_claims, dead_letters"
    };
    client.batch_execute(&format!("ANALYZE {tables}")).await
}
