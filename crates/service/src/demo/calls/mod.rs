//! The show of service calls: this process submits them and is their target.
//!
//! So it sees both sides, and can tell whether what the service says of a call is what happened.

mod books;
mod client;
mod event;
mod report;
mod show;
mod target;
mod texts;

use std::io::Write;

use punctual_ports::ClockPort;

use super::args::DemoArgs;
use super::folder::Folder;
use super::plan::Plan;
use super::progress::Progress;
use super::screen::Screen;
use super::{Signals, json, show_log, stopped, unwritable};
use crate::cli::Output;
use crate::failure::Failure;
use crate::settings::Lookup;
use crate::stdout::{self, Patient};
use report::Summary;
use show::Show;

/// Runs the demo of service calls and shows what came out.
///
/// # Errors
/// If it could not run, or if a call was made twice, early or without an outcome.
pub(super) async fn run(args: DemoArgs, variable: Lookup<'_>) -> Result<(), Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::refused(format!("signals cannot be listened to: {error}")))?;
    // Whoever cannot be told the result should not wait for it.
    let (out, _) = stdout::open().map_err(|error| unwritable(&error))?;
    let screen = Screen::ours(variable);
    let clock = crate::commands::clock()?;
    let plan = Plan::new(&args, clock.now())?;
    let kills = if args.kill { plan.kills() } else { Vec::new() };
    let folder = Folder::make()?;
    let is_for_people = args.output == Output::Table;
    if is_for_people {
        crate::say(&texts::before(&args, kills.len(), &screen));
    }
    let progress = Progress::new(plan.timers(), "called", plan.length(), screen);
    let database = folder.calls_database();
    let mut show = Show::new(clock, database.clone(), plan, kills, progress);
    let ended = tokio::select! {
        biased;
        signal = signals.next() => Err(signal),
        shown = show.run() => Ok(shown),
    };
    show.close().await;
    let kept = folder.end(args.keep, database);
    if let (Some(database), Err(_) | Ok(Err(_))) = (&kept, &ended) {
        crate::say(&format!("the database is kept: {}", database.display()));
    }
    match ended {
        Err(signal) => {
            let (done, calls) = (show.books().done_so_far(), args.number());
            stopped(signal, &format!("{done} of {calls} calls had been made"))
        }
        Ok(Err(failure)) => {
            show_log(show.last_words());
            Err(failure)
        }
        Ok(Ok(())) => {
            let mut summary = Summary::new(args.seconds, args.tenants, show.books(), show.kills());
            summary.database = kept;
            let text = if is_for_people {
                summary.text(&screen)
            } else {
                json(&summary)?
            };
            let written = Patient(&out).write_all(text.as_bytes());
            written.map_err(|error| unwritable(&error))?;
            let verdict = show.books().verdict();
            if verdict.is_err() {
                show_log(show.last_words());
            } else if is_for_people {
                crate::say(&texts::after(&args, &summary, &screen));
            }
            verdict
        }
    }
}
