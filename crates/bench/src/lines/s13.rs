//! S13: from opening the file to the first firing, after an orderly stop and after a SIGKILL.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use punctual_adapters_sqlite::Synchronous;
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_workflows::WorkerSettings;

use super::{TENANTS, s3};
use crate::bare::Bare;
use crate::child::{self, Child};
use crate::databases::{Copy, log_of};
use crate::ours::Ours;
use crate::report::{Measure, Unit};
use crate::rows::{Rows, tenants};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "from opening the file to the first firing";

pub(super) const CHILD: Child = Child {
    name: "fill-log",
    run: fill_log,
};

const MIB: u64 = 1 << 20;
const FILLED: &str = "filled";

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let rounds = bench.size(7, 3);
    let clean = bench.databases.original(recipe)?;
    let log_bytes = bench.size(200, 50) as u64 * MIB;
    let killed = bench.databases.copy_of(&clean)?;
    leave_a_log(&killed, log_bytes)?;
    let killed_path = killed.path();

    let [ours, bare, ours_killed, bare_killed] = bench.take_turns(
        rounds,
        [
            &|bench| first_firing(bench, &clean),
            &|bench| open_only(bench, &clean),
            &|bench| first_firing(bench, &killed_path),
            &|bench| open_only(bench, &killed_path),
        ],
    )?;
    let on = format!(
        "{} rows, {} of them overdue, {TENANTS} tenants",
        grouped(recipe.rows),
        grouped(recipe.due)
    );
    let measure = |what: &str, ours, on: &str| Measure::of(what, Unit::Milliseconds, ours, on);
    let what = "first firing, over opening the file and reading a row";
    let log = log_bytes / MIB;
    let after_kill = format!("first firing after SIGKILL with a log of {log} MiB");
    let on_log = format!("{on}; bare opens and reads a row, which reads the whole log");
    Ok(vec![
        measure(what, &ours, &on).over(&bare)?.at_most(20.0),
        measure(&after_kill, &ours_killed, &on_log)
            .beside(&bare_killed)
            .at_most(200.0),
    ])
}

/// Everything that a process does between its start and its first event, but for loading itself.
fn first_firing(bench: &mut Bench, original: &Path) -> Outcome<f64> {
    let copy = bench.databases.copy_of(original)?;
    let settings = copy.settings();
    let started = Instant::now();
    let clock = SystemClock::start()?;
    let fire = async |ours: &Ours| ours.fire(1, WorkerSettings::default()).await;
    let firing = Ours::with(&settings, &clock, fire);
    let first = bench.runtime.block_on(firing)?.first;
    Ok(first.duration_since(started).as_secs_f64() * 1e3)
}

fn open_only(bench: &mut Bench, original: &Path) -> Outcome<f64> {
    let copy = bench.databases.copy_of(original)?;
    let started = Instant::now();
    let bare = Bare::open(&copy.path())?;
    bare.poll()?.ok_or("the file is empty")?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Lets another process write a log of this size beside the file, and kills it.
fn leave_a_log(copy: &Copy, bytes: u64) -> Outcome<()> {
    let mut child = child::command(CHILD.name, &copy.path(), [bytes, 0])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    // On Unix this is SIGKILL: the process has no chance to fold its log in.
    child.kill()?;
    child.wait()?;
    if said.trim_end() != FILLED {
        return Err("the process that was to fill a log ended before it had".into());
    }
    let length = std::fs::metadata(log_of(&copy.path()))?.len();
    if length < bytes {
        return Err(format!("the log was to have {bytes} bytes, but has {length}").into());
    }
    Ok(())
}

/// The other process: writes until the log is long enough, says so, and waits to be killed.
fn fill_log(path: &Path, [bytes, _]: [u64; 2]) -> Outcome<()> {
    let clock = SystemClock::start()?;
    let mut bare = Bare::open_with(path, Synchronous::Normal)?;
    bare.tune(16, 0)?;
    let mut rows = Rows::new(tenants(TENANTS)?, 99, clock.now());
    while std::fs::metadata(log_of(path)).map_or(0, |it| it.len()) < bytes {
        bare.upsert(&rows.many_pending(1_000), 1_000, clock.now())?;
    }
    println!("{FILLED}");
    // The parent process holds the other end; when it closes, the child ends.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
