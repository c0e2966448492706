//! Kills the service in the middle of making calls, again and again, and asks the target what it got.
//!
//! `cargo xtask torture --calls --rounds N` runs this for as long as one likes.

use std::time::Duration;

use punctual_ports::ClockPort;
use rustix::process::Signal;

use crate::api_client::{calls_command, clock, serve_calls};
use crate::call_ledger::CallLedger;
use crate::kill::Random;
use crate::running::{Home, Running};

const ROUNDS: usize = 8;
const SUBMITTERS: u64 = 4;
/// Calls are due within this.
const SPREAD: Duration = Duration::from_millis(1_500);

fn serve(home: &Home, ledger: &CallLedger) -> Running {
    let mut command = calls_command(home);
    let (serving, api) = serve_calls(command.env("EXECUTION_TIMEOUT", "5000"));
    ledger.listens_at(vec![api]);
    serving
}

fn rounds() -> usize {
    let asked = std::env::var("PUNCTUAL_KILL_ROUNDS").ok();
    asked.map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

#[test]
fn killed_at_any_moment_no_call_is_made_twice_or_early_and_each_has_one_end() {
    let (home, ledger) = (Home::new(), CallLedger::new(SPREAD));
    let seed = clock().now().as_millis().unsigned_abs();
    let submitters = ledger.start_submitters(SUBMITTERS, seed);
    let mut random = Random(seed);
    let mut stops = 0;
    for round in 0..rounds() {
        let mut serving = serve(&home, &ledger);
        std::thread::park_timeout(Duration::from_millis(300 + random.below(1_500)));
        // Every fifth time it is asked to stop in good order.
        if round % 5 == 4 {
            serving.signal(Signal::TERM);
            assert_eq!(serving.end().code, Some(0));
            stops += 1;
        } else {
            serving.kill();
        }
    }
    let _serving = serve(&home, &ledger);
    ledger.end_submitters(submitters);
    let calls = ledger.settle();
    let (outcomes, late) = ledger.check(&calls);
    println!(
        "{} calls, {} kills, {stops} stops: {outcomes:?}; late: {late:?} ms",
        calls.len(),
        rounds() - stops
    );
    assert!(calls.len() > 50, "there was no load: {}", calls.len());
}
