//! Copying databases while they are in use.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use punctual_adapters_sqlite::{BackupError, SchemaSet, backup as copy};
use serde::Serialize;

use super::chosen;
use super::output::Answers;
use crate::cli::BackupArgs;
use crate::display;
use crate::failure::Failure;
use crate::settings::{Environment, TimerDatabase};
use crate::store::refuse_what_is_no_file;

/// A copy that was made.
#[derive(Serialize)]
struct Copied {
    database: String,
    set: &'static str,
    backup: String,
    bytes: u64,
    rows: u64,
}

/// Copies each database that would be served.
pub(crate) fn run(args: &BackupArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let mut answers = Answers::open()?;
    let databases = databases(args, environment)?;
    let is_folder = args.to.is_dir();
    if databases.len() > 1 && !is_folder {
        return Err(Failure::usage(format!(
            "calls and timers have a file each, so {} has to be a folder that is there; or name one of them with --db or --calls-db",
            display::path(&args.to)
        )));
    }
    for (path, set) in databases {
        refuse_what_is_no_file(&path)?;
        let to = match path.file_name() {
            Some(name) if is_folder => args.to.join(name),
            _ => args.to.clone(),
        };
        answers.line(&one(&path, set, &to)?)?;
    }
    Ok(())
}

fn one(path: &Path, set: SchemaSet, to: &Path) -> Result<Copied, Failure> {
    let (what, on_terminal) = (display::path(path), std::io::stderr().is_terminal());
    let mut shown = None;
    let done = copy(path, set, to, &mut |copied, of| {
        let percent = copied.saturating_mul(100) / of.max(1);
        if on_terminal && shown.replace(percent) != Some(percent) {
            let _ = write!(std::io::stderr(), "\r{what}: {percent} % copied");
        }
    });
    if shown.is_some() {
        let _ = writeln!(std::io::stderr());
    }
    let done = done.map_err(|error| match error {
        BackupError::Source(error) => error.into(),
        other => Failure::failed(other),
    })?;
    Ok(Copied {
        database: what,
        set: set.name(),
        backup: display::path(to),
        bytes: done.bytes,
        rows: done.rows,
    })
}

/// A flag names the one file to copy. Without it, those that would be served: the timers first, since a
/// call whose timer is missing gets one, while a timer whose call is missing would belong to none.
fn databases(
    args: &BackupArgs,
    environment: &Environment<'_>,
) -> Result<Vec<(PathBuf, SchemaSet)>, Failure> {
    let flags = &args.database;
    let sources = environment.good_sources(&flags.0)?;
    if let Some(database) = sources.postgres()? {
        return Err(Failure::refused(format!(
            "the timers are in {}, which is not a file to copy: pg_dump copies it while it is in use, as do the backups of your server",
            database.url
        )));
    }
    let mut both = sources.databases()?;
    if flags.named() == (false, false) && both.len() > 1 {
        both.reverse();
        return Ok(both);
    }
    match chosen(environment.client(flags)?) {
        TimerDatabase::Sqlite(one) => Ok(vec![(one.path, one.set)]),
        TimerDatabase::Postgres(_) => Ok(Vec::new()),
    }
}
