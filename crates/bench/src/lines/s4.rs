//! S4: how late timers fire under a steady load, next to a bare sleep of the runtime's.

use std::sync::Arc;
use std::time::Duration;

use super::TENANTS;
use crate::databases::Recipe;
use crate::lateness::{Steady, percentile};
use crate::ours::each;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};

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
    let sides_at = |part| Outcome::Ok((of(0, part)?, of(1, part)?));
    let (p99, p50, most) = (sides_at(0.99)?, sides_at(0.5)?, sides_at(1.0)?);
    let (ms, one) = (Unit::Milliseconds, Target::AtMost(1.0));
    let what = |what: &str| format!("lateness, {what}");
    let measures = vec![
        Measure::over(
            what("p99 over that of a bare sleep"),
            ms,
            (&p99.0, &p99.1),
            one,
            &on,
        )?,
        Measure::ratio(
            what("p50 ÷ that of a bare sleep"),
            ms,
            (&p50.0, &p50.1),
            one,
            &on,
        )?,
        Measure::ratio(
            what("the latest ÷ that of bare sleeps"),
            ms,
            (&most.0, &most.1),
            Target::None,
            &on,
        )?,
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
