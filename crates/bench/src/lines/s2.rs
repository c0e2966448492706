//! S2: batches of a thousand, where the store has nothing left to gather.

use super::{TENANTS, s1};
use crate::databases::Recipe;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};

/// How many timers a call or a transaction has.
pub(super) const BATCH: usize = 1_000;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let start = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let rows = bench.size(60_000, 20_000);
    let rounds = bench.size(5, 3);
    let [one, four, bare] = bench.take_turns(
        rounds,
        [
            &|bench| s1::ours(bench, start, rows, (BATCH, 1)),
            &|bench| s1::ours(bench, start, rows, (BATCH, 4)),
            &|bench| s1::bare(bench, start, rows, BATCH),
        ],
    )?;
    let measure = |what: &str, ours: &Rounds, target| {
        let on = format!("{} timers {}", grouped(rows), s1::onto(start));
        let target = Target::AtLeast(target);
        Measure::ratio(what, Unit::PerSecond, (ours, &bare), target, on)
    };
    Ok(vec![
        measure("one caller ÷ bare, 1 000 a transaction", &one, 0.95)?,
        measure("four callers ÷ bare, 1 000 a transaction", &four, 1.0)?,
    ])
}
