//! PRAGMAS: why the store's page cache and checkpoints are as they are. Measured on the bare loop,
//! so that nothing but SQLite is compared; only run when it is named.

use std::time::Instant;

use super::{s1, s3};
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, rate};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "the bare loop under other pragmas";

/// The settings: the page cache in MiB, and the number of pages between checkpoints. Ours come first.
const TUNINGS: [(&str, i64, i64); 5] = [
    ("16 MiB and 10 000 pages", 16, 10_000),
    ("SQLite's own 2 MiB and 1 000 pages", 2, 1_000),
    ("a cache of 2 MiB", 2, 10_000),
    ("a cache of 64 MiB", 64, 10_000),
    ("a checkpoint every 1 000 pages", 16, 1_000),
];

/// How many rows share a commit: as with many callers, and as with large batches.
const SIZES: [usize; 2] = [64, 1_000];

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let mut measures = Vec::new();
    for per_transaction in SIZES {
        measures.extend(compare(bench, per_transaction)?);
    }
    Ok(measures)
}

fn compare(bench: &mut Bench, per_transaction: usize) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let rows = bench.size(20_000, 8_000);
    let found = bench.in_turns(3, TUNINGS.len(), |bench, place| {
        let (_, cache, checkpoint) = TUNINGS[place];
        stored(bench, recipe, (rows, per_transaction), (cache, checkpoint))
    })?;
    let found = found.into_iter().map(Rounds::new);
    let found = found.collect::<Outcome<Vec<_>>>()?;
    let against = |((what, ..), other): (&(&str, i64, i64), &Rounds)| {
        let on = format!(
            "{} rows, {per_transaction} a transaction, {}, the bare loop on both sides",
            grouped(rows),
            s1::onto(recipe)
        );
        let what = format!("{} ÷ {what}", TUNINGS[0].0);
        Measure::of(what, Unit::PerSecond, &found[0], &on).ratio_to(other)
    };
    TUNINGS.iter().zip(&found).skip(1).map(against).collect()
}

fn stored(
    bench: &mut Bench,
    recipe: Recipe,
    (rows, per_transaction): (usize, usize),
    (cache, checkpoint): (i64, i64),
) -> Outcome<f64> {
    let (copy, timers) = bench.copy_and_timers(recipe, rows)?;
    let mut bare = Bare::open(&copy.path())?;
    bare.tune(cache, checkpoint)?;
    let started = Instant::now();
    bare.upsert(&timers, per_transaction, bench.now())?;
    Ok(rate(rows, started.elapsed()))
}
