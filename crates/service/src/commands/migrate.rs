//! Bringing databases up to date beforehand, and showing how far they are.

use std::path::{Path, PathBuf};

use punctual_adapters_postgres::{self as postgres, PostgresSettings};
use punctual_adapters_sqlite::{
    MigrationState, OpenError, SchemaSet, migrate as apply, migration_status,
};
use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde::Serialize;

use super::clock;
use super::output::Answers;
use crate::cli::MigrateArgs;
use crate::failure::Failure;
use crate::settings::Environment;
use crate::settings::table::TIMER_DB_PATH;
use crate::store::refuse_what_is_no_file;

/// One database, and how far it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HowFar {
    database: String,
    set: &'static str,
    /// Left out when nothing was to be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_now: Option<usize>,
    pending: usize,
    migrations: Vec<Migration>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Migration {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_at: Option<Timestamp>,
}

/// Migrates the timers' database, and the shared one if it is named; or shows how far they are. What
/// is wrong with one of them does not keep the other from its turn.
pub(crate) async fn run(args: &MigrateArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let clock = clock()?;
    let mut answers = Answers::open()?;
    let sources = environment.good_sources(&args.database.0)?;
    if let Some(settings) = sources.postgres()? {
        return answers.line(&schema(&settings, args.status, &clock).await?);
    }
    let mut done = Ok(());
    for (path, set) in databases(args, environment)? {
        match one(&path, set, args.status, &clock) {
            Ok(answer) => answers.line(&answer)?,
            Err(failure) => {
                if let Err(earlier) = std::mem::replace(&mut done, Err(failure)) {
                    crate::say(&format!("error: {earlier}"));
                }
            }
        }
    }
    done
}

fn one(
    path: &Path,
    set: SchemaSet,
    reads_only: bool,
    clock: &SystemClock,
) -> Result<HowFar, Failure> {
    refuse_what_is_no_file(path)?;
    if reads_only {
        let status = migration_status(path, set).map_err(|error| match error {
            OpenError::Missing { .. } if set == SchemaSet::Shared => Failure::failed(format!(
                "{error}: name another with DB_PATH, or make it with `timer-service migrate`"
            )),
            _ => error.into(),
        })?;
        return Ok(how_far(path, set, None, status.migrations));
    }
    let report = apply(path, set, clock.now())?;
    let applied_now = Some(report.applied_now);
    Ok(how_far(path, set, applied_now, report.migrations))
}

/// A schema of a PostgreSQL database.
async fn schema(
    settings: &PostgresSettings,
    reads_only: bool,
    clock: &SystemClock,
) -> Result<HowFar, Failure> {
    let report = if reads_only {
        postgres::migration_status(settings, clock).await?
    } else {
        postgres::migrate(settings, clock).await?
    };
    Ok(HowFar {
        pending: report.pending(),
        database: report.name,
        set: settings.set.name(),
        applied_now: (!reads_only).then_some(report.applied_now),
        migrations: report
            .migrations
            .into_iter()
            .map(|it| Migration {
                name: it.name,
                applied_at: it.applied_at,
            })
            .collect(),
    })
}

/// The file that `--db` names, or else those that would be served.
fn databases(
    args: &MigrateArgs,
    environment: &Environment<'_>,
) -> Result<Vec<(PathBuf, SchemaSet)>, Failure> {
    let sources = environment.good_sources(&args.database.0)?;
    if args.database.0.get(TIMER_DB_PATH.about).is_some() {
        return Ok(vec![(sources.timer_database()?, SchemaSet::TimersOnly)]);
    }
    sources.databases()
}

fn how_far(
    path: &Path,
    set: SchemaSet,
    applied_now: Option<usize>,
    migrations: Vec<MigrationState>,
) -> HowFar {
    let migration = |it: MigrationState| Migration {
        name: it.name,
        applied_at: it.applied_at,
    };
    let migrations: Vec<_> = migrations.into_iter().map(migration).collect();
    HowFar {
        database: crate::display::path(path),
        set: set.name(),
        applied_now,
        pending: migrations
            .iter()
            .filter(|it| it.applied_at.is_none())
            .count(),
        migrations,
    }
}
