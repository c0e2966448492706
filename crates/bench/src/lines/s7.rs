//! S7: how much memory an engine takes on a large file while timers come and go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_adapters_sqlite::SqliteSettings;
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{TENANTS, s3};
use crate::child::{Child, number, output_of};
use crate::ours::{Ours, each};
use crate::report::{Measure, Unit};
use crate::rows::{Rows, tenants};
use crate::turns::Bench;
use crate::{Outcome, grouped, machine};

pub(super) const WHAT: &str = "memory on a large file while timers come and go";

pub(super) const CHILD: Child = Child {
    name: "come-and-go",
    run: come_and_go,
};

const CALLERS: usize = 64;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let (come, go) = (bench.size(20_000, 4_000), bench.size(30_000, 6_000));
    let rounds = bench.size(3, 1);
    let [peaks] = bench.take_turns(
        rounds,
        [&|bench| {
            let copy = bench.copy(recipe)?;
            let answer = output_of(CHILD.name, &copy.path(), [come as u64, go as u64])?;
            number(&answer, "mebibytes")
        }],
    )?;
    let on = format!(
        "{} rows, {} overdue; {} scheduled by {CALLERS} tasks one by one while {} fire; a process of \
         its own, from its start",
        grouped(recipe.rows),
        grouped(recipe.due),
        grouped(come),
        grouped(go)
    );
    let what = "most memory that was resident";
    Ok(vec![
        Measure::of(what, Unit::Mebibytes, &peaks, &on).at_most(48.0),
    ])
}

/// The other process.
fn come_and_go(path: &Path, [come, go]: [u64; 2]) -> Outcome<()> {
    let (come, go) = (usize::try_from(come)?, usize::try_from(go)?);
    let clock = SystemClock::start()?;
    let mut rows = Rows::new(tenants(TENANTS)?, 77, clock.now());
    let (fired, enough) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let notifier = Arc::clone(&enough);
    let handler = each(move |_| {
        if fired.fetch_add(1, Ordering::Relaxed) + 1 == go {
            notifier.notify_one();
        }
    });
    let work = async |ours: &Ours| {
        let running = ours.run(s3::draining(), handler).await?;
        // In parts, so that what waits to be scheduled is not what is measured.
        for part in (0..come).collect::<Vec<_>>().chunks(CALLERS * 8) {
            let timers = rows.many_pending(part.len());
            ours.schedule(timers, 1, CALLERS).await?;
        }
        enough.notified().await;
        running.stop().await
    };
    let settings = SqliteSettings::timers(path);
    Runtime::new()?.block_on(Ours::with(&settings, &clock, work))?;
    println!("{}", json!({ "mebibytes": machine::peak_memory() }));
    Ok(())
}
