//! What a poll, a schedule and a firing cost on files of different sizes. For the plot; it has no
//! target of its own.

use std::time::{Duration, Instant};

use super::{TENANTS, s3, s5};
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::plots::Cost;
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, micros};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "a poll, a schedule and a firing on files of different sizes";

const CALLERS: usize = 64;
const POLLS: usize = 500;
/// So long ago that nothing was due.
const LONG_AGO: Duration = Duration::from_hours(24);
const THINGS: [&str; 3] = [
    "firing a timer of a backlog",
    "scheduling one, by 64 callers at once",
    "a poll with nothing due",
];

/// Microseconds for each of the three.
type Prices = [f64; 3];

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let large = s3::backlog(bench);
    let middle = bench.size(100_000, 50_000);
    let recipes = [10_000, middle, large.rows].map(|rows| Recipe {
        rows,
        due: rows / 10,
        ..large
    });
    let rounds = bench.size(3, 1);
    let found = bench.in_turns(rounds, recipes.len(), |bench, place| {
        let recipe = recipes[place];
        Ok([our_prices(bench, recipe)?, bare_prices(bench, recipe)?])
    })?;
    let mut measures = Vec::new();
    bench.plots.costs.clear();
    for (thing, what) in THINGS.into_iter().enumerate() {
        let mut points = Vec::new();
        for (recipe, rounds) in recipes.iter().zip(&found) {
            let of =
                |side: usize| Rounds::of(rounds, |prices: &[Prices; 2]| Ok(prices[side][thing]));
            let (ours, bare) = (of(0)?, of(1)?);
            points.push((recipe.rows, ours.median(), bare.median()));
            let what = format!("{what}, on {} rows", grouped(recipe.rows));
            let on = format!("{TENANTS} tenants, a tenth of the rows overdue, synchronous FULL");
            measures.push(Measure::of(what, Unit::Microseconds, &ours, &on).ratio_to(&bare)?);
        }
        bench.plots.costs.push(Cost { what, points });
    }
    Ok(measures)
}

/// How many are fired and scheduled.
fn amount(recipe: Recipe) -> usize {
    recipe.due.min(10_000)
}

fn our_prices(bench: &mut Bench, recipe: Recipe) -> Outcome<Prices> {
    let (copy, timers) = bench.copy_and_timers(recipe, amount(recipe))?;
    let long_ago = bench.now().saturating_sub(LONG_AGO);
    bench.with_ours(&copy, async |ours| {
        let poll = s5::poll(ours, long_ago, POLLS).await?;
        let scheduled = ours.schedule(timers, 1, CALLERS).await?;
        let firing = ours.fire(amount(recipe), s3::draining()).await?;
        Ok([
            micros(firing.handled, firing.took),
            micros(amount(recipe), scheduled),
            poll,
        ])
    })
}

fn bare_prices(bench: &mut Bench, recipe: Recipe) -> Outcome<Prices> {
    let (copy, timers) = bench.copy_and_timers(recipe, amount(recipe))?;
    let mut bare = Bare::open(&copy.path())?;
    let poll = s5::poll_bare(&bare, POLLS)?;
    let started = Instant::now();
    bare.upsert(&timers, CALLERS, bench.now())?;
    let scheduled = micros(timers.len(), started.elapsed());
    let started = Instant::now();
    let (mut left, now) = (amount(recipe), bench.now());
    let drained = bare.drain(s3::BATCH, now, |due| {
        let goes_on = left > 0;
        left = left.saturating_sub(due);
        goes_on
    })?;
    Ok([micros(drained, started.elapsed()), scheduled, poll])
}
