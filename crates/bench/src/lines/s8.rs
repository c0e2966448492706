//! S8: after a downtime, a million timers are overdue: of one tenant, or of all. Whoever schedules
//! something new meanwhile must not wait for that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_adapters_sqlite::SqliteSettings;
use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::s3;
use crate::bare::Bare;
use crate::child::{Child, output_of, rounds};
use crate::databases::{Copy, Filling, Owner, Recipe};
use crate::lateness::{Lateness, Load, percentile};
use crate::ours::{Ours, each};
use crate::report::{Measure, Unit};
use crate::rows::{Rows, tenants};
use crate::stats::rate;
use crate::turns::Bench;
use crate::{Outcome, grouped, machine};

pub(super) const WHAT: &str = "a backlog after a downtime, and fresh timers meanwhile";

pub(super) const CHILD: Child = Child {
    name: "catch-up",
    run: catch_up,
};

/// Fresh timers, a second.
const FRESH: u32 = 100;
/// How far ahead they are scheduled: longer than a commit takes, which is not what this is about.
const AHEAD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
const MEMORY: &str = "most memory that was resident";
const DRAIN: &str = "drain ÷ first come, first served";
/// How many of the backlog fired, a second: the name that both sides give it.
const DRAINED: &str = "drained";

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let mut measures = Vec::new();
    for owner in [Owner::One, Owner::Any] {
        for tenants in [100, 10_000] {
            measures.extend(one_case(bench, owner, tenants)?);
        }
    }
    Ok(measures)
}

fn one_case(bench: &mut Bench, owner: Owner, tenants: usize) -> Outcome<Vec<Measure>> {
    let due = bench.size(1_000_000, 100_000);
    let recipe = Recipe {
        due,
        filling: Filling::Bulk,
        owner,
        ..Recipe::pending(due + tenants, tenants)
    };
    let seconds = bench.size(6, 3) as u64;
    let rounds_of_each = bench.size(3, 1);
    let sides = bench.in_turns(rounds_of_each, 2, |bench, side| {
        let copy = bench.copy(recipe)?;
        match side {
            0 => output_of(CHILD.name, &copy.path(), [tenants as u64, seconds]),
            _ => first_come(bench, &copy, seconds),
        }
    })?;
    bench.databases.forget(recipe);
    let whose = match owner {
        Owner::One => "one tenant's backlog",
        Owner::Any => "everybody's backlog",
    };
    let on = format!(
        "{} overdue, {} tenants, the first {seconds} s of it, with {FRESH} fresh timers a second \
         of other tenants; a process of its own; bare is the serial loop of S3: first come, first \
         served, and no fresh timers",
        grouped(due),
        grouped(tenants)
    );
    let measure = |what: &str, unit, name| {
        let what = format!("{whose}, {} tenants: {what}", grouped(tenants));
        Outcome::Ok(Measure::of(what, unit, &rounds(&sides[0], name)?, &on))
    };
    Ok(vec![
        measure("lateness of fresh timers, p99", Unit::Milliseconds, "late")?.at_most(200.0),
        measure(MEMORY, Unit::Mebibytes, "mebibytes")?.at_most(64.0),
        measure(DRAIN, Unit::PerSecond, DRAINED)?
            .ratio_to(&rounds(&sides[1], DRAINED)?)?
            .at_least(0.75),
    ])
}

fn first_come(bench: &Bench, copy: &Copy, seconds: u64) -> Outcome<Value> {
    let mut bare = Bare::open(&copy.path())?;
    let started = Instant::now();
    let ends = started + Duration::from_secs(seconds);
    let drained = bare.drain(s3::BATCH, bench.now(), |_| Instant::now() < ends)?;
    Ok(json!({ DRAINED: rate(drained, started.elapsed()) }))
}

/// The child process: works off the backlog for a number of seconds, and reports the result.
fn catch_up(path: &Path, [of_tenants, seconds]: [u64; 2]) -> Outcome<()> {
    let lasts = Duration::from_secs(seconds);
    let clock = SystemClock::start()?;
    // The first tenant may be the one with the backlog.
    let others = tenants(usize::try_from(of_tenants)?)?.split_off(1);
    let now = clock.now();
    let rows = Rows::new(others, 88, now);
    let lateness = Lateness::of(now, Timestamp::MAX);
    let old = Arc::new(AtomicUsize::new(0));
    let (noting, counting) = (Arc::clone(&lateness), Arc::clone(&old));
    let handler = each(move |envelope| {
        if !noting.note_event(envelope) {
            counting.fetch_add(1, Ordering::Relaxed);
        }
    });
    let load = Load {
        per_second: FRESH,
        lasts,
        ahead: AHEAD,
    };
    let work = async |ours: &Ours| {
        let started = Instant::now();
        let running = ours.run(s3::draining(), handler).await?;
        load.schedule(&ours.scheduling(), rows).await?;
        tokio::time::sleep(AHEAD.1 + Duration::from_millis(500)).await;
        let drained = rate(old.load(Ordering::Relaxed), started.elapsed());
        running.stop().await?;
        Ok(drained)
    };
    let settings = SqliteSettings::timers(path);
    let drained = Runtime::new()?.block_on(Ours::with(&settings, &clock, work))?;
    let late = lateness.sorted()?;
    let answer = json!({
        DRAINED: drained,
        "late": percentile(&late, 0.99)?,
        "median": percentile(&late, 0.5)?,
        "latest": percentile(&late, 1.0)?,
        "fresh": late.len(),
        "mebibytes": machine::peak_memory(),
    });
    eprintln!("  {answer}");
    println!("{answer}");
    Ok(())
}
