//! S1: many callers, each scheduling one timer at a time.
//!
//! What one transaction for each call would cost is paid once for whatever is waiting: this line
//! says how much of a hand-made batch loop's rate is left.

use std::time::Instant;

use super::TENANTS;
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, rate};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "schedule(), one timer a call, many tasks";

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let start = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let few = bench.size(20_000, 6_400);
    let many = bench.size(50_000, 20_000);
    let single = bench.size(2_000, 500);
    let rounds = bench.size(5, 3);

    let [ours_64, bare_64, bare_1, ours_1024, bare_1000] = bench.take_turns(
        rounds,
        [
            &|bench| ours(bench, start, few, (1, 64)),
            &|bench| bare(bench, start, few, 64),
            &|bench| bare(bench, start, single, 1),
            &|bench| ours(bench, start, many, (1, 1_024)),
            &|bench| bare(bench, start, many, 1_000),
        ],
    )?;
    let measure = |what: &str, ours: &Rounds, calls| {
        let on = format!("{} calls {}", grouped(calls), onto(start));
        Measure::of(what, Unit::PerSecond, ours, &on)
    };
    let many_tasks = "1 024 tasks ÷ bare, 1 000 a transaction";
    Ok(vec![
        measure("64 tasks ÷ bare, 64 a transaction", &ours_64, few)
            .ratio_to(&bare_64)?
            .at_least(0.70),
        measure("64 tasks ÷ bare, a transaction a row", &ours_64, few)
            .ratio_to(&bare_1)?
            .at_least(6.0),
        measure(many_tasks, &ours_1024, many)
            .ratio_to(&bare_1000)?
            .at_least(0.65),
    ])
}

/// What is written to.
pub(super) fn onto(start: Recipe) -> String {
    format!(
        "onto {} rows, {TENANTS} tenants, synchronous FULL",
        grouped(start.rows)
    )
}

/// Ours, with a number of timers in each call and a number of concurrent callers.
pub(super) fn ours(
    bench: &mut Bench,
    start: Recipe,
    rows: usize,
    (batch, callers): (usize, usize),
) -> Outcome<f64> {
    let (copy, timers) = bench.copy_and_timers(start, rows)?;
    let took = bench.with_ours(&copy, async |ours| {
        ours.schedule(timers, batch, callers).await
    })?;
    Ok(rate(rows, took))
}

/// The plain loop, with a number of rows in each transaction.
pub(super) fn bare(
    bench: &mut Bench,
    start: Recipe,
    rows: usize,
    per_transaction: usize,
) -> Outcome<f64> {
    let (copy, timers) = bench.copy_and_timers(start, rows)?;
    let mut bare = Bare::open(&copy.path())?;
    let started = Instant::now();
    bare.upsert(&timers, per_transaction, bench.now())?;
    Ok(rate(rows, started.elapsed()))
}
