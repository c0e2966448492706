//! S7: how much memory an engine takes on a large file while timers come and go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_adapters_system::SystemClock;
use punctual_ports::{Answer, ClockPort};
use punctual_workflows::handler_fn;
use serde_json::json;
use tokio::sync::Notify;

use super::{Line, TENANTS, s3};
use crate::child::{Child, number, output_of};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::rows::{Rows, tenants};
use crate::stats::Rounds;
use crate::turns::Bench;
use crate::{Outcome, grouped, process};

pub(crate) const LINE: Line = Line {
    name: "S7",
    what: "memory on a large file while timers come and go",
    run,
};

pub(super) const CHILD: Child = Child {
    name: "come-and-go",
    run: come_and_go,
};

const CALLERS: usize = 64;

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = s3::backlog(bench);
    let (come, go) = (bench.size(20_000, 4_000), bench.size(30_000, 6_000));
    let rounds = bench.size(3, 1);
    let mut peaks = Vec::new();
    for _ in 0..rounds {
        let copy = bench.copy(recipe)?;
        let answer = output_of(CHILD.name, &copy.path(), &[come as u64, go as u64])?;
        peaks.push(number(&answer, "mebibytes")?);
    }
    let figure = Rounds::new(peaks).ok_or("nothing was measured")?;
    Ok(vec![Measure {
        line: LINE.name,
        what: "most memory that was resident".to_owned(),
        unit: Unit::Mebibytes,
        ours: figure.clone(),
        bare: None,
        figure,
        figure_unit: Unit::Mebibytes,
        target: Target::AtMost(48.0),
        on: format!(
            "{} rows, {} overdue; {} scheduled by {CALLERS} tasks one by one while {} fire; a \
             process of its own, from its start",
            grouped(recipe.rows),
            grouped(recipe.due),
            grouped(come),
            grouped(go)
        ),
    }])
}

/// The other process.
fn come_and_go(path: &Path, numbers: &[u64]) -> Outcome<()> {
    let [come, go] = *numbers else {
        return Err("how many come and how many go has to be said".into());
    };
    let (come, go) = (usize::try_from(come)?, usize::try_from(go)?);
    let clock = SystemClock::start()?;
    let mut rows = Rows::new(tenants(TENANTS)?, 77, clock.now());
    let (fired, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (noting, notifier) = (Arc::clone(&fired), Arc::clone(&enough));
    let handler = handler_fn(move |_| {
        if noting.fetch_add(1, Ordering::Relaxed) + 1 == go {
            notifier.notify_one();
        }
        async { Answer::Done }
    });
    tokio::runtime::Runtime::new()?.block_on(async {
        let ours = Ours::open(path, &clock)?;
        let running = ours.run(s3::draining(), handler).await?;
        // In parts, so that what waits to be scheduled is not what is measured.
        for part in (0..come).collect::<Vec<_>>().chunks(CALLERS * 8) {
            let timers = rows.many_pending(part.len());
            ours.schedule_one_by_one(timers, CALLERS).await?;
        }
        enough.notified().await;
        let peak = process::peak_memory();
        running.stop().await?;
        ours.close().await;
        #[expect(
            clippy::cast_precision_loss,
            reason = "memory is far below what a double holds exactly"
        )]
        let mebibytes = peak.max(process::peak_memory()) as f64 / f64::from(1 << 20);
        println!("{}", json!({ "mebibytes": mebibytes }));
        Ok(())
    })
}
