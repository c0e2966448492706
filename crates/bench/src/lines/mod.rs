//! The lines that are measured, one file each.

mod pragmas;
mod s1;
mod s10;
mod s11;
mod s12;
mod s12_late;
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

/// One line of the goals: its name, what it measures, and how.
pub(crate) struct Line(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) fn(&mut Bench) -> Outcome<Vec<Measure>>,
);

/// Every line, in the order in which they are run: neighbours share their files.
const ALL: [Line; 19] = [
    Line("S1", s1::WHAT, s1::run),
    Line("S2", s2::WHAT, s2::run),
    Line("S10", s10::WHAT, s10::run),
    Line("S9", s9::WHAT, s9::run),
    Line("S11", s11::WHAT, s11::run),
    Line("SUBMIT", submit::WHAT, submit::run),
    Line("S12", s12::WHAT, s12::run),
    Line("S12-LATE", s12_late::WHAT, s12_late::run),
    Line("S20", s20::WHAT, s20::run),
    Line("S4", s4::WHAT, s4::run),
    Line("S6", s6::WHAT, s6::run),
    Line("S3", s3::WHAT, s3::run),
    Line("S7", s7::WHAT, s7::run),
    Line("S13", s13::WHAT, s13::run),
    Line("S8", s8::WHAT, s8::run),
    Line("S19", s19::WHAT, s19::run),
    Line("S5", s5::WHAT, s5::run),
    Line("S15", s15::WHAT, s15::run),
    Line("S14", s14::WHAT, s14::sizes),
];

/// What the benchmark does in processes of their own.
pub(crate) const CHILDREN: [Child; 6] = [
    s6::CHILD,
    s7::CHILD,
    s8::CHILD,
    s11::DRAIN,
    s11::HOLD,
    s13::CHILD,
];

/// What is measured on request only: what explains a choice and has no target, and what
/// takes minutes by itself.
const BY_NAME: [Line; 8] = [
    Line("S11-SCHEDULE", s11::WHAT, s11::schedules),
    Line("S11-FIRING", s11::WHAT, s11::firings),
    Line("S11-LATE", s11::WHAT, s11::lateness),
    Line("S11-POLL", s11::WHAT, s11::polls),
    Line("S11-INSTANCES", s11::WHAT, s11::instances),
    Line("S11-10M", s11::WHAT, s11::ten_million),
    Line("PRAGMAS", pragmas::WHAT, pragmas::run),
    Line("BUILD", s14::BUILD, s14::builds),
];

/// What is measured for a plot, or on request.
const DRAWN: [Line; 1] = [Line("SIZES", sizes::WHAT, sizes::run)];

/// The lines of these names, or without names all that have targets, and what else is to be drawn.
pub(crate) fn choose(names: &[String], draws: bool) -> Outcome<Vec<&'static Line>> {
    let is_unknown = |name: &&String| every().all(|line| line.0 != *name);
    if let Some(unknown) = names.iter().find(is_unknown) {
        let known: Vec<_> = every().map(|line| line.0).collect();
        let known = known.join(", ");
        return Err(format!("there is no line {unknown}: give some of {known}").into());
    }
    if names.is_empty() {
        let also = DRAWN.iter().filter(|_| draws);
        return Ok(ALL.iter().chain(also).collect());
    }
    let chosen = |line: &&Line| names.iter().any(|name| name == line.0);
    Ok(every().filter(chosen).collect())
}

fn every() -> impl Iterator<Item = &'static Line> {
    ALL.iter().chain(&DRAWN).chain(&BY_NAME)
}

/// How many tenants there are unless a line is about their number.
const TENANTS: usize = 100;
