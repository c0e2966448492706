//! Kills the real binary under load, also while it makes service calls, or it and its broker in turn,
//! for as long as one likes.
//!
//! The work is a kill test of the service, which an ordinary test run does for a few rounds; here
//! the binary is built for release, and every round is counted on the screen. The broker is the
//! test's own: it starts and kills it itself.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// The package whose tests kill.
const PACKAGE: &str = "punctual-service";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Service,
    ServiceAndBroker,
    ServiceWithCalls,
}

impl Victim {
    const fn test(self) -> &'static str {
        match self {
            Self::Service => "kill::no_kill_at_any_instant_loses_a_timer_or_makes_it_early",
            Self::ServiceAndBroker => "broker_kill::no_kill_of_service_or_broker_loses_a_command",
            Self::ServiceWithCalls => {
                "kill_calls::killed_at_any_moment_no_call_is_made_twice_or_early_and_each_has_one_end"
            }
        }
    }
}

/// Runs the kill test `rounds` times; returns whether all invariants held.
pub(crate) fn run(root: &Path, victim: Victim, rounds: u32) -> Result<bool> {
    process::succeeds(&mut command(root, victim, rounds))
}

fn command(root: &Path, victim: Victim, rounds: u32) -> Command {
    let test = victim.test();
    let mut command = process::cargo(root);
    command
        .args(["test", "--release", "--locked", "--package", PACKAGE])
        .args(["--test", "it", "--", "--exact", test, "--nocapture"])
        .env("PUNCTUAL_KILL_ROUNDS", rounds.to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_binary_is_built_for_release_and_told_how_often() {
        let command = command(Path::new("/"), Victim::Service, 7);
        assert!(process::command_line(&command).contains("--release"));
        let rounds = command
            .get_envs()
            .find(|(name, _)| *name == "PUNCTUAL_KILL_ROUNDS");
        assert_eq!(rounds.and_then(|(_, value)| value?.to_str()), Some("7"));
    }

    #[test]
    fn the_tests_that_it_names_exist() {
        // A name that matches nothing would pass without having tried anything.
        let root = workspace::root().unwrap();
        for victim in [
            Victim::Service,
            Victim::ServiceAndBroker,
            Victim::ServiceWithCalls,
        ] {
            let (module, name) = victim.test().split_once("::").unwrap();
            let file = root.join(format!("crates/service/tests/it/{module}.rs"));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            assert!(text.contains(&format!("fn {name}()")), "{module}::{name}");
        }
    }
}
