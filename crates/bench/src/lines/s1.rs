//! S1: many callers, each scheduling one timer at a time.
//!
//! What one transaction for each call would cost is paid once for whatever is waiting: this line
//! says how much of a hand-made batch loop's rate is left.

use punctual_adapters_sqlite::Synchronous;

use super::{Line, TENANTS};
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "S1",
    what: "schedule(), one timer a call, many tasks",
    run,
};

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let start = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let few = bench.size(20_000, 6_400);
    let many = bench.size(50_000, 20_000);
    let single = bench.size(2_000, 500);
    let rounds = bench.size(5, 3);

    let [ours_64, bare_64, bare_1, ours_1024, bare_1000] = bench.take_turns(
        rounds,
        [
            &|bench| ours(bench, start, few, 64),
            &|bench| bare(bench, start, few, 64),
            &|bench| bare(bench, start, single, 1),
            &|bench| ours(bench, start, many, 1_024),
            &|bench| bare(bench, start, many, 1_000),
        ],
    )?;
    let onto = format!(
        "onto {} rows, {TENANTS} tenants, synchronous FULL",
        grouped(start.rows)
    );
    let measure = |what: &str, ours: &Rounds, bare: &Rounds, target, calls: usize| {
        Outcome::Ok(Measure {
            line: LINE.name,
            what: what.to_owned(),
            unit: Unit::PerSecond,
            ours: ours.clone(),
            bare: Some(bare.clone()),
            figure: ours.ratio(bare).ok_or("rounds are missing")?,
            figure_unit: Unit::Times,
            target: Target::AtLeast(target),
            on: format!("{} calls {onto}", grouped(calls)),
        })
    };
    Ok(vec![
        measure(
            "64 tasks ÷ bare, 64 a transaction",
            &ours_64,
            &bare_64,
            0.70,
            few,
        )?,
        measure(
            "64 tasks ÷ bare, a transaction a row",
            &ours_64,
            &bare_1,
            6.0,
            few,
        )?,
        measure(
            "1 024 tasks ÷ bare, 1 000 a transaction",
            &ours_1024,
            &bare_1000,
            0.65,
            many,
        )?,
    ])
}

fn ours(bench: &mut Bench, start: Recipe, calls: usize, tasks: usize) -> Outcome<f64> {
    let copy = bench.copy(start)?;
    let timers = bench.rows(start.tenants)?.many_pending(calls);
    let took = bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        let took = ours.schedule_one_by_one(timers, tasks).await?;
        ours.close().await;
        Outcome::Ok(took)
    })?;
    Ok(rate(calls, took))
}

/// The plain loop, with a number of rows in each transaction.
pub(super) fn bare(
    bench: &mut Bench,
    start: Recipe,
    rows: usize,
    per_transaction: usize,
) -> Outcome<f64> {
    let copy = bench.copy(start)?;
    let timers = bench.rows(start.tenants)?.many_pending(rows);
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    let started = std::time::Instant::now();
    bare.upsert(&timers, per_transaction, bench.now())?;
    Ok(rate(rows, started.elapsed()))
}
