//! S4: how late timers fire under a steady load, next to a bare sleep of the runtime's.

use std::time::Duration;

use punctual_workflows::{WorkerSettings, handler_fn};

use super::{Line, TENANTS};
use crate::databases::Recipe;
use crate::lateness::{Lateness, Load, percentile};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};
use punctual_ports::Answer;

pub(crate) const LINE: Line = Line {
    name: "S4",
    what: "lateness at 1 000 timers a second",
    run,
};

const PER_SECOND: u32 = 1_000;
/// Before this, what fires was not scheduled under the full load.
const WARM_UP: Duration = Duration::from_secs(2);
const AHEAD: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1_500));

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let pending = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let rounds = 3;
    let lasts = Duration::from_secs(bench.size(8, 3) as u64);
    let (mut ours, mut bare) = (Sides::default(), Sides::default());
    for round in 0..rounds {
        for step in 0..2 {
            if (round + step) % 2 == 0 {
                ours.add(fire(bench, pending, lasts)?)?;
            } else {
                bare.add(sleep(bench, lasts)?)?;
            }
        }
    }
    let on = format!(
        "{PER_SECOND} a second for {} s a round, {} pending, while as many are scheduled one by \
         one at FULL; bare is a tokio sleep for each and no database",
        lasts.as_secs(),
        grouped(pending.rows)
    );
    let measures = vec![
        measure("p99", &ours.p99, &bare.p99, Compare::Over(1.0), &on)?,
        measure("p50", &ours.p50, &bare.p50, Compare::Share(1.0), &on)?,
        measure("the latest", &ours.most, &bare.most, Compare::Nothing, &on)?,
    ];
    bench.plots.lateness = Some((ours.all, bare.all));
    Ok(measures)
}

/// The rounds of one side.
#[derive(Default)]
struct Sides {
    p50: Vec<f64>,
    p99: Vec<f64>,
    most: Vec<f64>,
    all: Vec<f64>,
}

impl Sides {
    fn add(&mut self, sorted: Vec<f64>) -> Outcome<()> {
        self.p50.push(percentile(&sorted, 0.5)?);
        self.p99.push(percentile(&sorted, 0.99)?);
        self.most.push(percentile(&sorted, 1.0)?);
        self.all.extend(sorted);
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Compare {
    /// Maximum milliseconds over the bare sleep.
    Over(f64),
    /// Maximum multiple of the bare sleep.
    Share(f64),
    Nothing,
}

fn measure(what: &str, ours: &[f64], bare: &[f64], compare: Compare, on: &str) -> Outcome<Measure> {
    let rounds = |values: &[f64]| Rounds::new(values.to_vec()).ok_or("rounds are missing");
    let (ours, bare) = (rounds(ours)?, rounds(bare)?);
    let (figure, figure_unit, target, how) = match compare {
        Compare::Over(most) => (
            ours.against(&bare, |ours, bare| ours - bare),
            Unit::Milliseconds,
            Target::AtMost(most),
            "over that of a bare sleep",
        ),
        Compare::Share(most) => (
            ours.ratio(&bare),
            Unit::Times,
            Target::AtMost(most),
            "÷ that of a bare sleep",
        ),
        Compare::Nothing => (
            ours.ratio(&bare),
            Unit::Times,
            Target::None,
            "÷ that of bare sleeps",
        ),
    };
    Ok(Measure {
        line: LINE.name,
        what: format!("lateness, {what} {how}"),
        unit: Unit::Milliseconds,
        figure: figure.ok_or("rounds are missing")?,
        ours,
        bare: Some(bare),
        figure_unit,
        target,
        on: on.to_owned(),
    })
}

fn load(lasts: Duration) -> Load {
    Load {
        per_second: PER_SECOND,
        lasts: WARM_UP + lasts + AHEAD.1,
        ahead: AHEAD,
    }
}

fn counted(bench: &Bench, lasts: Duration) -> std::sync::Arc<Lateness> {
    let from = bench.now().saturating_add(WARM_UP);
    Lateness::of(from, from.saturating_add(lasts))
}

fn fire(bench: &mut Bench, pending: Recipe, lasts: Duration) -> Outcome<Vec<f64>> {
    let copy = bench.copy(pending)?;
    let rows = bench.rows(pending.tenants)?;
    let lateness = counted(bench, lasts);
    let noting = std::sync::Arc::clone(&lateness);
    let handler = handler_fn(move |envelope| {
        noting.note_event(&envelope);
        async { Answer::Done }
    });
    bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        let running = ours.run(WorkerSettings::default(), handler).await?;
        load(lasts).schedule(&ours.scheduling(), rows).await?;
        tokio::time::sleep(AHEAD.1).await;
        running.stop().await?;
        ours.close().await;
        Outcome::Ok(())
    })?;
    all_there(&lateness, lasts)
}

fn sleep(bench: &mut Bench, lasts: Duration) -> Outcome<Vec<f64>> {
    let rows = bench.rows(TENANTS)?;
    let lateness = counted(bench, lasts);
    bench.runtime.block_on(load(lasts).sleep(rows, &lateness))?;
    all_there(&lateness, lasts)
}

/// Whether about as many fired as were to: the load is random within each second.
fn all_there(lateness: &Lateness, lasts: Duration) -> Outcome<Vec<f64>> {
    let wanted = lasts.as_secs_f64() * f64::from(PER_SECOND);
    let fired = f64::from(u32::try_from(lateness.count())?);
    if (fired / wanted - 1.0).abs() > 0.1 {
        return Err(format!("{fired} timers fired where {wanted} were to").into());
    }
    lateness.sorted()
}
