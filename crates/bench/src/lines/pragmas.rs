//! PRAGMAS: why the store's page cache and checkpoints are as they are. Measured on the bare loop,
//! so that nothing but SQLite is compared; only run when it is named.

use std::time::Instant;

use punctual_adapters_sqlite::Synchronous;

use super::{Line, TENANTS, s3};
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "PRAGMAS",
    what: "the bare loop under other pragmas",
    run,
};

const PER_TRANSACTION: usize = 64;

/// What is varied: the page cache in MiB, and after how many pages the log is folded in.
#[derive(Clone, Copy)]
struct Tuning {
    cache: i64,
    checkpoint: i64,
}

const OURS: Tuning = Tuning {
    cache: 16,
    checkpoint: 10_000,
};
const SQLITES_OWN: Tuning = Tuning {
    cache: 2,
    checkpoint: 1_000,
};

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let rows = bench.size(20_000, 6_400);
    let [ours, defaults, small_cache, large_cache, often] = bench.take_turns(
        3,
        [
            &|bench| stored(bench, recipe, rows, OURS),
            &|bench| stored(bench, recipe, rows, SQLITES_OWN),
            &|bench| stored(bench, recipe, rows, Tuning { cache: 2, ..OURS }),
            &|bench| stored(bench, recipe, rows, Tuning { cache: 64, ..OURS }),
            &|bench| {
                let often = Tuning {
                    checkpoint: 1_000,
                    ..OURS
                };
                stored(bench, recipe, rows, often)
            },
        ],
    )?;
    let against = |what: &str, other: &Rounds| {
        Outcome::Ok(Measure {
            line: LINE.name,
            what: format!("16 MiB and 10 000 pages ÷ {what}"),
            unit: Unit::PerSecond,
            ours: ours.clone(),
            bare: Some(other.clone()),
            figure: ours.ratio(other).ok_or("rounds are missing")?,
            figure_unit: Unit::Times,
            target: Target::None,
            on: format!(
                "{} rows, {PER_TRANSACTION} a transaction, onto {} rows, {TENANTS} tenants, \
                 synchronous FULL, the bare loop on both sides",
                grouped(rows),
                grouped(recipe.rows)
            ),
        })
    };
    Ok(vec![
        against("SQLite's own 2 MiB and 1 000 pages", &defaults)?,
        against("a cache of 2 MiB", &small_cache)?,
        against("a cache of 64 MiB", &large_cache)?,
        against("a checkpoint every 1 000 pages", &often)?,
    ])
}

fn stored(bench: &mut Bench, recipe: Recipe, rows: usize, tuning: Tuning) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let timers = bench.rows(recipe.tenants)?.many_pending(rows);
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    bare.tune(tuning.cache, tuning.checkpoint)?;
    let begun = Instant::now();
    bare.upsert(&timers, PER_TRANSACTION, bench.now())?;
    Ok(rate(rows, begun.elapsed()))
}
