//! The demo: ten seconds on a temporary database.
//!
//! This process schedules timers, or submits service calls and is their target, and keeps the ledger;
//! a worker process of its own fires and calls. So the result is what a receiver sees, also when the
//! worker is killed. One engine runs both scripts.

mod args;
mod client;
mod engine;
mod lateness;
mod ledger;
mod plan;
mod progress;
mod report;
mod screen;
mod target;
mod timers;
mod worker;

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub use args::DemoArgs;
use args::Output;
use engine::Engine;
use plan::Plan;
use report::Report;
use screen::Screen;

/// Reads a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Why the demo ended without a good result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It failed, or a timer was lost or early, or a call made twice, early or without an outcome.
    Failed(String),
    /// Nothing was started.
    Refused(String),
    /// The signal of this number came.
    Stopped(i32),
}

/// Runs the demo and writes the result to `out`; everything else goes to standard error.
///
/// # Errors
/// If it could not run, was stopped, or if its result is not a good one.
pub async fn run(
    args: DemoArgs,
    clock: SystemClock,
    variable: Lookup<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let args = args.without_idle_tenants();
    let mut signals = signals()
        .map_err(|error| Failure::Refused(format!("signals cannot be listened to: {error}")))?;
    let screen = Screen::current(variable);
    let plan = Plan::new(&args, clock.now())?;
    let folder = temporary_folder()?;
    let database = folder.path().join(plan.script.database());
    let is_for_people = args.output == Output::Table;
    if is_for_people {
        print(&report::introduction(&args, plan.kills.len(), &screen));
    }
    let mut engine = Engine::new(clock, database.clone(), plan, screen);
    let ended = tokio::select! {
        biased;
        Some(signal) = signals.recv() => Err(Failure::Stopped(signal)),
        ended = engine.run() => ended,
    };
    engine.close().await;
    let kept = close(folder, args.keep, database);
    if let Err(failure) = ended {
        if let Some(database) = kept {
            print(&format!("the database is kept: {}", database.display()));
        }
        match failure {
            Failure::Stopped(_) => print(&format!("stopped before the end: {}", engine.so_far())),
            _ => engine.print_log(),
        }
        return Err(failure);
    }
    let report = Report {
        args: &args,
        ledger: &engine.ledger,
        kills: &engine.kills,
        database: kept,
    };
    let text = if is_for_people {
        report.text(&screen)
    } else {
        let json = report.json();
        json.map(|json| format!("{json}\n"))
            .map_err(|error| Failure::Failed(format!("the result is no JSON: {error}")))?
    };
    out.write_all(text.as_bytes())
        .map_err(|error| Failure::Failed(format!("standard output cannot be written: {error}")))?;
    let verdict = engine.ledger.verdict();
    if verdict.is_err() {
        engine.print_log();
    } else if is_for_people {
        print(&report.conclusion(&report::program(), &screen));
    }
    verdict.map_err(Failure::Failed)
}

/// The signals that stop us. A terminal that is closed does too, and nothing must be left behind.
fn signals() -> io::Result<mpsc::Receiver<i32>> {
    let (sender, signals) = mpsc::channel(1);
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ];
    for kind in kinds {
        let (mut signal, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            signal.recv().await;
            // Only the first one counts.
            let _ = sender.try_send(kind.as_raw_value());
        });
    }
    Ok(signals)
}

/// A private folder that is removed when it is dropped.
fn temporary_folder() -> Result<TempDir, Failure> {
    let place = std::env::temp_dir();
    let made = tempfile::Builder::new()
        .prefix("timer-service-demo-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(&place);
    made.map_err(|error| {
        Failure::Refused(format!(
            "no temporary folder can be made in {} ({error}): set TMPDIR to a folder that can be written",
            place.display()
        ))
    })
}

/// Removes the folder, or keeps it and returns the database in it.
fn close(folder: TempDir, keeps: bool, database: PathBuf) -> Option<PathBuf> {
    if keeps {
        // From now on it is the user's.
        let _ = folder.keep();
        return Some(database);
    }
    let path = folder.path().to_path_buf();
    if let Err(error) = folder.close() {
        print(&format!("{} could not be removed: {error}", path.display()));
    }
    None
}

/// Writes a line to standard error; an error of that is ignored.
fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_removed_in_the_end_unless_it_is_kept() {
        for keeps in [false, true] {
            let folder = temporary_folder().unwrap();
            let path = folder.path().to_path_buf();
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            let database = path.join("timer.db");
            std::fs::write(&database, "x").unwrap();
            assert_eq!(
                close(folder, keeps, database.clone()),
                keeps.then_some(database)
            );
            assert_eq!(path.exists(), keeps);
            if keeps {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}
