//! Scheduling: many callers with one timer each, batches, other due times, and a pooler in between.

use std::time::{Duration, Instant};

use punctual_adapters_postgres::Role;
use punctual_ports::SaveOutcome;
use punctual_test_servers::PgBouncer;
use punctual_workflows::TimerRequest;

use super::{Found, backlog, onto, rounds};
use crate::databases::Recipe;
use crate::ours::Ours;
use crate::postgres::{BarePostgres, Database, Layout};
use crate::report::{Measure, Unit};
use crate::turns::Bench;
use crate::{Outcome, grouped};

const CALLERS: usize = 64;
const BATCH: usize = 1_000;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = backlog(bench);
    let few = bench.size(20_000, 6_400);
    let many = bench.size(50_000, 20_000);
    let sides = bench.in_turns(bench.size(5, 3), 7, |bench, side| match side {
        0 => ours(bench, recipe, few, (1, CALLERS)),
        1 => bare(bench, recipe, few, CALLERS),
        2 => ours(bench, recipe, many, (BATCH, 1)),
        3 => bare(bench, recipe, many, BATCH),
        4 => reschedule(bench, recipe, many),
        5 => reschedule_bare(bench, recipe, many),
        _ => pooled(bench, recipe, few),
    })?;
    let rate = |side: usize| rounds(&sides[side], |found| found.rate);
    let measure = |what: &str, side: usize, count: usize| {
        let on = format!("{} onto {}", grouped(count), onto(recipe));
        Outcome::Ok(Measure::of(what, Unit::PerSecond, &rate(side)?, &on))
    };
    let on = format!("onto {}", onto(recipe));
    let log = |what: &str, side: usize, of: fn(&Found) -> f64| {
        let measure = Measure::of(what, Unit::Bytes, &rounds(&sides[side], of)?, &on);
        measure.ratio_to(&rounds(&sides[side + 1], of)?)
    };
    let processor = |what: &str, side: usize| {
        let of = |side: usize| rounds(&sides[side], |found| found.processor);
        Measure::of(what, Unit::Microseconds, &of(side)?, &on).ratio_to(&of(side + 1)?)
    };
    let tasks = "schedule: 64 tasks ÷ bare unnest insert, 64 a transaction";
    let batches =
        "schedule: batches of 1 000, one caller ÷ bare unnest insert, 1 000 a transaction";
    let again = "reschedule: batches of 1 000, one caller ÷ bare update, 1 000 a transaction";
    let pooled = "schedule: 64 tasks through PgBouncer ÷ directly";
    let mut measures = vec![
        measure(tasks, 0, few)?.ratio_to(&rate(1)?)?.at_least(0.9),
        measure(batches, 2, many)?
            .ratio_to(&rate(3)?)?
            .at_least(0.7),
        measure(again, 4, many)?.ratio_to(&rate(5)?)?,
        processor("processor time of a schedule, 64 tasks", 0)?,
        processor("processor time of a schedule, batches of 1 000", 2)?,
        log("log of a schedule, 64 tasks", 0, |it| it.records)?,
        log("log of a schedule, batches of 1 000", 2, |it| it.records)?,
        log("the same, copies of pages after a checkpoint", 2, |it| {
            it.full_pages
        })?,
        log("log of a reschedule", 4, |it| it.records)?,
    ];
    if sides[6].iter().all(|found| found.rate > 0.0) {
        measures.push(measure(pooled, 6, few)?.ratio_to(&rate(0)?)?);
    }
    Ok(measures)
}

fn ours(
    bench: &mut Bench,
    recipe: Recipe,
    count: usize,
    (batch, callers): (usize, usize),
) -> Outcome<Found> {
    let timers = bench.rows(recipe.tenants)?.many_pending(count);
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let ours = database.ours().await?;
        // Connected before it is measured.
        let mut timers = timers;
        let warm = timers.split_off(timers.len() - timers.len() / 100);
        ours.schedule(warm, 1, CALLERS.min(callers * 2)).await?;
        logged(database, timers.len(), async {
            let took = ours.schedule(timers, batch, callers).await?;
            ours.close().await;
            Ok(took)
        })
        .await
    })
}

fn bare(bench: &mut Bench, recipe: Recipe, count: usize, batch: usize) -> Outcome<Found> {
    let timers = bench.rows(recipe.tenants)?.many_pending(count);
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let bare = BarePostgres::open(database).await?;
        let inserting = async move {
            let started = Instant::now();
            bare.insert(&timers, batch).await?;
            Outcome::Ok(started.elapsed())
        };
        logged(database, count, async { tokio::spawn(inserting).await? }).await
    })
}

/// The same through PgBouncer; zero if it is not installed.
fn pooled(bench: &mut Bench, recipe: Recipe, count: usize) -> Outcome<Found> {
    let timers = bench.rows(recipe.tenants)?.many_pending(count);
    let clock = bench.clock.clone();
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let Some(pooler) = PgBouncer::start(&database.url) else {
            return Ok(Found {
                rate: 0.0,
                processor: 0.0,
                records: 0.0,
                full_pages: 0.0,
            });
        };
        let store = database.at(pooler.url()).open(Role::Timer).await?;
        let ours = Ours::on(store, &clock);
        let mut timers = timers;
        let warm = timers.split_off(timers.len() - timers.len() / 100);
        ours.schedule(warm, 1, CALLERS).await?;
        let found = logged(database, timers.len(), ours.schedule(timers, 1, CALLERS)).await?;
        ours.close().await;
        Ok(found)
    })
}

fn reschedule(bench: &mut Bench, recipe: Recipe, count: usize) -> Outcome<Found> {
    let (timers, others) = twice(bench, recipe, count)?;
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let ours = database.ours().await?;
        ours.schedule(timers, BATCH, 1).await?;
        let scheduling = ours.scheduling();
        let moving = async move {
            let started = Instant::now();
            for batch in others.chunks(BATCH) {
                for outcome in scheduling.schedule(batch.to_vec()).await? {
                    let outcome = outcome?;
                    if outcome != SaveOutcome::Rescheduled {
                        return Err(format!("a reschedule was answered with {outcome:?}").into());
                    }
                }
            }
            Outcome::Ok(started.elapsed())
        };
        let found = logged(database, count, async { tokio::spawn(moving).await? }).await?;
        ours.close().await;
        Ok(found)
    })
}

fn reschedule_bare(bench: &mut Bench, recipe: Recipe, count: usize) -> Outcome<Found> {
    let (timers, others) = twice(bench, recipe, count)?;
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let bare = BarePostgres::open(database).await?;
        bare.insert(&timers, BATCH).await?;
        let moving = async move {
            let started = Instant::now();
            bare.reschedule(&others, BATCH).await?;
            Outcome::Ok(started.elapsed())
        };
        logged(database, count, async { tokio::spawn(moving).await? }).await
    })
}

/// Timers, and the same with other due times.
fn twice(
    bench: &mut Bench,
    recipe: Recipe,
    count: usize,
) -> Outcome<(Vec<TimerRequest>, Vec<TimerRequest>)> {
    let mut rows = bench.rows(recipe.tenants)?;
    let timers = rows.many_pending(count);
    let others = timers.iter().map(|timer| TimerRequest {
        due_at: rows.pending().due_at,
        ..timer.clone()
    });
    let others = others.collect();
    Ok((timers, others))
}

/// Works, and finds out what it took.
async fn logged(
    database: &Database,
    count: usize,
    work: impl Future<Output = Outcome<Duration>>,
) -> Outcome<Found> {
    let before = database.used().await?;
    let took = work.await?;
    Found::new(database, &before, count, took).await
}
