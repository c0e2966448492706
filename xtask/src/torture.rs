//! Kills the real binary under load, also while it makes service calls, it and its broker in turn, or
//! several instances and their PostgreSQL, for as long as one likes.
//!
//! The work is a kill test of the service, which an ordinary test run does for a few rounds; here
//! the binary is built for release, and every round is counted on the screen. The servers are the
//! test's own: it starts and kills them itself.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::servers::{Kind, install};

/// The package whose tests kill.
const PACKAGE: &str = "punctual-service";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Service,
    ServiceAndBroker,
    ServiceWithCalls,
    InstancesAndPostgres,
    InstancesWithCalls,
    PostgresWithoutRoom,
}

/// How several instances are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fleet {
    pub(crate) instances: Option<u32>,
    pub(crate) timers: Option<u32>,
    pub(crate) no_faults: bool,
    pub(crate) pgbouncer: bool,
}

/// What several instances are given to do, unless the command says otherwise.
const INSTANCES: u32 = 4;
const TIMERS: u32 = 100_000;
const CALLS: u32 = 20_000;

impl Victim {
    /// Whether it is a number of instances on PostgreSQL.
    pub(crate) const fn is_fleet(self) -> bool {
        matches!(
            self,
            Self::InstancesAndPostgres | Self::InstancesWithCalls | Self::PostgresWithoutRoom
        )
    }

    const fn test(self) -> &'static str {
        match self {
            Self::Service => "kill::no_kill_at_any_instant_loses_a_timer_or_makes_it_early",
            Self::ServiceAndBroker => "broker_kill::no_kill_of_service_or_broker_loses_a_command",
            Self::ServiceWithCalls => {
                "kill_calls::killed_at_any_moment_no_call_is_made_twice_or_early_and_each_has_one_end"
            }
            Self::InstancesAndPostgres => {
                "postgres_kill::no_fault_of_instances_or_server_loses_a_timer_or_makes_it_early"
            }
            Self::InstancesWithCalls => {
                "postgres_kill_calls::no_fault_of_instances_or_server_makes_a_call_twice_or_early_and_each_has_one_end"
            }
            Self::PostgresWithoutRoom => "postgres_kill::a_server_without_room_loses_no_timer",
        }
    }
}

/// Runs the kill test `rounds` times; returns whether all invariants held.
pub(crate) fn run(root: &Path, victim: Victim, rounds: u32, fleet: Fleet) -> Result<bool> {
    if victim.is_fleet() {
        let missing = install::install_missing(&[Kind::Postgres, Kind::PgBouncer]);
        anyhow::ensure!(missing.is_empty(), "{}", missing.join(", "));
        if let Err(reason) = install::faketime() {
            println!("the clock of no instance is shifted: {reason}");
        }
    }
    process::succeeds(&mut command(root, victim, rounds, fleet))
}

fn command(root: &Path, victim: Victim, rounds: u32, fleet: Fleet) -> Command {
    let test = victim.test();
    let mut command = process::cargo(root);
    command
        .args(["test", "--release", "--locked", "--package", PACKAGE])
        .args(["--test", "it", "--", "--exact", test, "--nocapture"])
        .env("PUNCTUAL_KILL_ROUNDS", rounds.to_string());
    if victim.is_fleet() {
        let instances = fleet.instances.unwrap_or(INSTANCES);
        let usual = if victim == Victim::InstancesWithCalls {
            CALLS
        } else {
            TIMERS
        };
        let timers = fleet.timers.unwrap_or(usual);
        command
            .env("PUNCTUAL_INSTANCES", instances.to_string())
            .env("PUNCTUAL_TIMERS", timers.to_string());
        for (name, is_set) in [
            ("PUNCTUAL_NO_FAULTS", fleet.no_faults),
            ("PUNCTUAL_PGBOUNCER", fleet.pgbouncer),
        ] {
            if is_set {
                command.env(name, "1");
            }
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_binary_is_built_for_release_and_told_how_often() {
        let command = command(Path::new("/"), Victim::Service, 7, Fleet::default());
        assert!(process::command_line(&command).contains("--release"));
        assert_eq!(variable(&command, "PUNCTUAL_KILL_ROUNDS"), Some("7"));
        assert_eq!(variable(&command, "PUNCTUAL_INSTANCES"), None);
    }

    fn variable<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
        let mut set = command.get_envs();
        set.find(|(it, _)| *it == name)?.1?.to_str()
    }

    #[test]
    fn several_instances_are_told_how_many_they_are_and_what_comes_upon_them() {
        let fleet = Fleet {
            instances: Some(2),
            no_faults: true,
            ..Fleet::default()
        };
        let command = command(Path::new("/"), Victim::InstancesAndPostgres, 7, fleet);
        assert_eq!(variable(&command, "PUNCTUAL_INSTANCES"), Some("2"));
        assert_eq!(variable(&command, "PUNCTUAL_TIMERS"), Some("100000"));
        assert_eq!(variable(&command, "PUNCTUAL_NO_FAULTS"), Some("1"));
        assert_eq!(variable(&command, "PUNCTUAL_PGBOUNCER"), None);
        let command = super::command(Path::new("/"), Victim::InstancesWithCalls, 7, fleet);
        assert_eq!(variable(&command, "PUNCTUAL_TIMERS"), Some("20000"));
    }

    #[test]
    fn the_tests_that_it_names_exist() {
        // A name that matches nothing would pass without having tried anything.
        let root = workspace::root().unwrap();
        for victim in [
            Victim::Service,
            Victim::ServiceAndBroker,
            Victim::ServiceWithCalls,
            Victim::InstancesAndPostgres,
            Victim::InstancesWithCalls,
            Victim::PostgresWithoutRoom,
        ] {
            let (module, name) = victim.test().split_once("::").unwrap();
            let file = root.join(format!("crates/service/tests/it/{module}.rs"));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            assert!(text.contains(&format!("fn {name}()")), "{module}::{name}");
        }
    }
}
