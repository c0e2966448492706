//! S3: working off a backlog, from the claim through the handler to the mark.

use std::time::Instant;

use punctual_workflows::WorkerSettings;

use super::TENANTS;
use crate::bare::Bare;
use crate::databases::{Copy, Recipe};
use crate::report::{Measure, Unit};
use crate::stats::rate;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "draining a backlog: claim, handler, mark";

pub(super) const BATCH: usize = 1_000;

/// A file with a backlog. S13 starts on it too.
pub(super) fn backlog(bench: &Bench) -> Recipe {
    Recipe {
        due: bench.size(100_000, 20_000),
        ..Recipe::pending(bench.size(1_000_000, 200_000), TENANTS)
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

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = backlog(bench);
    let rounds = bench.size(5, 3);
    let [ours, bare] = bench.take_turns(
        rounds,
        [&|bench| ours(bench, recipe), &|bench| bare(bench, recipe)],
    )?;
    let what = "worker ÷ bare, select 1 000 and update 1 000 in a transaction";
    let on = format!("{}, synchronous FULL", due_of(recipe));
    let measure = Measure::of(what, Unit::PerSecond, &ours, &on);
    Ok(vec![measure.ratio_to(&bare)?.at_least(1.0)])
}

/// How much of a file is due.
pub(super) fn due_of(recipe: Recipe) -> String {
    format!(
        "{} due of {} rows, {TENANTS} tenants",
        grouped(recipe.due),
        grouped(recipe.rows)
    )
}

/// The worker with a handler in process.
pub(super) fn ours(bench: &mut Bench, recipe: Recipe) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let firing = bench.with_ours(&copy, async |ours| ours.fire(recipe.due, draining()).await)?;
    all_marked(&copy, recipe, firing.handled)?;
    Ok(rate(recipe.due, firing.took))
}

/// Fails unless everything that was due was handled, and is marked.
pub(super) fn all_marked(copy: &Copy, recipe: Recipe, handled: usize) -> Outcome<()> {
    let (due, marked) = (recipe.due, Bare::open(&copy.path())?.count("Reached")?);
    if marked == due && handled == due {
        return Ok(());
    }
    Err(format!("of {due} due timers {handled} were handled and {marked} marked").into())
}

fn bare(bench: &mut Bench, recipe: Recipe) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let mut bare = Bare::open(&copy.path())?;
    let mut handled = 0_usize;
    let started = Instant::now();
    bare.drain(BATCH, bench.now(), |due| {
        (0..due).for_each(|_| handled += 1);
        true
    })?;
    let took = started.elapsed();
    all_marked(&copy, recipe, handled)?;
    Ok(rate(recipe.due, took))
}
