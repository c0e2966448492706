//! Firing: claims and marks by one process and by several, and what each writes to the log.

use std::time::Instant;

use super::super::s3;
use super::{Found, backlog, onto, rounds};
use crate::databases::Recipe;
use crate::postgres::{BarePostgres, Database, Layout, draining_processes};
use crate::report::{Measure, Unit};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = backlog(bench);
    let sides = bench.in_turns(bench.size(5, 3), 5, |bench, side| match side {
        0 => bare(bench, recipe),
        1 => processes(bench, recipe, 1),
        2 => processes(bench, recipe, 2),
        3 => processes(bench, recipe, 4),
        _ => worker(bench, recipe),
    })?;
    let on = format!(
        "{} due of {}; bare is one connection that selects 1 000 FOR UPDATE SKIP LOCKED and updates \
         them, on one table",
        grouped(recipe.due),
        onto(recipe)
    );
    let bare = rounds(&sides[0], |found| found.rate)?;
    let drained = |what: &str, side: usize| {
        let what = format!("claim + mark, {what} ÷ bare serial loop");
        let ours = rounds(&sides[side], |found| found.rate)?;
        Measure::of(what, Unit::PerSecond, &ours, &on).ratio_to(&bare)
    };
    let used = |what: &str, side: usize| {
        let what = format!("processor time of a firing, {what} ÷ bare serial loop");
        let of = |side: usize| rounds(&sides[side], |found| found.processor);
        Measure::of(what, Unit::Microseconds, &of(side)?, &on).ratio_to(&of(0)?)
    };
    let log = |what: &str, of: fn(&Found) -> f64| {
        let measure = Measure::of(what, Unit::Bytes, &rounds(&sides[1], of)?, &on);
        Outcome::Ok(measure.beside(&rounds(&sides[0], of)?))
    };
    Ok(vec![
        drained("1 process", 1)?.at_least(1.5),
        drained("2 processes", 2)?,
        drained("4 processes", 3)?.at_least(1.2),
        drained("whole worker with a handler in process", 4)?,
        used("1 process", 1)?,
        used("4 processes", 3)?,
        log("log of a firing", |found| found.records)?.at_most(500.0),
        log("the same, copies of pages after a checkpoint", |found| {
            found.full_pages
        })?,
    ])
}

/// The plain loop on one table.
fn bare(bench: &mut Bench, recipe: Recipe) -> Outcome<Found> {
    bench.on_postgres(recipe, Layout::OneTable, async |database| {
        let bare = BarePostgres::open(database).await?;
        let before = database.used().await?;
        let draining = tokio::spawn(async move {
            let started = Instant::now();
            let drained = bare.drain().await?;
            Outcome::Ok((started.elapsed(), drained))
        });
        let (took, drained) = draining.await??;
        if drained != recipe.due {
            return Err(format!("of {} due timers {drained} were marked", recipe.due).into());
        }
        Found::new(database, &before, recipe.due, took).await
    })
}

/// A number of processes of their own.
fn processes(bench: &mut Bench, recipe: Recipe, count: usize) -> Outcome<Found> {
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let before = database.used().await?;
        let (took, marked) = draining_processes(&database.url, count)?;
        let sum: usize = marked.iter().sum();
        if sum != recipe.due {
            return Err(format!("of {} due timers {sum} were marked", recipe.due).into());
        }
        all_fired(database, recipe).await?;
        Found::new(database, &before, recipe.due, took).await
    })
}

/// The worker with a handler in process.
fn worker(bench: &mut Bench, recipe: Recipe) -> Outcome<Found> {
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let ours = database.ours().await?;
        let before = database.used().await?;
        let firing = ours.fire(recipe.due, s3::draining()).await?;
        ours.close().await;
        all_fired(database, recipe).await?;
        Found::new(database, &before, recipe.due, firing.took).await
    })
}

/// Fails unless all that was due is marked, and nothing else.
async fn all_fired(database: &Database, recipe: Recipe) -> Outcome<()> {
    let fired = database
        .number("SELECT count(*) FROM timer_firings")
        .await?;
    let left = database.number("SELECT count(*) FROM timer_queue").await?;
    if usize::try_from(fired)? == recipe.due && usize::try_from(left)? == recipe.rows - recipe.due {
        return Ok(());
    }
    Err(format!("{fired} timers fired and {left} are left of {recipe:?}").into())
}
