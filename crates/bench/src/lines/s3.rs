//! S3: working off a backlog, from the claim through the handler to the mark.

use std::time::Instant;

use punctual_adapters_sqlite::Synchronous;
use punctual_workflows::WorkerSettings;

use super::{Line, TENANTS};
use crate::bare::Bare;
use crate::databases::{Filling, Owner, Recipe};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "S3",
    what: "draining a backlog: claim, handler, mark",
    run,
};

pub(super) const BATCH: usize = 1_000;

/// A file with a backlog. S13 starts on it too.
pub(super) fn backlog(bench: &Bench) -> Recipe {
    Recipe {
        rows: bench.size(1_000_000, 200_000),
        tenants: TENANTS,
        due: bench.size(100_000, 20_000),
        filling: Filling::RowByRow,
        owner: Owner::Any,
    }
}

/// How a worker is set that has much to do.
pub(super) fn draining() -> WorkerSettings {
    WorkerSettings {
        batch_size: BATCH,
        max_in_flight: 4 * BATCH,
        ..WorkerSettings::default()
    }
}

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = backlog(bench);
    let rounds = bench.size(5, 3);
    let [ours, bare] = bench.take_turns(
        rounds,
        [&|bench| ours(bench, recipe), &|bench| bare(bench, recipe)],
    )?;
    Ok(vec![Measure {
        line: LINE.name,
        what: "worker ÷ bare, select 1 000 and update 1 000 in a transaction".to_owned(),
        unit: Unit::PerSecond,
        figure: ours.ratio(&bare).ok_or("rounds are missing")?,
        ours,
        bare: Some(bare),
        figure_unit: Unit::Times,
        target: Target::AtLeast(1.0),
        on: format!(
            "{} due of {} rows, {TENANTS} tenants, synchronous FULL",
            grouped(recipe.due),
            grouped(recipe.rows)
        ),
    }])
}

/// The worker with a handler in process.
pub(super) fn ours(bench: &mut Bench, recipe: Recipe) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let firing = bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        let firing = ours.fire(recipe.due, draining()).await?;
        ours.close().await;
        Outcome::Ok(firing)
    })?;
    let marked = Bare::open(&copy.path(), Synchronous::Full)?.count("Reached")?;
    if marked != recipe.due || firing.handled != recipe.due {
        return Err(format!(
            "of {} due timers {} were handled and {marked} marked",
            recipe.due, firing.handled
        )
        .into());
    }
    Ok(rate(recipe.due, firing.took))
}

fn bare(bench: &mut Bench, recipe: Recipe) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    let mut handled = 0_usize;
    let started = Instant::now();
    let marked = bare.drain(BATCH, bench.now(), || handled += 1)?;
    let took = started.elapsed();
    if marked != recipe.due || handled != recipe.due {
        return Err(format!("the bare loop marked {marked} of {} due timers", recipe.due).into());
    }
    Ok(rate(recipe.due, took))
}
