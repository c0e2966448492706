//! What a poll, a schedule and a firing cost on files of different sizes. For the plot; it has no
//! target of its own.

use std::time::{Duration, Instant};

use punctual_adapters_sqlite::Synchronous;
use punctual_ports::TimerQueuePort;

use super::{Line, TENANTS, s3};
use crate::bare::Bare;
use crate::databases::Recipe;
use crate::ours::Ours;
use crate::plots::Cost;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "SIZES",
    what: "a poll, a schedule and a firing on files of different sizes",
    run,
};

const CALLERS: usize = 64;
const POLLS: usize = 500;
const LEASE: Duration = Duration::from_secs(30);
/// So long ago that nothing was due.
const LONG_AGO: Duration = Duration::from_hours(24);
const WHAT: [&str; 3] = [
    "firing a timer of a backlog",
    "scheduling one, by 64 callers at once",
    "a poll with nothing due",
];

/// Microseconds for each of the three.
type Prices = [f64; 3];

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let large = s3::backlog(bench);
    let middle = bench.size(100_000, 50_000);
    let recipes = [10_000, middle, large.rows].map(|rows| Recipe {
        rows,
        due: rows / 10,
        ..large
    });
    let rounds = bench.size(3, 1);
    let mut ours: Vec<Vec<Prices>> = vec![Vec::new(); recipes.len()];
    let mut bare = ours.clone();
    for round in 0..rounds {
        for step in 0..recipes.len() {
            let place = (round + step) % recipes.len();
            ours[place].push(our_prices(bench, recipes[place])?);
            bare[place].push(bare_prices(bench, recipes[place])?);
        }
    }
    let mut measures = Vec::new();
    bench.plots.costs.clear();
    for (thing, what) in WHAT.into_iter().enumerate() {
        let mut points = Vec::new();
        for (place, recipe) in recipes.iter().enumerate() {
            let rounds = |prices: &[Prices]| {
                let values = prices.iter().map(|prices| prices[thing]).collect();
                Rounds::new(values).ok_or("rounds are missing")
            };
            let (ours, bare) = (rounds(&ours[place])?, rounds(&bare[place])?);
            points.push((recipe.rows, ours.median(), bare.median()));
            measures.push(Measure {
                line: LINE.name,
                what: format!("{what}, on {} rows", grouped(recipe.rows)),
                unit: Unit::Microseconds,
                figure: ours.ratio(&bare).ok_or("rounds are missing")?,
                ours,
                bare: Some(bare),
                figure_unit: Unit::Times,
                target: Target::None,
                on: format!("{TENANTS} tenants, a tenth of the rows overdue, synchronous FULL"),
            });
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
    let copy = bench.copy(recipe)?;
    let timers = bench.rows(recipe.tenants)?.many_pending(amount(recipe));
    let long_ago = bench.now().saturating_sub(LONG_AGO);
    bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        let started = Instant::now();
        for _ in 0..POLLS {
            let batch = ours.store.claim_due(long_ago, 100, LEASE).await?;
            if !batch.claims.is_empty() {
                return Err("a poll that should have found nothing due went otherwise".into());
            }
        }
        let poll = micros(POLLS, started.elapsed());
        let scheduled = ours.schedule_one_by_one(timers, CALLERS).await?;
        let firing = ours.fire(amount(recipe), s3::draining()).await?;
        ours.close().await;
        Ok([
            micros(firing.handled, firing.took),
            micros(amount(recipe), scheduled),
            poll,
        ])
    })
}

fn bare_prices(bench: &mut Bench, recipe: Recipe) -> Outcome<Prices> {
    let copy = bench.copy(recipe)?;
    let timers = bench.rows(recipe.tenants)?.many_pending(amount(recipe));
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    let started = Instant::now();
    for _ in 0..POLLS {
        bare.poll()?.ok_or("the bare poll found nothing")?;
    }
    let poll = micros(POLLS, started.elapsed());
    let started = Instant::now();
    bare.upsert(&timers, CALLERS, bench.now())?;
    let scheduled = micros(timers.len(), started.elapsed());
    let started = Instant::now();
    let (mut left, now) = (amount(recipe), bench.now());
    let drained = bare.drain_while(s3::BATCH, now, |due| {
        let goes_on = left > 0;
        left = left.saturating_sub(due);
        goes_on
    })?;
    Ok([micros(drained, started.elapsed()), scheduled, poll])
}

fn micros(count: usize, took: Duration) -> f64 {
    1e6 / rate(count, took)
}
