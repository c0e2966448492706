//! Everything that must pass before a change is merged, cheapest first, in one process.
//!
//! The steps share flags (`--workspace --all-features --locked`), so what one compiles the next
//! one finds.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::args::TestOptions;
use crate::process;
use crate::test_command::Report;
use crate::workspace::{self, Package};
use crate::{embedding, mutants, test_command, tidy};

/// One thing that must pass, and how to try it alone.
struct Step<'a> {
    name: String,
    repeat: String,
    action: Box<dyn FnOnce() -> Result<Report> + 'a>,
}

impl<'a> Step<'a> {
    fn command(name: &str, mut command: Command) -> Self {
        Self {
            name: name.to_owned(),
            repeat: with_environment(&command),
            action: Box::new(move || process::succeeds(&mut command).map(verdict)),
        }
    }

    fn xtask(name: &str, action: impl FnOnce() -> Result<Report> + 'a) -> Self {
        Self {
            name: name.to_owned(),
            repeat: format!("cargo xtask {name}"),
            action: Box::new(action),
        }
    }
}

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let started = Instant::now();
    let packages = workspace::load(root)?.packages;
    let mut not_run = Vec::new();
    for step in steps(root, &packages) {
        println!("\n=== {}: {}", step.name, step.repeat);
        let step_started = Instant::now();
        let report = (step.action)().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Report::default()
        });
        let seconds = step_started.elapsed().as_secs_f64();
        if !report.passed {
            println!(
                "\nci: {} failed after {seconds:.1} s. To repeat it alone: {}",
                step.name, step.repeat
            );
            return Ok(false);
        }
        println!("--- {} passed in {seconds:.1} s", step.name);
        not_run.extend(report.not_run);
    }
    println!(
        "\nci: all passed in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    if let Some(sentence) = test_command::not_run(&not_run) {
        println!("{sentence}");
    }
    Ok(true)
}

/// A step that either ran or failed.
fn verdict(passed: bool) -> Report {
    Report {
        passed,
        ..Report::default()
    }
}

fn steps<'a>(root: &'a Path, packages: &[Package]) -> Vec<Step<'a>> {
    let cargo = |arguments: &str| {
        let mut command = process::cargo(root);
        command.args(arguments.split(' '));
        command
    };
    let mut docs = cargo("doc --workspace --no-deps --all-features --locked");
    docs.env("RUSTDOCFLAGS", "-D warnings");

    let mut steps = vec![
        Step::command("fmt", cargo("fmt --all --check")),
        Step::command(
            "clippy",
            cargo("clippy --workspace --all-targets --all-features --locked -- -D warnings"),
        ),
        Step::xtask("tidy", || tidy::run(root).map(verdict)),
        Step::command("docs", docs),
    ];
    for (package, feature) in features(packages) {
        // What is of no use in one selection of features alone is too much of a pedant's business.
        let arguments = format!(
            "clippy -p {package} --no-default-features --features {feature} --locked -- -D warnings -A clippy::pedantic"
        );
        steps.push(Step::command(
            &format!("feature {package}/{feature}"),
            cargo(&arguments),
        ));
    }
    steps.push(Step::xtask("test", || {
        let options = TestOptions {
            ci_profile: true,
            ..TestOptions::default()
        };
        test_command::report(root, &options)
    }));
    steps.push(Step::xtask("embedding", || {
        embedding::run(root).map(verdict)
    }));
    steps.push(Step::xtask("mutants", || {
        mutants::run_sample(root).map(verdict)
    }));
    steps
}

/// Every feature of every crate. Each is built alone, since `--all-features` hides what one lacks.
fn features(packages: &[Package]) -> Vec<(&str, &str)> {
    packages
        .iter()
        .flat_map(|package| {
            let features = package.features.iter();
            features.map(|feature| (package.name.as_str(), feature.as_str()))
        })
        .collect()
}

/// The command as one would type it, with the variables it needs in front.
fn with_environment(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value?.to_string_lossy());
        Some(format!("{name}=\"{value}\" "))
    });
    set.collect::<String>() + &process::command_line(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheap_steps_come_first_and_every_feature_is_built_alone() {
        let packages = [Package {
            name: "punctual".to_owned(),
            features: vec!["sqlite".to_owned(), "nats".to_owned()],
            ..Package::default()
        }];
        let names: Vec<_> = steps(Path::new("/"), &packages)
            .into_iter()
            .map(|step| step.name)
            .collect();
        assert_eq!(
            names,
            [
                "fmt",
                "clippy",
                "tidy",
                "docs",
                "feature punctual/sqlite",
                "feature punctual/nats",
                "test",
                "embedding",
                "mutants",
            ]
        );
    }

    #[test]
    fn a_step_says_how_to_repeat_it() {
        let steps = steps(Path::new("/"), &[]);
        let repeat = |name: &str| {
            let step = steps.iter().find(|step| step.name == name);
            step.map(|step| step.repeat.clone()).unwrap()
        };
        assert_eq!(
            repeat("docs"),
            "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps --all-features --locked"
        );
        assert_eq!(repeat("mutants"), "cargo xtask mutants");
    }
}
