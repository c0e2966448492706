//! S5: a poll of the store when nothing is due costs the same, however much is pending.

use std::time::{Duration, Instant};

use punctual_domain::Timestamp;
use punctual_ports::TimerQueuePort;

use crate::bare::Bare;
use crate::databases::{Copy, Filling, Recipe};
use crate::ours::Ours;
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, micros};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "one poll with nothing due";

const LIMIT: usize = 100;
const LEASE: Duration = Duration::from_secs(30);
/// Number of polls whose mean is one sample: a single one is shorter than a context switch.
const POLLS: usize = 200;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
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
    let found = bench.in_turns(samples, files.len(), |bench, place| {
        let Pending { ours, bare, .. } = &files[place];
        let ours = bench.runtime.block_on(poll(ours, bench.now(), POLLS))?;
        Ok([ours, poll_bare(bare, POLLS)?])
    })?;
    let side = |side: usize| {
        let of = |samples: &Vec<[f64; 2]>| Rounds::of(samples, |sides| Ok(sides[side]));
        found.iter().map(of).collect::<Outcome<Vec<_>>>()
    };
    let (ours, bare) = (side(0)?, side(1)?);
    let mut measures = vec![flatness(&ours, &bare, large, samples)?];
    for (file, (ours, bare)) in files.iter().zip(ours.iter().zip(&bare)) {
        let (rows, tenants) = (grouped(file.recipe.rows), grouped(file.recipe.tenants));
        let what = format!("one poll, {rows} pending of {tenants} tenants");
        let on = format!("a bare poll is one prepared SELECT; {POLLS} polls a sample");
        measures.push(Measure::of(what, Unit::Microseconds, ours, &on).ratio_to(bare)?);
    }
    for file in files {
        bench.runtime.block_on(file.ours.close());
    }
    Ok(measures)
}

/// One file, open for both sides.
struct Pending {
    recipe: Recipe,
    ours: Ours,
    bare: Bare,
    _copy: Copy,
}

fn open(bench: &mut Bench, recipe: Recipe) -> Outcome<Pending> {
    let copy = bench.copy(recipe)?;
    let opening = async { Ours::open(&copy.settings(), &bench.clock) };
    Ok(Pending {
        recipe,
        ours: bench.runtime.block_on(opening)?,
        bare: Bare::open(&copy.path())?,
        _copy: copy,
    })
}

/// Microseconds of a poll of ours that finds nothing due.
pub(super) async fn poll(ours: &Ours, now: Timestamp, polls: usize) -> Outcome<f64> {
    let started = Instant::now();
    for _ in 0..polls {
        let batch = ours.store.claim_due(now, LIMIT, LEASE).await?;
        if !batch.claims.is_empty() || batch.next_due_at.is_none() {
            return Err("a poll that should have found nothing due went otherwise".into());
        }
    }
    Ok(micros(polls, started.elapsed()))
}

/// Microseconds of a bare poll.
pub(super) fn poll_bare(bare: &Bare, polls: usize) -> Outcome<f64> {
    let started = Instant::now();
    for _ in 0..polls {
        bare.poll()?.ok_or("the bare poll found nothing")?;
    }
    Ok(micros(polls, started.elapsed()))
}

/// The slowest file against the fastest, by their medians.
fn flatness(ours: &[Rounds], bare: &[Rounds], large: usize, samples: usize) -> Outcome<Measure> {
    let medians = |side: &[Rounds]| Rounds::of(side, |rounds| Ok(rounds.median()));
    let ours = medians(ours)?;
    let flatness = Rounds::new(vec![ours.max() / ours.min()])?;
    let on = format!(
        "10 000 and {} pending, of 1 and of 10 000 tenants, {samples} samples of {POLLS} polls each",
        grouped(large)
    );
    let what = "slowest ÷ fastest of four files (medians)";
    let measure = Measure::of(what, Unit::Microseconds, &ours, &on).beside(&medians(bare)?);
    Ok(measure.with_figure(flatness, Unit::Times).at_most(1.2))
}
