//! The demo: a show of ten seconds on a temporary database, for whoever sees Punctual first.
//!
//! This process schedules timers and keeps the books; a process of its own fires them. So what is
//! shown is what a receiver sees, also when the worker is killed. With service calls it submits them
//! and is their target.

mod args;
mod calls;
mod drawing;
mod event;
mod feeder;
mod folder;
mod lateness;
mod ledger;
mod plan;
mod process;
mod progress;
mod report;
mod screen;
mod show;
mod texts;
mod worker;

use std::io::{self, Write};

use punctual_ports::ClockPort;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Output;
use crate::failure::Failure;
use crate::settings::Lookup;
use crate::stdout::{self, Patient};
use folder::Folder;
use plan::Plan;
use progress::Progress;
use report::Summary;
use screen::Screen;
use show::Show;

pub(crate) use args::DemoArgs;

/// Runs the demo and shows what came out.
///
/// # Errors
/// If it could not run, or if a timer was lost or early, or a call made twice, early or without an
/// outcome.
pub(crate) async fn run(args: DemoArgs, variable: Lookup<'_>) -> Result<(), Failure> {
    let args = args.without_idle_tenants();
    match args.calls {
        None => run_timers(args, variable).await,
        Some(_) => calls::run(args, variable).await,
    }
}

async fn run_timers(args: DemoArgs, variable: Lookup<'_>) -> Result<(), Failure> {
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
    let progress = Progress::new(plan.timers(), "fired", plan.length(), screen);
    let database = folder.database();
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
            let (fired, timers) = (show.ledger().fired_so_far(), args.timers);
            stopped(signal, &format!("{fired} of {timers} timers had fired"))
        }
        Ok(Err(failure)) => {
            show_log(show.last_words());
            Err(failure)
        }
        Ok(Ok(())) => {
            let mut summary = Summary::new(args.seconds, args.tenants, show.ledger(), show.kills());
            summary.database = kept;
            let text = if is_for_people {
                summary.text(&screen)
            } else {
                json(&summary)?
            };
            let written = Patient(&out).write_all(text.as_bytes());
            written.map_err(|error| unwritable(&error))?;
            let verdict = show.ledger().verdict();
            if verdict.is_err() {
                show_log(show.last_words());
            } else if is_for_people {
                crate::say(&texts::after(&args, &summary, &screen));
            }
            verdict
        }
    }
}

/// Ends us as a signal wants it.
fn stopped(signal: SignalKind, so_far: &str) -> ! {
    crate::say(&format!("stopped before the end: {so_far}"));
    // As a shell reports a process that died of the signal.
    std::process::exit(128 + signal.as_raw_value());
}

fn json(summary: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(summary);
    let text = text.map_err(|error| Failure::failed(format!("the result is no JSON: {error}")))?;
    Ok(text + "\n")
}

/// The end of the worker's log may tell why something went wrong.
fn show_log(last_words: &[String]) {
    for line in last_words {
        crate::say(&format!("worker: {line}"));
    }
}

fn unwritable(error: &io::Error) -> Failure {
    Failure::failed(format!("standard output cannot be written: {error}"))
}

/// Whatever asks us to stop. A terminal that is closed does too, and nothing must be left behind.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        }
    }
}
