//! Runs every test, with real servers and a Python beside them.
//!
//! The tests are built while the servers start, and whatever could not be run is said last, where
//! nobody can miss it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::args::TestOptions;
use crate::process;
use crate::servers::{Kind, Servers, install};
use crate::{python, workspace};

/// What every invocation has in common, so that all of them share what is built.
const SELECTION: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// How it went, and what could not be tried at all.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: bool,
    pub(crate) not_run: Vec<String>,
}

/// Runs the tests and says last what could not be run; answers whether those that ran have passed.
pub(crate) fn run(root: &Path, options: &TestOptions) -> Result<bool> {
    let report = report(root, options)?;
    if let Some(sentence) = not_run(&report.not_run) {
        println!("{sentence}");
    }
    Ok(report.passed)
}

/// Runs the tests and leaves it to the caller to say what could not be run.
pub(crate) fn report(root: &Path, options: &TestOptions) -> Result<Report> {
    let nextest = process::find_program("cargo-nextest").is_some();
    if options.no_servers {
        return Ok(Report {
            passed: run_suites(root, nextest, options, &[])?,
            not_run: vec!["tests against servers and with Python (--no-servers)".to_owned()],
        });
    }

    let mut build = runner(root, nextest, options);
    build.arg("--no-run");
    let mut building = build
        .spawn()
        .with_context(|| format!("failed to start `{}`", process::command_line(&build)))?;
    let servers = Servers::start(&[Kind::Nats, Kind::Postgres, Kind::PgBouncer]);
    let python = workspace::load(root).map(|it| python::prepare(root, &it.target_dir));
    let promtool = install::promtool();
    // The build is waited for even if the servers did not start, or it would go on unattended.
    let ready = building.wait()?.success();
    let servers = servers?;

    let mut environment = servers.environment();
    let mut not_run = servers.missing().to_vec();
    match python? {
        Ok(interpreter) => {
            environment.push((python::VARIABLE, interpreter.display().to_string()));
        }
        Err(reason) => not_run.push(format!("tests of clients in Python ({reason})")),
    }
    if let Err(reason) = promtool {
        not_run.push(format!("tests of the alerting rules ({reason})"));
    }
    Ok(Report {
        passed: ready && run_suites(root, nextest, options, &environment)?,
        not_run,
    })
}

fn run_suites(
    root: &Path,
    nextest: bool,
    options: &TestOptions,
    environment: &[(&str, String)],
) -> Result<bool> {
    let mut tests = runner(root, nextest, options);
    add_filters(&mut tests, nextest, &options.filters);
    let mut doctests = process::cargo(root);
    doctests.args(["test", "--doc"]).args(SELECTION);
    add_filters(&mut doctests, false, &options.filters);
    for command in [&mut tests, &mut doctests] {
        command.envs(environment.iter().map(|(name, url)| (name, url)));
        if !process::succeeds(command)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// nextest where it is installed; cargo's own runner runs the same tests, only slower.
fn runner(root: &Path, nextest: bool, options: &TestOptions) -> Command {
    let mut command = process::cargo(root);
    if nextest {
        command.args(["nextest", "run"]).args(SELECTION);
        if options.ci_profile {
            command.args(["--profile", "ci"]);
        }
    } else {
        command.arg("test").args(SELECTION).arg("--all-targets");
    }
    command
}

/// cargo's own runner takes a single filter itself, and any number behind `--`.
fn add_filters(command: &mut Command, nextest: bool, filters: &[String]) {
    if !nextest && !filters.is_empty() {
        command.arg("--");
    }
    command.args(filters);
}

/// One line, so that it is the last thing on the screen.
pub(crate) fn not_run(missing: &[String]) -> Option<String> {
    (!missing.is_empty()).then(|| format!("not run: {}", missing.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(nextest: bool, options: &TestOptions) -> String {
        let mut command = runner(Path::new("/"), nextest, options);
        add_filters(&mut command, nextest, &options.filters);
        let line = process::command_line(&command);
        line.split_once(' ').unwrap().1.to_owned()
    }

    #[test]
    fn filters_reach_either_runner() {
        let options = TestOptions {
            filters: vec!["due".to_owned(), "early".to_owned()],
            ..TestOptions::default()
        };
        assert_eq!(
            arguments(true, &options),
            "nextest run --workspace --all-features --locked due early"
        );
        assert_eq!(
            arguments(false, &options),
            "test --workspace --all-features --locked --all-targets -- due early"
        );
    }

    #[test]
    fn ci_uses_the_profile_that_goes_on_after_a_failure() {
        let options = TestOptions {
            ci_profile: true,
            ..TestOptions::default()
        };
        assert!(arguments(true, &options).ends_with("--profile ci"));
        assert!(!arguments(false, &options).contains("--profile"));
    }

    #[test]
    fn what_was_not_run_is_said_in_one_line() {
        assert_eq!(not_run(&[]), None);
        let missing = ["tests against a".to_owned(), "tests against b".to_owned()];
        assert_eq!(
            not_run(&missing).unwrap(),
            "not run: tests against a; tests against b"
        );
    }
}
