//! S14: how large the program is, how many crates an embedder takes in, and how long both take to
//! build. Building from nothing takes minutes, so that is a line of its own, run by its name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::machine::mebibytes;
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, float};
use crate::turns::Bench;
use crate::{Outcome, target_folder};

pub(super) const WHAT: &str = "the size of the program and of what it is made of";
pub(super) const BUILD: &str = "building from nothing (the other half of S14)";

const PROGRAM: &str = "timer-service";
const LIBRARY: &str = "punctual";

pub(super) fn sizes(_: &mut Bench) -> Outcome<Vec<Measure>> {
    let mut measures = Vec::new();
    let program = target_folder()?.join("release").join(PROGRAM);
    if let Ok(found) = program.metadata() {
        let size = mebibytes(found.len());
        let on = format!("{PROGRAM} as the release profile builds it");
        let what = "size of the release binary";
        measures.push(measure(what, size, Unit::Mebibytes, 25.0, &on)?);
    } else {
        eprintln!("  {} is not built: left out", program.display());
    }
    let crates = float(crates_of(LIBRARY)? as u64);
    let on = format!("cargo tree of {LIBRARY} without its tests, itself included");
    let what = "crates of the default library";
    measures.push(measure(what, crates, Unit::Count, 80.0, &on)?);
    Ok(measures)
}

pub(super) fn builds(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let library = build(bench, &["--package", LIBRARY])?;
    let on = format!("{LIBRARY} with its default features, from nothing but the sources");
    let library = measure("debug build", library, Unit::Seconds, 90.0, &on)?;
    let program = build(bench, &["--release", "--bin", PROGRAM])?;
    let on = format!("{PROGRAM}, from nothing but the sources");
    let program = measure("release build", program, Unit::Seconds, 600.0, &on)?;
    Ok(vec![library, program])
}

fn measure(what: &str, value: f64, unit: Unit, most: f64, on: &str) -> Outcome<Measure> {
    let value = Rounds::new(vec![value])?;
    let mut measure = Measure::of(what, unit, &value, on).at_most(most);
    measure.line = "S14";
    Ok(measure)
}

/// How many packages a package is built of.
fn crates_of(package: &str) -> Outcome<usize> {
    let tree = cargo()
        .args(["tree", "--locked", "--package", package])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .output()?;
    if !tree.status.success() {
        let said = String::from_utf8_lossy(&tree.stderr);
        return Err(format!("cargo tree failed: {}", said.trim()).into());
    }
    let text = String::from_utf8_lossy(&tree.stdout);
    // A package that was shown before is marked, and macros too: the first two words name it.
    let names = text.lines().map(|line| {
        let words: Vec<_> = line.split(' ').take(2).collect();
        words.join(" ")
    });
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
    Ok(names.len())
}

/// Builds into a folder of its own; returns how many seconds it took.
fn build(bench: &Bench, what: &[&str]) -> Outcome<f64> {
    let folder = bench.databases.folder.join("build");
    let started = Instant::now();
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--target-dir"]);
    let status = command.arg(&folder).args(what).status()?;
    let took = started.elapsed();
    std::fs::remove_dir_all(&folder)?;
    if !status.success() {
        return Err(format!("the build of {what:?} failed").into());
    }
    Ok(took.as_secs_f64())
}

fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace());
    command
}

/// The workspace that this program was built from.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let above = package.ancestors().nth(2);
    above.unwrap_or(package).to_owned()
}
