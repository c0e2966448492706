//! S4: how late timers fire under a steady load, next to a bare sleep of the runtime's.

use std::sync::Arc;
use std::time::Duration;

use super::TENANTS;
use crate::databases::Recipe;
use crate::lateness::{Steady, percentile};
use crate::ours::each;
use crate::report::{Measure, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "lateness at 1 000 timers a second";

const PER_SECOND: u32 = 1_000;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let pending = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let lasts = Duration::from_secs(bench.size(8, 3) as u64);
    let sides = bench.in_turns(3, 2, |bench, side| match side {
        0 => fire(bench, pending, lasts),
        _ => sleep(bench, lasts),
    })?;
    let on = format!(
        "{PER_SECOND} a second for {} s a round, {} pending, while as many are scheduled one by \
         one at FULL; bare is a tokio sleep for each and no database",
        lasts.as_secs(),
        grouped(pending.rows)
    );
    let of = |side: usize, part| Rounds::of(&sides[side], |sorted| percentile(sorted, part));
    let measure = |what: &str, part| {
        let what = format!("lateness, {what}");
        Outcome::Ok(Measure::of(what, Unit::Milliseconds, &of(0, part)?, &on))
    };
    let measures = vec![
        measure("p99 over that of a bare sleep", 0.99)?
            .over(&of(1, 0.99)?)?
            .at_most(1.0),
        measure("p50 ÷ that of a bare sleep", 0.5)?
            .ratio_to(&of(1, 0.5)?)?
            .at_most(1.0),
        measure("the latest ÷ that of bare sleeps", 1.0)?.ratio_to(&of(1, 1.0)?)?,
    ];
    bench.plots.lateness = Some((sides[0].concat(), sides[1].concat()));
    Ok(measures)
}

fn fire(bench: &mut Bench, pending: Recipe, lasts: Duration) -> Outcome<Vec<f64>> {
    let copy = bench.copy(pending)?;
    let rows = bench.rows(pending.tenants)?;
    let steady = Steady::new(PER_SECOND, lasts);
    let noting = Arc::clone(&steady.lateness);
    let handler = each(move |envelope| _ = noting.note_event(envelope));
    bench.with_ours(&copy, async |ours| {
        steady.fire(ours, rows, handler).await?.stop().await
    })?;
    steady.sorted()
}

fn sleep(bench: &mut Bench, lasts: Duration) -> Outcome<Vec<f64>> {
    let rows = bench.rows(TENANTS)?;
    let steady = Steady::new(PER_SECOND, lasts);
    let sleeping = steady.load.sleep(rows, &steady.lateness);
    bench.runtime.block_on(sleeping)?;
    steady.sorted()
}
