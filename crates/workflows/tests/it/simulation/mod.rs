//! Thousands of lives of a timer service, each with faults, crashes and clock changes of its own,
//! each checked against the promises: none lost, none early, duplicates share their id, states
//! never go back, and nobody sees another's timers.
//!
//! A scenario is made by its seed alone. A failing one prints its seed; to run just that:
//! `PUNCTUAL_SEED=123 cargo test -p punctual-workflows simulation`. To run more of them than the
//! usual number in each test, set `PUNCTUAL_SEEDS`.

mod checks;
mod faults;
pub(crate) mod random;
mod scenario;

use faults::Chaos;
use scenario::Scenario;

/// How many scenarios each test runs unless it is told otherwise.
const USUAL: u64 = 400;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs scenarios of one kind. That the faults really happen is part of the test: each kind has to
/// show `faults_each` of them in a scenario, on average.
fn run(first_seed: u64, chaos: Chaos, faults_each: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let seeds = match from_environment("PUNCTUAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => first_seed..first_seed + from_environment("PUNCTUAL_SEEDS").unwrap_or(USUAL),
    };
    let (count, mut faults) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        match runtime.block_on(Scenario::run(seed, chaos)) {
            Ok(fired) => faults += fired,
            Err(violation) => panic!("{chaos:?}, PUNCTUAL_SEED={seed}: {violation}"),
        }
    }
    if count > 1 {
        let enough = faults >= count * faults_each && (faults_each > 0 || faults == 0);
        assert!(enough, "{faults} faults in {count} scenarios");
    }
}

#[test]
fn without_faults_each_timer_fires_exactly_once() {
    run(0, Chaos::NONE, 0);
}

#[test]
fn with_failing_ports_no_timer_is_lost_or_early() {
    run(100_000, Chaos::FAILURES, 10);
}

#[test]
fn with_slow_ports_no_timer_is_lost_or_early() {
    run(200_000, Chaos::DELAYS, 5);
}

#[test]
fn with_crashes_at_any_port_call_no_timer_is_lost_or_early() {
    run(300_000, Chaos::CRASHES, 3);
}

#[test]
fn with_clock_changes_no_timer_is_lost_or_early() {
    run(400_000, Chaos::CLOCK, 0);
}

#[test]
fn with_everything_at_once_no_timer_is_lost_or_early() {
    run(500_000, Chaos::ALL, 5);
}
