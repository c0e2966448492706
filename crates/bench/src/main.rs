//! How fast Punctual is: every line next to a bare loop that does the same work on the same
//! machine, in the same run.
//!
//! Times on a shared machine mean little by themselves, so what counts is a ratio: ours and bare
//! take turns within each round, and the median of the rounds is compared with the line's target.
//! A missed target is a finding and no failure: the exit code is 1 only if something broke.
//!
//! To add a line, write a file in `lines/` and name it in `lines::ALL`.

mod args;
mod bare;
mod broker;
mod calls;
mod child;
mod databases;
mod lateness;
mod lines;
mod machine;
mod ours;
mod plots;
mod postgres;
mod report;
mod rows;
mod stats;
mod turns;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use args::{Command, Options};
use lines::Line;
use machine::{Machine, Usage};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use report::Measure;
use serde_json::json;
use turns::Bench;

/// What can go wrong here is only ever shown to a person.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", args::HELP);
            Ok(())
        }
        Ok(Command::Child(name, path, numbers)) => child::become_child(&name, &path, numbers),
        Ok(Command::Measure(_)) if cfg!(debug_assertions) => {
            Err("this is a debug build, whose figures mean nothing: build with --release".into())
        }
        Ok(Command::Measure(options)) => measure(&options),
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Outcome<()> {
    let chosen = lines::choose(&options.lines, options.plots.is_some())?;
    let started = Instant::now();
    let folder = work_folder(options.dir.as_deref())?;
    let machine = Machine::read(folder.path());
    let load_before = machine::load();
    let say = |text: &str| match options.json.as_deref() {
        Some("-") => eprintln!("{text}"),
        _ => println!("{text}"),
    };
    say(&heading(&machine, options.quick));
    let mut bench = Bench::new(folder.path(), options.quick)?;
    let mut measures: Vec<Measure> = Vec::new();
    let mut others = serde_json::Map::new();
    for Line(name, what, run) in chosen {
        eprintln!("{name}: {what}");
        let before = Usage::now();
        bench.line = name;
        let found = run(&mut bench);
        let mut found = found.map_err(|error| unmeasured(name, error))?;
        for measure in &mut found {
            if measure.line.is_empty() {
                measure.line = name;
            }
            say(&measure.text());
        }
        if let Some(reason) = bench.not_measured.get(name) {
            say(&format!("{name:<4} was NOT MEASURED: {reason}\n"));
            continue;
        }
        measures.extend(found);
        let share = Usage::now().others_since(before);
        let percent = share * 100.0;
        say(&format!(
            "{name:<4} meanwhile, others used {percent:.0} % of this machine\n"
        ));
        others.insert((*name).to_owned(), share.into());
    }
    let missed = measures.iter().filter(|measure| !measure.holds()).count();
    let targets = measures.iter().filter(|measure| measure.has_target());
    say(&format!(
        "{} of {} targets hold; {:.0} s; load average {load_before} before, {} after",
        targets.clone().count() - missed,
        targets.count(),
        started.elapsed().as_secs_f64(),
        machine::load(),
    ));
    if let Some(folder) = &options.plots {
        let source = source(&machine, options.quick, bench.now());
        let drawn = bench.plots.write(folder, &source)?;
        say(&format!(
            "drawn in {}: {}",
            folder.display(),
            drawn.join(", ")
        ));
    }
    let json = json!({
        "at": SystemClock::start()?.now().to_string(),
        "quick": options.quick,
        "seconds": started.elapsed().as_secs_f64(),
        "machine": machine.json(),
        "loadBefore": load_before,
        "loadAfter": machine::load(),
        "usedByOthers": others,
        "notMeasured": bench.not_measured,
        "measures": measures.iter().map(Measure::json).collect::<Vec<_>>(),
    });
    let file = options.json.as_deref();
    file.map_or(Ok(()), |file| write_json(file, &json))
}

/// What was in the way of a line, with its causes: a driver's own text may leave them out.
fn unmeasured(line: &str, error: Box<dyn Error + Send + Sync>) -> String {
    let error: Box<dyn Error> = error;
    let mut text = format!("{line} could not be measured: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn write_json(file: &str, json: &serde_json::Value) -> Outcome<()> {
    let json = format!("{json:#}\n");
    if file == "-" {
        print!("{json}");
        return Ok(());
    }
    fs::write(file, json).map_err(|error| format!("failed to write {file}: {error}").into())
}

/// Where a drawing comes from.
fn source(machine: &Machine, quick: bool, now: punctual_domain::Timestamp) -> String {
    let now = now.to_string();
    let date = now.split('T').next().unwrap_or_default();
    let quick = if quick { " --quick" } else { "" };
    format!(
        "cargo xtask bench{quick}, {date}, {} cores ({}), {}, SQLite {}",
        machine.cores, machine.processor, machine.filesystem, machine.sqlite
    )
}

/// A folder on a disk that is removed after the run.
fn work_folder(given: Option<&Path>) -> Outcome<tempfile::TempDir> {
    let parent = match given {
        Some(folder) => folder.to_owned(),
        None => target_folder()?,
    };
    tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&parent)
        .map_err(|error| format!("failed to make a folder in {}: {error}", parent.display()).into())
}

/// The folder in which this program was built, `target/release`, lies in it.
pub(crate) fn target_folder() -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.ok_or("this program lies in no folder")?.to_owned())
}

fn heading(machine: &Machine, quick: bool) -> String {
    let Machine {
        cores,
        processor,
        memory,
        kernel,
        filesystem,
        sqlite,
    } = machine;
    let mut text = format!(
        "{cores} cores ({processor}), {memory}, Linux {kernel}, {filesystem}, SQLite {sqlite}\n"
    );
    if machine.is_in_memory() {
        text.push_str(
            "CAUTION: this folder is in memory, where a commit costs nothing: use --dir\n",
        );
    }
    if quick {
        text.push_str("QUICK run on smaller sizes: a hint, not a result\n");
    }
    text
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
