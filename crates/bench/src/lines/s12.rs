//! S12: complete service calls, from their submission to their outcome.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::Line;
use crate::bare::Bare;
use crate::calls::{
    AT_ONCE, BareCalls, Engine, PHASES, Statements, TENANTS, Target, Transcript, empty_file,
    submissions,
};
use crate::report::{self, Measure, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped, process};

pub(crate) const LINE: Line = Line {
    name: "S12",
    what: "service calls: submitted, due, requested, over",
    run,
};

/// How many calls the bare loop takes at a time: as many messages as ours publishes at once. Other
/// sizes were not compared.
const BATCH: usize = 500;

/// What the rounds of one side took besides the time of all.
#[derive(Default)]
struct Shares {
    /// Requests under way, in percent of the time.
    requesting: RefCell<Vec<f64>>,
    /// The writing thread on a processor, in percent of the time.
    writing: RefCell<Vec<f64>>,
    /// Processor time of the whole process for each call, in microseconds.
    processor: RefCell<Vec<f64>>,
}

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let count = bench.size(10_000, 2_000);
    let rounds = bench.size(5, 3);
    let target = Target::start()?;
    let (calls, statements) = first_run(bench, count, &target)?;
    let (mine, its) = (Shares::default(), Shares::default());
    let [ours, bare] = bench.take_turns(
        rounds,
        [&|bench| ours(bench, count, &target, &mine), &|bench| {
            bare(bench, &calls, &target, &its)
        }],
    )?;
    let on = format!(
        "{} calls of {TENANTS} tenants onto an empty file, {AT_ONCE} submitters, {AT_ONCE} requests at \
         once to a target in this process, synchronous FULL",
        grouped(count)
    );
    let main = Measure {
        line: LINE.name,
        what: format!("calls ÷ bare, {BATCH} a transaction"),
        unit: Unit::PerSecond,
        figure: ours.ratio(&bare).ok_or("rounds are missing")?,
        ours,
        bare: Some(bare),
        figure_unit: Unit::Times,
        target: report::Target::AtLeast(0.7),
        on: on.clone(),
    };
    let mut measures = vec![main];
    measures.extend(where_it_goes(mine, its, statements.of_each(count), &on)?);
    Ok(measures)
}

/// What explains the figure, for comparison.
fn where_it_goes(
    mine: Shares,
    its: Shares,
    (statements, commits): (f64, f64),
    on: &str,
) -> Outcome<Vec<Measure>> {
    let compared = |what: &str, unit, ours: Vec<f64>, bare: Option<Vec<f64>>| {
        let ours = Rounds::new(ours).ok_or("rounds are missing")?;
        Outcome::Ok(Measure {
            line: LINE.name,
            what: what.to_owned(),
            unit,
            figure: ours.clone(),
            figure_unit: unit,
            ours,
            bare: bare.and_then(Rounds::new),
            target: report::Target::None,
            on: on.to_owned(),
        })
    };
    Ok(vec![
        compared(
            "any request under way, of the time",
            Unit::Percent,
            mine.requesting.into_inner(),
            Some(its.requesting.into_inner()),
        )?,
        compared(
            "writing thread on a processor, of the time",
            Unit::Percent,
            mine.writing.into_inner(),
            None,
        )?,
        compared(
            "processor time of a call, the target's included",
            Unit::Microseconds,
            mine.processor.into_inner(),
            Some(its.processor.into_inner()),
        )?,
        compared(
            "statements for each call, readers included",
            Unit::Times,
            vec![statements],
            None,
        )?,
        compared(
            "calls for each commit",
            Unit::Times,
            vec![1.0 / commits],
            None,
        )?,
    ])
}

/// One run that is not measured: its statements are counted, and what it wrote is what the bare loop
/// writes.
fn first_run(
    bench: &mut Bench,
    count: usize,
    target: &Target,
) -> Outcome<(Transcript, Statements)> {
    let copy = empty_file(bench)?;
    let calls = submissions(count, &target.url(), bench.now())?;
    let before = Statements::so_far();
    bench.runtime.block_on(async {
        let engine = Engine::open(&copy.path(), true).await?;
        engine.make(&copy.path(), calls, target).await
    })?;
    let statements = Statements::so_far().since(before);
    let connection = Bare::open(&copy.path(), punctual_adapters_sqlite::Synchronous::Full)?;
    let transcript = Transcript::read(&connection.into_connection())?;
    if !transcript.is_whole(count) {
        return Err(format!("{count} calls left another trace than expected").into());
    }
    Ok((transcript, statements))
}

fn ours(bench: &mut Bench, count: usize, target: &Target, shares: &Shares) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let calls = submissions(count, &target.url(), bench.now())?;
    let used = process::processor_time();
    let worked = bench.runtime.block_on(async {
        let engine = Engine::open(&copy.path(), false).await?;
        engine.make(&copy.path(), calls, target).await
    })?;
    shares.note(worked.requesting, worked.took, used, count);
    let writing = percent(worked.writing, worked.took);
    shares.writing.borrow_mut().push(writing);
    eprintln!(
        "  ours: {:.2} s, submitting until {:.2} s, any request under way for {:.2} s, the writing \
         thread on a processor for {:.2} s",
        worked.took.as_secs_f64(),
        worked.submitting.as_secs_f64(),
        worked.requesting.as_secs_f64(),
        worked.writing.as_secs_f64(),
    );
    BareCalls::open(&copy.path())?.check(count)?;
    Ok(rate(count, worked.took))
}

fn bare(bench: &mut Bench, calls: &Transcript, target: &Target, shares: &Shares) -> Outcome<f64> {
    let copy = empty_file(bench)?;
    let count = calls.len();
    target.answered();
    let mut bare = BareCalls::open(&copy.path())?;
    let used = process::processor_time();
    let started = Instant::now();
    bare.make(calls, BATCH, target.address)?;
    let took = started.elapsed();
    let requesting = PHASES.iter().zip(bare.spent);
    let requesting: Duration = requesting
        .filter_map(|(phase, spent)| (*phase == "REQUESTS").then_some(spent))
        .sum();
    shares.note(requesting, took, used, count);
    let phases = PHASES.iter().zip(bare.spent);
    let phases: Vec<_> = phases
        .map(|(phase, spent)| format!("{phase} {:.0} %", percent(spent, took)))
        .collect();
    eprintln!(
        "  bare: {:.2} s in {} commits: {}",
        took.as_secs_f64(),
        bare.commits,
        phases.join(", ")
    );
    bare.check(count)?;
    if target.answered() != count {
        return Err("a request of the bare loop was not answered".into());
    }
    Ok(rate(count, took))
}

impl Shares {
    fn note(&self, requesting: Duration, took: Duration, used_before: Duration, count: usize) {
        self.requesting.borrow_mut().push(percent(requesting, took));
        let used = process::processor_time().saturating_sub(used_before);
        // How long one takes, where the rate is how many there are in a time.
        let each = 1e6 / rate(count, used);
        self.processor.borrow_mut().push(each);
    }
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64() * 100.0
}
