//! The lines that are measured, one file each.

mod s1;
mod s13;
mod s15;
mod s2;
mod s3;
mod s5;

use crate::Outcome;
use crate::report::Measure;
use crate::turns::Bench;

pub(crate) use s13::fill_log;

/// One line of the goals.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(&mut Bench) -> Outcome<Vec<Measure>>,
}

/// Every line, in the order in which they are run: neighbours share their files.
pub(crate) const ALL: [Line; 6] = [s1::LINE, s2::LINE, s3::LINE, s13::LINE, s5::LINE, s15::LINE];

/// The lines of these names, or all without names.
pub(crate) fn choose(names: &[String]) -> Outcome<Vec<&'static Line>> {
    if let Some(unknown) = names.iter().find(|name| !has(name)) {
        let known: Vec<_> = ALL.iter().map(|line| line.name).collect();
        return Err(format!(
            "there is no line {unknown}: give some of {}",
            known.join(", ")
        )
        .into());
    }
    let chosen = |line: &&Line| names.is_empty() || names.iter().any(|name| name == line.name);
    Ok(ALL.iter().filter(chosen).collect())
}

fn has(name: &str) -> bool {
    ALL.iter().any(|line| line.name == name)
}

/// How many tenants there are unless a line is about their number.
const TENANTS: usize = 100;
