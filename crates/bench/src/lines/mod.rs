//! The lines that are measured, one file each.

mod pragmas;
mod s1;
mod s10;
mod s12;
mod s13;
mod s14;
mod s15;
mod s19;
mod s2;
mod s20;
mod s3;
mod s4;
mod s5;
mod s6;
mod s7;
mod s8;
mod s9;
mod sizes;
mod submit;

use crate::Outcome;
use crate::child::Child;
use crate::report::Measure;
use crate::turns::Bench;

/// One line of the goals.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(&mut Bench) -> Outcome<Vec<Measure>>,
}

const fn line(
    name: &'static str,
    what: &'static str,
    run: fn(&mut Bench) -> Outcome<Vec<Measure>>,
) -> Line {
    Line { name, what, run }
}

/// Every line, in the order in which they are run: neighbours share their files.
const ALL: [Line; 17] = [
    line("S1", "schedule(), one timer a call, many tasks", s1::run),
    line("S2", "schedule(), a thousand timers a call", s2::run),
    line(
        "S10",
        "commands from JetStream: fetched, committed, acknowledged",
        s10::run,
    ),
    line("S9", "publishing fired timers to JetStream", s9::run),
    line(
        "SUBMIT",
        "service calls taken over HTTP, and by calling the use case",
        submit::run,
    ),
    line(
        "S12",
        "service calls: submitted, due, requested, over",
        s12::run,
    ),
    line(
        "S20",
        "calls beside two tenants whose targets never answer",
        s20::run,
    ),
    line("S4", "lateness at 1 000 timers a second", s4::run),
    line("S6", "an idle minute", s6::run),
    line("S3", "draining a backlog: claim, handler, mark", s3::run),
    line(
        "S7",
        "memory on a large file while timers come and go",
        s7::run,
    ),
    line("S13", "from opening the file to the first firing", s13::run),
    line(
        "S8",
        "a backlog after a downtime, and fresh timers meanwhile",
        s8::run,
    ),
    line(
        "S19",
        "saturated tenants, and the others meanwhile",
        s19::run,
    ),
    line("S5", "one poll with nothing due", s5::run),
    line("S15", "file size per pending timer", s15::run),
    line(
        "S14",
        "the size of the program and of what it is made of",
        s14::sizes,
    ),
];

/// What the benchmark does in processes of their own.
pub(crate) const CHILDREN: [Child; 4] = [s6::CHILD, s7::CHILD, s8::CHILD, s13::CHILD];

/// What is measured on request only: what explains a choice and has no target, and what
/// takes minutes by itself.
const BY_NAME: [Line; 2] = [
    line("PRAGMAS", "the bare loop under other pragmas", pragmas::run),
    line(
        "BUILD",
        "building from nothing (the other half of S14)",
        s14::builds,
    ),
];

/// What is measured for a plot, or on request.
const DRAWN: [Line; 1] = [line(
    "SIZES",
    "a poll, a schedule and a firing on files of different sizes",
    sizes::run,
)];

/// The lines of these names, or without names all that have targets, and what else is to be drawn.
pub(crate) fn choose(names: &[String], draws: bool) -> Outcome<Vec<&'static Line>> {
    let is_unknown = |name: &&String| every().all(|line| line.name != name.as_str());
    if let Some(unknown) = names.iter().find(is_unknown) {
        let known: Vec<_> = every().map(|line| line.name).collect();
        return Err(format!(
            "there is no line {unknown}: give some of {}",
            known.join(", ")
        )
        .into());
    }
    if names.is_empty() {
        let also = DRAWN.iter().filter(|_| draws);
        return Ok(ALL.iter().chain(also).collect());
    }
    let chosen = |line: &&Line| names.iter().any(|name| name == line.name);
    Ok(every().filter(chosen).collect())
}

fn every() -> impl Iterator<Item = &'static Line> {
    ALL.iter().chain(&DRAWN).chain(&BY_NAME)
}

/// How many tenants there are unless a line is about their number.
const TENANTS: usize = 100;
