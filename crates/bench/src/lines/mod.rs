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

/// Every line, in the order in which they are run: neighbours share their files.
pub(crate) const ALL: [Line; 17] = [
    s1::LINE,
    s2::LINE,
    s10::LINE,
    s9::LINE,
    submit::LINE,
    s12::LINE,
    s20::LINE,
    s4::LINE,
    s6::LINE,
    s3::LINE,
    s7::LINE,
    s13::LINE,
    s8::LINE,
    s19::LINE,
    s5::LINE,
    s15::LINE,
    s14::LINE,
];

/// What the benchmark does in processes of their own.
pub(crate) const CHILDREN: [Child; 4] = [s6::CHILD, s7::CHILD, s8::CHILD, s13::CHILD];

/// What is measured on request only: what explains a choice and has no target, and what
/// takes minutes by itself.
const BY_NAME: [Line; 2] = [pragmas::LINE, s14::BUILD];

/// What is measured for a plot, or on request.
const DRAWN: [Line; 1] = [sizes::LINE];

/// The lines of these names, or without names all that have targets, and what else is to be drawn.
pub(crate) fn choose(names: &[String], draws: bool) -> Outcome<Vec<&'static Line>> {
    if let Some(unknown) = names.iter().find(|name| !has(name)) {
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

fn has(name: &str) -> bool {
    every().any(|line| line.name == name)
}

/// How many tenants there are unless a line is about their number.
const TENANTS: usize = 100;
