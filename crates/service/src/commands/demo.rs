//! The demo as a command: its failures become ours, and its signal our exit code.

use punctual_demo::DemoArgs;

use super::clock;
use super::output::unwritable;
use crate::failure::Failure;
use crate::settings::Lookup;
use crate::stdout::{self, Blocking};

/// Runs the demo and prints its result.
///
/// # Errors
/// If it could not run, or if a timer was lost or early, or a call made twice, early or without an
/// outcome.
pub(crate) async fn run(args: DemoArgs, variable: Lookup<'_>) -> Result<(), Failure> {
    // Checked before the demo runs: a result that cannot be printed is not worth waiting for.
    let (out, _) = stdout::open().map_err(|error| unwritable(&error))?;
    let ended = punctual_demo::run(args, clock()?, variable, &mut Blocking(&out)).await;
    ended.map_err(|failure| match failure {
        punctual_demo::Failure::Failed(sentence) => Failure::Failed(sentence),
        punctual_demo::Failure::Refused(sentence) => Failure::Refused(sentence),
        // As a shell reports a process that died of the signal.
        punctual_demo::Failure::Stopped(signal) => std::process::exit(128 + signal),
    })
}
