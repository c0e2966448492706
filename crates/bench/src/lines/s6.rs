//! S6: what an engine costs that has nothing to do.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_adapters_sqlite::{OnStatement, SqliteSettings};
use punctual_adapters_system::SystemClock;
use punctual_workflows::WorkerSettings;
use serde_json::json;
use tokio::runtime::Runtime;

use super::TENANTS;
use crate::child::{Child, output_of, rounds};
use crate::databases::Recipe;
use crate::ours::{Ours, each};
use crate::report::{Measure, Unit};
use crate::stats::float;
use crate::turns::Bench;
use crate::{Outcome, grouped, machine};

pub(super) const WHAT: &str = "an idle minute";

pub(super) const CHILD: Child = Child {
    name: "idle",
    run: be_idle,
};

/// Whatever belongs to the start is over by then.
const SETTLED_AFTER: Duration = Duration::from_secs(6);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let pending = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let seconds = bench.size(60, 10);
    let copy = bench.copy(pending)?;
    let answer = [output_of(CHILD.name, &copy.path(), [seconds as u64, 0])?];
    let polls = seconds as u64 / WorkerSettings::default().polling_interval.as_secs();
    let on = format!(
        "{seconds} s, {} pending, nothing due and no writer, defaults; a process of its own, \
         from {} s after its start",
        grouped(pending.rows),
        SETTLED_AFTER.as_secs()
    );
    let measure =
        |what: &str, unit, name| Outcome::Ok(Measure::of(what, unit, &rounds(&answer, name)?, &on));
    Ok(vec![
        measure("statements", Unit::Count, "statements")?.at_most(float(polls + 5)),
        measure("processor time", Unit::Percent, "percent")?.at_most(0.1),
        measure("wake-ups of threads, a second", Unit::Count, "waits")?,
    ])
}

static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// The child process: runs an engine for a number of seconds and reports what it did.
fn be_idle(path: &Path, [seconds, _]: [u64; 2]) -> Outcome<()> {
    let clock = SystemClock::start()?;
    let mut settings = SqliteSettings::timers(path);
    settings.on_statement = Some(OnStatement(|_| {
        _ = STATEMENTS.fetch_add(1, Ordering::Relaxed);
    }));
    let idle = async |ours: &Ours| {
        let running = ours.run(WorkerSettings::default(), each(|_| {})).await?;
        tokio::time::sleep(SETTLED_AFTER).await;
        let before = (machine::processor_time(), machine::waits());
        let statements_before = STATEMENTS.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let statements = STATEMENTS.load(Ordering::Relaxed) - statements_before;
        let used = machine::processor_time().saturating_sub(before.0);
        let waits = machine::waits().saturating_sub(before.1);
        running.stop().await?;
        Ok(json!({
            "statements": statements,
            "percent": used.as_secs_f64() / float(seconds) * 100.0,
            "waits": float(waits) / float(seconds),
        }))
    };
    let answer = Runtime::new()?.block_on(Ours::with(&settings, &clock, idle))?;
    println!("{answer}");
    Ok(())
}
