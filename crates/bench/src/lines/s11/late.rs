//! Lateness: of an instance's own timers, of another instance's, and while somebody holds a snapshot.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_postgres::{PostgresTimerStore, Role};
use punctual_workflows::WorkerSettings;

use super::super::s3;
use super::{backlog, onto};
use crate::databases::Recipe;
use crate::lateness::{Steady, percentile};
use crate::ours::{Ours, each};
use crate::postgres::{Database, Layout};
use crate::report::{Measure, Unit};
use crate::rows::Rows;
use crate::stats::{Rounds, float};
use crate::turns::Bench;
use crate::{Outcome, grouped};

const PER_SECOND: u32 = 1_000;
/// So few that the instance that fires is asleep when another one schedules.
const FEW_PER_SECOND: u32 = 25;
/// Sooner than anybody polls by himself.
const SOON: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(200));

/// How late each was, and how many bytes of log were written for a timer that is scheduled and fires.
type Found = (Vec<f64>, f64);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = backlog(bench);
    let lasts = Duration::from_secs(bench.size(8, 3) as u64);
    let rounds = bench.size(3, 1);
    let sides = bench.in_turns(rounds, 5, |bench, side| match side {
        0 => fire(bench, recipe, lasts, false),
        1 => sleep(bench, recipe, lasts),
        2 => across(bench, recipe, || Steady::new(PER_SECOND, lasts)),
        3 => across(bench, recipe, || {
            Steady::ahead(FEW_PER_SECOND, 2 * lasts, SOON)
        }),
        _ => fire(bench, recipe, lasts, true),
    })?;
    let on = format!(
        "{PER_SECOND} a second for {} s a round, as many scheduled one by one, {} just fired, on {}; bare is a tokio sleep for each and no database",
        lasts.as_secs(),
        grouped(recipe.due),
        onto(recipe)
    );
    let of =
        |side: usize, part| Rounds::of(&sides[side], |found: &Found| percentile(&found.0, part));
    let log = |side: usize| Rounds::of(&sides[side], |found: &Found| Ok(found.1));
    let measure = |what: &str, side: usize, part, on: &str| {
        let what = format!("lateness, {what}");
        Outcome::Ok(Measure::of(what, Unit::Milliseconds, &of(side, part)?, on))
    };
    let few = format!(
        "{FEW_PER_SECOND} a second, 100 to 200 ms ahead, by an instance that does not fire; {}",
        onto(recipe)
    );
    let held = format!("{on}; bare is the same without the snapshot");
    Ok(vec![
        measure("p99 over that of a bare sleep", 0, 0.99, &on)?
            .over(&of(1, 0.99)?)?
            .at_most(4.0),
        measure("p50 over that of a bare sleep", 0, 0.5, &on)?.over(&of(1, 0.5)?)?,
        measure("the latest over that of bare sleeps", 0, 1.0, &on)?.over(&of(1, 1.0)?)?,
        measure(
            "across instances, p99 over that of a bare sleep",
            2,
            0.99,
            &on,
        )?
        .over(&of(1, 0.99)?)?
        .at_most(9.0),
        measure(
            "across instances, few and soon, p99 over that of a bare sleep",
            3,
            0.99,
            &few,
        )?
        .over(&of(1, 0.99)?)?
        .at_most(9.0),
        measure("across instances, few and soon, p50", 3, 0.5, &few)?.over(&of(1, 0.5)?)?,
        measure("under a held xmin, p50 over that without", 4, 0.5, &held)?
            .over(&of(0, 0.5)?)?
            .at_most(0.5),
        measure("under a held xmin, p99 over that without", 4, 0.99, &held)?.over(&of(0, 0.99)?)?,
        Measure::of(
            "log of a schedule and its firing, under a steady load",
            Unit::Bytes,
            &log(0)?,
            &on,
        ),
    ])
}

/// One instance that schedules and fires; a backlog was fired just before, and if somebody holds a snapshot
/// its rows cannot be removed.
fn fire(bench: &mut Bench, recipe: Recipe, lasts: Duration, is_held: bool) -> Outcome<Found> {
    let rows = bench.rows(recipe.tenants)?;
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let holder = database.connect().await?;
        if is_held {
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM timer_claims";
            holder.batch_execute(hold).await?;
        }
        let ours = database.ours().await?;
        ours.fire(recipe.due, s3::draining()).await?;
        let steady = Steady::new(PER_SECOND, lasts);
        let found = noted(database, &steady, &ours, &ours, rows).await?;
        ours.close().await;
        drop(holder);
        Ok(found)
    })
}

/// One instance schedules, and another one fires.
fn across(bench: &mut Bench, recipe: Recipe, steady: impl Fn() -> Steady) -> Outcome<Found> {
    let rows = bench.rows(recipe.tenants)?;
    let clock = bench.clock.clone();
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let firing = database.ours().await?;
        firing.fire(recipe.due, s3::draining()).await?;
        let scheduling = Ours::on(database.open(Role::Client).await?, &clock);
        let found = noted(database, &steady(), &firing, &scheduling, rows).await?;
        scheduling.close().await;
        firing.close().await;
        Ok(found)
    })
}

async fn noted(
    database: &Database,
    steady: &Steady,
    firing: &Ours<PostgresTimerStore>,
    scheduling: &Ours<PostgresTimerStore>,
    rows: Rows,
) -> Outcome<Found> {
    let noting = Arc::clone(&steady.lateness);
    let handler = each(move |envelope| _ = noting.note_event(envelope));
    let before = database.used().await?;
    let running = firing.run(WorkerSettings::default(), handler).await?;
    steady.schedule(&scheduling.scheduling(), rows).await?;
    running.stop().await?;
    let cost = database.used_since(&before).await?;
    let count = steady.load.lasts.as_secs_f64() * f64::from(steady.load.per_second);
    Ok((steady.sorted()?, float(cost.records) / count))
}

fn sleep(bench: &mut Bench, recipe: Recipe, lasts: Duration) -> Outcome<Found> {
    let rows = bench.rows(recipe.tenants)?;
    let steady = Steady::new(PER_SECOND, lasts);
    let sleeping = steady.load.sleep(rows, &steady.lateness);
    bench.runtime.block_on(sleeping)?;
    Ok((steady.sorted()?, 0.0))
}
