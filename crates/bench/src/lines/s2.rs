//! S2: batches of a thousand, where the store has nothing left to gather.

use super::{TENANTS, s1};
use crate::databases::Recipe;
use crate::report::{Measure, Unit};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "schedule(), a thousand timers a call";

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
    let on = format!("{} timers {}", grouped(rows), s1::onto(start));
    let measure = |what: &str, ours| Measure::of(what, Unit::PerSecond, ours, &on).ratio_to(&bare);
    Ok(vec![
        measure("one caller ÷ bare, 1 000 a transaction", &one)?.at_least(0.95),
        measure("four callers ÷ bare, 1 000 a transaction", &four)?.at_least(1.0),
    ])
}
