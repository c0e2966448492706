//! S11: the store on PostgreSQL, which many instances share.

mod firing;
mod instances;
mod late;
mod poll;
mod schedule;

use std::time::Duration;

use super::TENANTS;
use crate::child::Child;
use crate::databases::{Filling, Recipe};
use crate::postgres::{Database, Used};
use crate::report::Measure;
use crate::stats::{Rounds, float, micros, rate};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "PostgreSQL: many instances, one schedule";

pub(super) const DRAIN: Child = crate::postgres::DRAIN;
pub(super) const HOLD: Child = instances::HOLD;

/// All of it.
pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let parts = [schedules, firings, lateness, polls, instances];
    let mut measures = Vec::new();
    for part in parts {
        measures.extend(part(bench)?);
    }
    Ok(measures)
}

/// A part of it, if there is a server.
fn part(
    bench: &mut Bench,
    measure: fn(&mut Bench) -> Outcome<Vec<Measure>>,
) -> Outcome<Vec<Measure>> {
    if bench.postgres().is_none() {
        return Ok(Vec::new());
    }
    let mut measures = measure(bench)?;
    for measure in &mut measures {
        measure.line = "S11";
    }
    Ok(measures)
}

pub(super) fn schedules(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, schedule::run)
}

pub(super) fn firings(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, firing::run)
}

pub(super) fn lateness(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, late::run)
}

pub(super) fn polls(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, poll::run)
}

pub(super) fn instances(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, instances::run)
}

pub(super) fn ten_million(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    part(bench, poll::ten_million)
}

/// The database that most parts start on.
fn backlog(bench: &Bench) -> Recipe {
    Recipe {
        due: bench.size(100_000, 20_000),
        ..Recipe::pending(bench.size(1_000_000, 100_000), TENANTS)
    }
}

/// Many pending timers, whose indexes are built last: for parts that read more than they write.
fn pending(rows: usize, tenants: usize) -> Recipe {
    Recipe {
        filling: Filling::Bulk,
        ..Recipe::pending(rows, tenants)
    }
}

/// What one turn found.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// How many a second.
    rate: f64,
    /// Microseconds of processor time for each, of the server and of all clients.
    processor: f64,
    /// Bytes of the log for each, without copies of whole pages.
    records: f64,
    /// Bytes of the copies of whole pages for each: the turn begins right after a checkpoint.
    full_pages: f64,
}

impl Found {
    /// A number of timers took so long, and this had been used before.
    async fn new(
        database: &Database,
        before: &Used,
        count: usize,
        took: Duration,
    ) -> Outcome<Self> {
        let cost = database.used_since(before).await?;
        let each = |bytes: u64| float(bytes) / float(count as u64);
        Ok(Self {
            rate: rate(count, took),
            processor: micros(count, cost.processor),
            records: each(cost.records),
            full_pages: each(cost.full_pages),
        })
    }
}

/// One number of each turn.
fn rounds(found: &[Found], number: fn(&Found) -> f64) -> Outcome<Rounds> {
    Rounds::of(found, |found| Ok(number(found)))
}

/// What a recipe has, in words.
fn onto(recipe: Recipe) -> String {
    format!(
        "{} rows, {} tenants, fsync on",
        grouped(recipe.rows),
        grouped(recipe.tenants)
    )
}
