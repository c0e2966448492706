//! S5: a poll of the store when nothing is due costs the same, however much is pending.

use std::time::{Duration, Instant};

use punctual_adapters_sqlite::Synchronous;
use punctual_ports::TimerQueuePort;

use super::Line;
use crate::bare::Bare;
use crate::databases::{Copy, Filling, Recipe};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "S5",
    what: "one poll with nothing due",
    run,
};

const LIMIT: usize = 100;
const LEASE: Duration = Duration::from_secs(30);
/// Number of polls whose mean is one sample: a single one is shorter than a context switch.
const POLLS: usize = 200;

/// One file, open for both sides.
struct Pending {
    recipe: Recipe,
    ours: Ours,
    bare: Bare,
    _copy: Copy,
}

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let (small, large) = (10_000, bench.size(1_000_000, 200_000));
    let tenants = 10_000;
    let recipes = [(small, 1), (small, tenants), (large, 1), (large, tenants)];
    let samples = bench.size(31, 15);
    let mut files = Vec::new();
    for (rows, tenants) in recipes {
        let recipe = Recipe {
            filling: Filling::Bulk,
            ..Recipe::pending(rows, tenants)
        };
        files.push(open(bench, recipe)?);
    }
    let mut ours = vec![Vec::new(); files.len()];
    let mut bare = vec![Vec::new(); files.len()];
    for round in 0..samples {
        for step in 0..files.len() {
            let place = (round + step) % files.len();
            let file = &files[place];
            ours[place].push(bench.runtime.block_on(poll_ours(bench, file))?);
            bare[place].push(poll_bare(file)?);
        }
    }
    let mut measures = vec![flatness(&ours, &bare, large, samples)?];
    for (place, file) in files.iter().enumerate() {
        measures.push(single(file, &ours[place], &bare[place])?);
    }
    for file in files {
        bench.runtime.block_on(file.ours.close());
    }
    Ok(measures)
}

fn open(bench: &mut Bench, recipe: Recipe) -> Outcome<Pending> {
    let copy = bench.copy(recipe)?;
    let clock = bench.clock.clone();
    let ours = bench
        .runtime
        .block_on(async { Ours::open(&copy.path(), &clock) })?;
    Ok(Pending {
        recipe,
        ours,
        bare: Bare::open(&copy.path(), Synchronous::Full)?,
        _copy: copy,
    })
}

async fn poll_ours(bench: &Bench, file: &Pending) -> Outcome<f64> {
    let now = bench.now();
    let started = Instant::now();
    for _ in 0..POLLS {
        let batch = file.ours.store.claim_due(now, LIMIT, LEASE).await?;
        if !batch.claims.is_empty() || batch.next_due_at.is_none() {
            return Err("a poll that should have found nothing due went otherwise".into());
        }
    }
    Ok(micros_each(started.elapsed()))
}

fn poll_bare(file: &Pending) -> Outcome<f64> {
    let started = Instant::now();
    for _ in 0..POLLS {
        file.bare.poll()?.ok_or("the bare poll found nothing")?;
    }
    Ok(micros_each(started.elapsed()))
}

fn micros_each(took: Duration) -> f64 {
    1e6 / rate(POLLS, took)
}

/// The slowest file against the fastest, by their medians.
fn flatness(
    ours: &[Vec<f64>],
    bare: &[Vec<f64>],
    large: usize,
    samples: usize,
) -> Outcome<Measure> {
    let medians = |side: &[Vec<f64>]| {
        let medians = side.iter().map(|values| Rounds::new(values.clone()));
        let medians: Option<Vec<f64>> = medians.map(|it| it.map(|it| it.median())).collect();
        medians.and_then(Rounds::new).ok_or("a poll took no time")
    };
    let (ours, bare) = (medians(ours)?, medians(bare)?);
    let figure = Rounds::new(vec![ours.max() / ours.min()]).ok_or("a poll took no time")?;
    Ok(Measure {
        line: LINE.name,
        what: "slowest ÷ fastest of four files (medians)".to_owned(),
        unit: Unit::Microseconds,
        ours,
        bare: Some(bare),
        figure,
        figure_unit: Unit::Times,
        target: Target::AtMost(1.2),
        on: format!(
            "10 000 and {} pending, of 1 and of 10 000 tenants, {samples} samples of {POLLS} polls \
             each",
            grouped(large)
        ),
    })
}

fn single(file: &Pending, ours: &[f64], bare: &[f64]) -> Outcome<Measure> {
    let rounds = |values: &[f64]| Rounds::new(values.to_vec()).ok_or("a poll took no time");
    let (ours, bare) = (rounds(ours)?, rounds(bare)?);
    Ok(Measure {
        line: LINE.name,
        what: format!(
            "one poll, {} pending of {} tenants",
            grouped(file.recipe.rows),
            grouped(file.recipe.tenants)
        ),
        unit: Unit::Microseconds,
        figure: ours.ratio(&bare).ok_or("rounds are missing")?,
        ours,
        bare: Some(bare),
        figure_unit: Unit::Times,
        target: Target::None,
        on: format!("a bare poll is one prepared SELECT; {POLLS} polls a sample"),
    })
}
