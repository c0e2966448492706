//! S12: complete service calls, from their submission to their outcome.

use std::time::{Duration, Instant};

use crate::calls::{
    AT_ONCE, BareCalls, Engine, PHASES, REQUESTS, TENANTS, Target, Transcript, empty_file,
    statements_of_each, submissions,
};
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, micros, rate};
use crate::turns::Bench;
use crate::{Outcome, grouped, machine};

pub(super) const WHAT: &str = "service calls: submitted, due, requested, over";

/// How many calls the bare loop takes at a time: as many messages as ours publishes at once. Other
/// sizes were not compared.
const BATCH: usize = 500;

const REQUESTING: &str = "any request under way, of the time";
const WRITING: &str = "writing thread on a processor, of the time";
const PROCESSOR: &str = "processor time of a call, the target's included";
const STATEMENTS: &str = "statements for each call, readers included";

/// What a round of one side took.
struct Round {
    /// Calls a second.
    rate: f64,
    /// Requests under way, in percent of the time.
    requesting: f64,
    /// The writing thread on a processor, in percent of the time.
    writing: f64,
    /// Processor time of the whole process for each call, in microseconds.
    processor: f64,
}

impl Round {
    fn new(count: usize, took: Duration, requesting: Duration, used_before: Duration) -> Self {
        let used = machine::processor_time().saturating_sub(used_before);
        Self {
            rate: rate(count, took),
            requesting: percent(requesting, took),
            writing: 0.0,
            processor: micros(count, used),
        }
    }
}

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let count = bench.size(10_000, 2_000);
    let rounds = bench.size(5, 3);
    let target = Target::start()?;
    let calls = first_run(bench, count, &target)?;
    // Only the first one's are counted.
    let (statements, commits) = statements_of_each(count);
    let sides = bench.in_turns(rounds, 2, |bench, side| match side {
        0 => ours(bench, count, &target),
        _ => bare(bench, &calls, &target),
    })?;
    let on = format!(
        "{} calls of {TENANTS} tenants onto an empty file, {AT_ONCE} submitters, {AT_ONCE} requests at \
         once to a target in this process, synchronous FULL",
        grouped(count)
    );
    let of = |side: usize, figure: fn(&Round) -> f64| {
        Rounds::of(&sides[side], |round: &Round| Ok(figure(round)))
    };
    let once = |value| Rounds::new(vec![value]);
    let measure = |what: &str, unit, ours: &Rounds| Measure::of(what, unit, ours, &on);
    let main = format!("calls ÷ bare, {BATCH} a transaction");
    // All but the first explain its figure.
    Ok(vec![
        measure(&main, Unit::PerSecond, &of(0, |it| it.rate)?)
            .ratio_to(&of(1, |it| it.rate)?)?
            .at_least(0.85),
        measure(REQUESTING, Unit::Percent, &of(0, |it| it.requesting)?)
            .beside(&of(1, |it| it.requesting)?),
        measure(WRITING, Unit::Percent, &of(0, |it| it.writing)?),
        measure(PROCESSOR, Unit::Microseconds, &of(0, |it| it.processor)?)
            .ratio_to(&of(1, |it| it.processor)?)?
            .at_most(1.4),
        measure(STATEMENTS, Unit::Times, &once(statements)?).at_most(32.0),
        measure("calls for each commit", Unit::Times, &once(1.0 / commits)?),
    ])
}

/// One run that is not measured: its statements are counted, and what it wrote is what the bare loop
/// writes.
fn first_run(bench: &mut Bench, count: usize, target: &Target) -> Outcome<Transcript> {
    let copy = empty_file(bench)?;
    let calls = submissions(count, &target.url(), bench.now())?;
    bench.runtime.block_on(async {
        let engine = Engine::open(&copy.path(), true).await?;
        engine.make(&copy.path(), calls, target).await
    })?;
    let transcript = Transcript::read(&copy.path())?;
    if !transcript.is_whole(count) {
        return Err(format!("{count} calls left another trace than expected").into());
    }
    Ok(transcript)
}

fn ours(bench: &mut Bench, count: usize, target: &Target) -> Outcome<Round> {
    let copy = empty_file(bench)?;
    let calls = submissions(count, &target.url(), bench.now())?;
    let used = machine::processor_time();
    let worked = bench.runtime.block_on(async {
        let engine = Engine::open(&copy.path(), false).await?;
        engine.make(&copy.path(), calls, target).await
    })?;
    let round = Round {
        writing: percent(worked.writing, worked.took),
        ..Round::new(count, worked.took, worked.requesting, used)
    };
    eprintln!(
        "  ours: {:.2} s, submitting until {:.2} s, any request under way for {:.2} s, the writing \
         thread on a processor for {:.2} s",
        worked.took.as_secs_f64(),
        worked.submitting.as_secs_f64(),
        worked.requesting.as_secs_f64(),
        worked.writing.as_secs_f64(),
    );
    BareCalls::open(&copy.path())?.check(count)?;
    Ok(round)
}

fn bare(bench: &mut Bench, calls: &Transcript, target: &Target) -> Outcome<Round> {
    let copy = empty_file(bench)?;
    let count = calls.len();
    target.answered();
    let mut bare = BareCalls::open(&copy.path())?;
    let used = machine::processor_time();
    let started = Instant::now();
    bare.make(calls, BATCH, target.address)?;
    let took = started.elapsed();
    let round = Round::new(count, took, bare.spent[REQUESTS], used);
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
    Ok(round)
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64() * 100.0
}
