//! S2: batches of a thousand, where the store has nothing left to gather.

use super::{Line, TENANTS, s1};
use crate::databases::Recipe;
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "S2",
    what: "schedule(), a thousand timers a call",
    run,
};

const BATCH: usize = 1_000;

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let start = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let rows = bench.size(60_000, 20_000);
    let rounds = bench.size(5, 3);
    let [one, four, bare] = bench.take_turns(
        rounds,
        [
            &|bench| ours(bench, start, rows, 1),
            &|bench| ours(bench, start, rows, 4),
            &|bench| s1::bare(bench, start, rows, BATCH),
        ],
    )?;
    let measure = |what: &str, ours: &Rounds, target| {
        Outcome::Ok(Measure {
            line: LINE.name,
            what: what.to_owned(),
            unit: Unit::PerSecond,
            ours: ours.clone(),
            bare: Some(bare.clone()),
            figure: ours.ratio(&bare).ok_or("rounds are missing")?,
            figure_unit: Unit::Times,
            target: Target::AtLeast(target),
            on: format!(
                "{} timers onto {} rows, {TENANTS} tenants, synchronous FULL",
                grouped(rows),
                grouped(start.rows)
            ),
        })
    };
    Ok(vec![
        measure("one caller ÷ bare, 1 000 a transaction", &one, 0.95)?,
        measure("four callers ÷ bare, 1 000 a transaction", &four, 1.0)?,
    ])
}

/// Ours, with a number of concurrent callers.
pub(super) fn ours(bench: &mut Bench, start: Recipe, rows: usize, callers: usize) -> Outcome<f64> {
    let copy = bench.copy(start)?;
    let timers = bench.rows(start.tenants)?.many_pending(rows);
    let took = bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        let took = ours.schedule_batches(timers, BATCH, callers).await?;
        ours.close().await;
        Outcome::Ok(took)
    })?;
    Ok(rate(rows, took))
}
