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

/// The varied settings: the page cache in MiB, and the number of pages between checkpoints.
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

/// How many rows share a commit: as with many callers, and as with large batches.
const SIZES: [usize; 2] = [64, 1_000];

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let mut measures = Vec::new();
    for per_transaction in SIZES {
        measures.extend(compare(bench, per_transaction)?);
    }
    Ok(measures)
}

fn compare(bench: &mut Bench, per_transaction: usize) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let rows = bench.size(20_000, 8_000);
    let often = Tuning {
        checkpoint: 1_000,
        ..OURS
    };
    let work = |tuning| Work {
        recipe,
        rows,
        per_transaction,
        tuning,
    };
    let [ours, defaults, small_cache, large_cache, often] = bench.take_turns(
        3,
        [
            &|bench| stored(bench, work(OURS)),
            &|bench| stored(bench, work(SQLITES_OWN)),
            &|bench| stored(bench, work(Tuning { cache: 2, ..OURS })),
            &|bench| stored(bench, work(Tuning { cache: 64, ..OURS })),
            &|bench| stored(bench, work(often)),
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
                "{} rows, {per_transaction} a transaction, onto {} rows, {TENANTS} tenants, \
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

/// What is done under which pragmas.
#[derive(Clone, Copy)]
struct Work {
    recipe: Recipe,
    rows: usize,
    per_transaction: usize,
    tuning: Tuning,
}

fn stored(bench: &mut Bench, work: Work) -> Outcome<f64> {
    let copy = bench.copy(work.recipe)?;
    let timers = bench.rows(work.recipe.tenants)?.many_pending(work.rows);
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    bare.tune(work.tuning.cache, work.tuning.checkpoint)?;
    let started = Instant::now();
    bare.upsert(&timers, work.per_transaction, bench.now())?;
    Ok(rate(work.rows, started.elapsed()))
}
