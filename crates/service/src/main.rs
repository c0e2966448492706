//! `timer-service`: a durable timer service, on one SQLite file or on PostgreSQL.
//!
//! This crate only wires: it reads the command line and the settings, puts the adapters together,
//! and turns signals and failures into exit codes. What a timer is and when it fires is decided in
//! the crates below.

mod check;
mod cli;
mod commands;
mod display;
mod failure;
mod listen;
mod logging;
mod metrics;
mod panics;
mod parse;
mod serve;
mod settings;
mod stdout;
mod store;
mod usage;

use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;
use settings::Environment;

fn main() -> ExitCode {
    panics::end_the_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let first = std::env::args_os().nth(1);
            return usage::explain(error, first.as_deref().and_then(OsStr::to_str));
        }
    };
    match carry_out(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn carry_out(cli: Cli) -> Result<(), Failure> {
    let lookup = |name: &str| std::env::var_os(name);
    let environment = Environment(&lookup);
    let command = cli.command.unwrap_or(Command::Serve(cli.serve));
    // One thread is enough for a command; `serve` fires in parallel.
    let mut runtime = match &command {
        Command::Serve(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("no runtime can be started: {error}")))?;
    let done = match command {
        Command::Serve(flags) => {
            let settings = environment.good_sources(&flags.0)?.serve()?;
            let clock = commands::clock()?;
            logging::start(settings.log_format, settings.log_level, clock.clone());
            runtime.block_on(serve::run(settings, clock))
        }
        Command::Demo(args) => runtime.block_on(commands::demo::run(args, &lookup)),
        Command::Schedule(args) => runtime.block_on(commands::schedule::run(args, &environment)),
        Command::Call(args) => runtime.block_on(commands::call::run(args)),
        Command::Send(args) => runtime.block_on(commands::send::run(args, &environment)),
        Command::Get(args) => runtime.block_on(commands::read::get(args, &environment)),
        Command::List(args) => runtime.block_on(commands::read::list(args, &environment)),
        Command::Trace(args) => runtime.block_on(commands::trace::run(args, &environment)),
        Command::Cancel(args) => runtime.block_on(commands::cancel::run(args, &environment)),
        Command::DeadLetters(args) => {
            runtime.block_on(commands::dead_letters::run(args, &environment))
        }
        Command::Instances(args) => runtime.block_on(commands::instances::run(args, &environment)),
        Command::Backup(args) => commands::backup::run(&args, &environment),
        Command::Migrate(args) => runtime.block_on(commands::migrate::run(&args, &environment)),
        Command::Check(args) => runtime.block_on(check::check(&args, &environment)),
        Command::Completions(args) => commands::completions::run(&args),
    };
    // A thread that is blocked in a write to standard output must not delay the exit.
    runtime.shutdown_background();
    done
}

/// Writes a line to standard error; an error of that is ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
