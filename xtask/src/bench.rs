//! Builds the benchmark for release and runs it beside a broker of its own.
//!
//! Building and running are two steps, so that the compiler is done when the first figure is taken.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::servers::{Kind, Servers, install};
use crate::test_command;

const PACKAGE: &str = "punctual-bench";
const SERVICE: &str = "punctual-service";

/// Answers whether it could measure; whether a target holds is for people to read.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    if !process::succeeds(&mut build(root))? {
        return Ok(false);
    }
    let servers = Servers::start(&[Kind::Nats, Kind::PgBouncer])?;
    // The benchmark starts its own, which is durable.
    let missing = install::install_missing(&[Kind::Postgres]);
    let missing = [servers.missing(), &missing].concat();
    if let Some(sentence) = test_command::not_run(&missing) {
        println!("{sentence}");
    }
    process::succeeds(&mut measure(root, arguments, &servers.environment())?)
}

fn build(root: &Path) -> Command {
    let mut command = process::cargo(root);
    command.args(["build", "--release", "--locked", "--package", PACKAGE]);
    // Its size is measured too.
    command.args(["--package", SERVICE]);
    command
}

/// The program itself rather than `cargo run`, from the caller's folder: a file that is named
/// belongs there.
fn measure(root: &Path, arguments: &[String], environment: &[(&str, String)]) -> Result<Command> {
    let target = crate::workspace::load(root)?.target_dir;
    let mut command = Command::new(target.join("release").join(PACKAGE));
    command.args(arguments);
    command.envs(environment.iter().map(|(name, url)| (name, url)));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_and_the_program_are_built_for_release() {
        let line = process::command_line(&build(Path::new(".")));
        assert!(
            line.ends_with(
                "build --release --locked --package punctual-bench --package punctual-service"
            ),
            "{line}"
        );
    }

    #[test]
    fn arguments_and_the_broker_reach_the_benchmark_as_they_are() {
        let root = crate::workspace::root().unwrap();
        let arguments = ["--json".to_owned(), "a b".to_owned(), "S1".to_owned()];
        let environment = [("PUNCTUAL_TEST_NATS_URL", "nats://a".to_owned())];
        let command = measure(&root, &arguments, &environment).unwrap();
        assert!(command.get_args().eq(arguments.iter().map(String::as_str)));
        let given: Vec<_> = command.get_envs().collect();
        let (name, url) = (environment[0].0.as_ref(), environment[0].1.as_ref());
        assert_eq!(given, [(name, Some(url))]);
    }
}
