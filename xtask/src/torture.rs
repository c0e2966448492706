//! Kills the real binary under load for as long as one likes.
//!
//! The work is the kill test of the service, which an ordinary test run does for a few rounds; here
//! the binary is built for release, and every round is counted on the screen.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// The package, and the test of it, that kills.
const PACKAGE: &str = "punctual-service";
const TEST: &str = "kill::no_kill_at_any_instant_loses_a_timer_or_makes_it_early";

/// Runs the kill test for so many rounds; answers whether all invariants held.
pub(crate) fn run(root: &Path, rounds: u32) -> Result<bool> {
    process::succeeds(&mut command(root, rounds))
}

fn command(root: &Path, rounds: u32) -> Command {
    let mut command = process::cargo(root);
    command
        .args(["test", "--release", "--locked", "--package", PACKAGE])
        .args(["--test", "it", "--", "--exact", TEST, "--nocapture"])
        .env("PUNCTUAL_KILL_ROUNDS", rounds.to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_binary_is_built_for_release_and_told_how_often() {
        let command = command(Path::new("/"), 7);
        assert!(process::shown(&command).contains("--release"));
        let rounds = command
            .get_envs()
            .find(|(name, _)| *name == "PUNCTUAL_KILL_ROUNDS");
        assert_eq!(rounds.and_then(|(_, value)| value?.to_str()), Some("7"));
    }

    #[test]
    fn the_test_that_it_names_exists() {
        // A name that matches nothing would pass without having tried anything.
        let root = workspace::root().unwrap();
        let (module, name) = TEST.split_once("::").unwrap();
        let file = root.join(format!("crates/service/tests/it/{module}.rs"));
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(&format!("fn {name}()")));
    }
}
