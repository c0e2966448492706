//! Migrating a schema beforehand, and reporting how far it is.

use std::collections::HashMap;

use punctual_domain::Timestamp;
use punctual_migrations::{Dialect, plan};
use punctual_ports::ClockPort;
use tokio_postgres::{Client, Error};

use crate::connect::{Connected, connect};
use crate::migrate::{migrate as apply, quoted, read_history};
use crate::open_error::Place;
use crate::values::Instant;
use crate::{OpenError, PostgresSettings};

/// One migration of a schema's set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationState {
    /// Its name, which begins with its version.
    pub name: &'static str,
    /// When it was applied; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
}

/// The migrations of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// The schema and the server, for messages.
    pub name: String,
    /// Every migration of the set, in order.
    pub migrations: Vec<MigrationState>,
    /// Number of migrations that this run applied; they are the last ones.
    pub applied_now: usize,
}

impl MigrationReport {
    /// Number of pending migrations.
    pub fn pending(&self) -> usize {
        let is_pending = |it: &&MigrationState| it.applied_at.is_none();
        self.migrations.iter().filter(is_pending).count()
    }
}

/// Brings the tables of a schema up to date, as the opening of a store that fires does.
///
/// # Errors
/// If the database cannot be used. Nothing was written to it then.
pub async fn migrate(
    settings: &PostgresSettings,
    clock: &dyn ClockPort,
) -> Result<MigrationReport, OpenError> {
    let (connected, place) = connected(settings, clock).await?;
    let before = report(&connected.client, &place, settings).await?;
    apply(&connected, &place, settings.set, clock.now()).await?;
    let mut after = report(&connected.client, &place, settings).await?;
    after.applied_now = before.pending().saturating_sub(after.pending());
    Ok(after)
}

/// Reports which migrations a schema has been through, and changes nothing.
///
/// # Errors
/// If the database cannot be used, or its tables are not those of this program.
pub async fn migration_status(
    settings: &PostgresSettings,
    clock: &dyn ClockPort,
) -> Result<MigrationReport, OpenError> {
    let (connected, place) = connected(settings, clock).await?;
    report(&connected.client, &place, settings).await
}

async fn connected(
    settings: &PostgresSettings,
    clock: &dyn ClockPort,
) -> Result<(Connected, Place), OpenError> {
    let connected = connect(&settings.url, settings.schema.as_deref(), clock, "migrate").await?;
    let place = Place {
        server: connected.facts.server.clone(),
        schema: connected.facts.schema.clone().unwrap_or_default(),
    };
    Ok((connected, place))
}

async fn report(
    client: &Client,
    place: &Place,
    settings: &PostgresSettings,
) -> Result<MigrationReport, OpenError> {
    let failed = |error: Error| place.failed(&error);
    let history = read_history(client, &place.schema).await.map_err(failed)?;
    plan(&history, settings.set, Dialect::Postgres)
        .map_err(|drift| place.drift(settings.set, drift))?;
    let times = if history.is_empty() {
        HashMap::new()
    } else {
        applied_at(client, &place.schema).await.map_err(failed)?
    };
    let state = |name: &'static str| MigrationState {
        name,
        applied_at: times.get(name).copied(),
    };
    Ok(MigrationReport {
        name: format!("the schema {} of {}", place.schema, place.server),
        migrations: settings
            .set
            .migrations(Dialect::Postgres)
            .iter()
            .map(|it| state(it.name))
            .collect(),
        applied_now: 0,
    })
}

async fn applied_at(client: &Client, schema: &str) -> Result<HashMap<String, Timestamp>, Error> {
    let read = format!(
        "SELECT name, applied_at FROM {}.punctual_migrations",
        quoted(schema)
    );
    let rows = client.query_typed(&read, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get::<_, Instant>(1)?.0)))
        .collect()
}
