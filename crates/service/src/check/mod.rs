//! `check`: checks the settings, the databases, the API and the broker, and changes nothing.
//!
//! It continues after a problem, so that one run reports everything.

mod api;
mod broker;
mod database;
mod disk;
mod postgres;
mod report;

use crate::cli::CheckArgs;
use crate::commands::clock;
use crate::commands::output::Answers;
use crate::failure::Failure;
use crate::settings::table::{ALL, About, DB_MAX_MIB};
use crate::settings::{Environment, Source, Sources, refusal};
use report::Report;

/// Checks what `serve` would find, and fails if something is wrong.
pub(crate) async fn check(args: &CheckArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let sources = environment.sources(&args.flags.0);
    let mut report = Report::default();
    check_file(&sources, &mut report);
    for about in ALL {
        check_setting(about, &sources, &mut report);
    }
    let is_served = match sources.postgres() {
        Ok(Some(database)) => {
            postgres::check(&database, &clock()?, &mut report).await;
            false
        }
        // What is wrong with its settings is reported below.
        Ok(None) | Err(_) => check_databases(&sources, &mut report),
    };
    api::check(&sources, is_served, &mut report);
    broker::check(&sources, &mut report).await;
    // Any other problem that `serve` would report.
    if let Err(failure) = sources.serve() {
        report.wrong_unless_reported("settings", failure.to_string());
    }
    report.show(&mut Answers::open()?, args.output)?;
    match report.wrong_count() {
        0 => Ok(()),
        1 => Err(Failure::failed("one thing is wrong")),
        count => Err(Failure::failed(format!("{count} things are wrong"))),
    }
}

fn check_file(sources: &Sources<'_>, report: &mut Report) {
    const WHAT: &str = "settings file";
    match sources.file() {
        None => report.ok(WHAT, "there is no ./punctual.toml, and none is needed"),
        Some(file) if file.problems().is_empty() => {
            report.ok(WHAT, file.path().display().to_string());
        }
        Some(file) => {
            for problem in file.problems() {
                report.wrong(WHAT, &problem.sentence);
            }
        }
    }
}

fn check_setting(about: &About, sources: &Sources<'_>, report: &mut Report) {
    let Some((raw, source)) = sources.given(about) else {
        // What is wrong in the file was said, and then the default does not count either.
        if !sources.file().is_some_and(|file| file.is_wrong_in(about)) {
            report.ok(about.variable, format!("{} (default)", about.default));
        }
        return;
    };
    if let Err(advice) = (about.check)(&raw) {
        return report.wrong(about.variable, refusal(about, &raw, &source, &advice));
    }
    let origin = match source {
        Source::Flag(flag) => format!("--{flag}"),
        Source::Variable => "environment".to_owned(),
        Source::File { path, line } => format!("{} line {line}", path.display()),
    };
    let value = (about.display)(&raw).unwrap_or_else(|| "not shown".to_owned());
    report.ok(about.variable, format!("{value} ({origin})"));
}

/// Checks the databases; returns whether a process serves one of them right now.
fn check_databases(sources: &Sources<'_>, report: &mut Report) -> bool {
    let limit = sources.get(&DB_MAX_MIB).ok().flatten();
    let mut is_served = false;
    match sources.databases() {
        Ok(databases) => {
            for (path, set) in databases {
                is_served |= database::check(&path, set, limit, report);
            }
        }
        // A path that could not be read was reported as a setting.
        Err(failure) if failure.to_string().contains("both name") => {
            report.wrong("DB_PATH", failure.to_string());
        }
        Err(_) => {}
    }
    is_served
}
