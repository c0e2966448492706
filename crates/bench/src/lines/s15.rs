//! S15: how many bytes of the file a pending timer takes, with all indexes.

use std::fs;

use super::{Line, TENANTS, s3};
use crate::bare::Bare;
use crate::databases::{Copy, Recipe};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped};
use punctual_adapters_sqlite::Synchronous;

pub(crate) const LINE: Line = Line {
    name: "S15",
    what: "file size per pending timer",
    run,
};

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let rows = bench.size(200_000, 50_000);
    let empty = Recipe::pending(0, TENANTS);
    let ours = stored_by_us(bench, empty, rows)?;
    let bare = stored_bare(bench, empty, rows)?;
    let large = s3::backlog(bench);
    let file = bench.databases.original(large, &bench.clock)?;
    let in_large = each(fs::metadata(file)?.len(), large.rows)?;
    Ok(vec![
        Measure {
            line: LINE.name,
            what: "bytes per pending timer, written by the store".to_owned(),
            unit: Unit::Bytes,
            ours: ours.clone(),
            bare: Some(bare),
            figure: ours,
            figure_unit: Unit::Bytes,
            target: Target::AtMost(470.0),
            on: format!(
                "{} timers scheduled into an empty file, {TENANTS} tenants named by UUIDs, \
                 all indexes, after a checkpoint",
                grouped(rows)
            ),
        },
        Measure {
            line: LINE.name,
            what: "bytes per timer of the largest file".to_owned(),
            unit: Unit::Bytes,
            ours: in_large.clone(),
            bare: None,
            figure: in_large,
            figure_unit: Unit::Bytes,
            target: Target::AtMost(470.0),
            on: format!("{} timers, filled by the bare loop", grouped(large.rows)),
        },
    ])
}

fn stored_by_us(bench: &mut Bench, empty: Recipe, rows: usize) -> Outcome<Rounds> {
    let copy = bench.copy(empty)?;
    let timers = bench.rows(empty.tenants)?.many_pending(rows);
    bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        ours.schedule_batches(timers, 10_000, 1).await?;
        ours.close().await;
        Outcome::Ok(())
    })?;
    size(&copy, rows)
}

fn stored_bare(bench: &mut Bench, empty: Recipe, rows: usize) -> Outcome<Rounds> {
    let copy = bench.copy(empty)?;
    let timers = bench.rows(empty.tenants)?.many_pending(rows);
    let mut bare = Bare::open(&copy.path(), Synchronous::Normal)?;
    bare.upsert(&timers, 10_000, bench.now())?;
    drop(bare);
    size(&copy, rows)
}

fn size(copy: &Copy, rows: usize) -> Outcome<Rounds> {
    let bare = Bare::open(&copy.path(), Synchronous::Normal)?;
    bare.checkpoint()?;
    let stored = bare.count("Scheduled")?;
    if stored != rows {
        return Err(format!("{stored} of {rows} timers were stored").into());
    }
    drop(bare);
    each(fs::metadata(copy.path())?.len(), rows)
}

fn each(bytes: u64, rows: usize) -> Outcome<Rounds> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a file here is far smaller than what a double holds exactly"
    )]
    let each = bytes as f64 / rows as f64;
    Ok(Rounds::new(vec![each]).ok_or("there are no timers")?)
}
