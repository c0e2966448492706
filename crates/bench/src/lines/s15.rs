//! S15: how many bytes of the file a pending timer takes, with all indexes.

use std::fs;
use std::path::Path;

use punctual_adapters_sqlite::Synchronous;

use super::{TENANTS, s3};
use crate::bare::Bare;
use crate::databases::{Copy, Recipe};
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, float};
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "file size per pending timer";

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let rows = bench.size(200_000, 50_000);
    let empty = Recipe::pending(0, TENANTS);
    let ours = stored_by_us(bench, empty, rows)?;
    let bare = stored_bare(bench, empty, rows)?;
    let large = s3::backlog(bench);
    let file = bench.databases.original(large)?;
    let in_large = each(&file, large.rows)?;
    let most = 470.0;
    let on = format!(
        "{} timers scheduled into an empty file, {TENANTS} tenants named by UUIDs, all indexes, \
         after a checkpoint",
        grouped(rows)
    );
    let what = "bytes per pending timer, written by the store";
    let on_large = format!("{} timers, filled by the bare loop", grouped(large.rows));
    let what_large = "bytes per timer of the largest file";
    Ok(vec![
        Measure::of(what, Unit::Bytes, &ours, &on)
            .beside(&bare)
            .at_most(most),
        Measure::of(what_large, Unit::Bytes, &in_large, &on_large).at_most(most),
    ])
}

fn stored_by_us(bench: &mut Bench, empty: Recipe, rows: usize) -> Outcome<Rounds> {
    let (copy, timers) = bench.copy_and_timers(empty, rows)?;
    bench.with_ours(&copy, async |ours| ours.schedule(timers, 10_000, 1).await)?;
    size(&copy, rows)
}

fn stored_bare(bench: &mut Bench, empty: Recipe, rows: usize) -> Outcome<Rounds> {
    let (copy, timers) = bench.copy_and_timers(empty, rows)?;
    let mut bare = Bare::open_with(&copy.path(), Synchronous::Normal)?;
    bare.upsert(&timers, 10_000, bench.now())?;
    drop(bare);
    size(&copy, rows)
}

fn size(copy: &Copy, rows: usize) -> Outcome<Rounds> {
    let bare = Bare::open_with(&copy.path(), Synchronous::Normal)?;
    bare.checkpoint()?;
    let stored = bare.count("Scheduled")?;
    if stored != rows {
        return Err(format!("{stored} of {rows} timers were stored").into());
    }
    drop(bare);
    each(&copy.path(), rows)
}

fn each(file: &Path, rows: usize) -> Outcome<Rounds> {
    let bytes = fs::metadata(file)?.len();
    Rounds::new(vec![float(bytes) / float(rows as u64)])
}
