//! S8: after a downtime, a million timers are overdue: of one tenant, or of all. Whoever schedules
//! something new meanwhile must not wait for that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_adapters_sqlite::Synchronous;
use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::{Answer, ClockPort};
use punctual_workflows::handler_fn;
use serde_json::json;

use super::{Line, s3};
use crate::bare::Bare;
use crate::child::{Child, number, output_of};
use crate::databases::{Filling, Owner, Recipe};
use crate::lateness::{Lateness, Load, percentile};
use crate::ours::Ours;
use crate::report::{Measure, Target, Unit};
use crate::rows::{Rows, tenants};
use crate::stats::Rounds;
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped, process};

pub(crate) const LINE: Line = Line {
    name: "S8",
    what: "a backlog after a downtime, and fresh timers meanwhile",
    run,
};

pub(super) const CHILD: Child = Child {
    name: "catch-up",
    run: catch_up,
};

/// Fresh timers, a second.
const FRESH: u32 = 100;
/// How far ahead they are scheduled: longer than a commit takes, which is not what this is about.
const AHEAD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
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
        rows: due + tenants,
        tenants,
        due,
        filling: Filling::Bulk,
        owner,
    };
    let seconds = bench.size(6, 3) as u64;
    let rounds = bench.size(3, 1);
    let mut found = Rounded::default();
    for round in 0..rounds {
        for step in 0..2 {
            if (round + step) % 2 == 0 {
                let copy = bench.copy(recipe)?;
                let numbers = [tenants as u64, seconds];
                found.add(&output_of(CHILD.name, &copy.path(), &numbers)?)?;
            } else {
                found.bare.push(first_come(bench, recipe, seconds)?);
            }
        }
    }
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
    found.measures(&format!("{whose}, {} tenants", grouped(tenants)), &on)
}

#[derive(Default)]
struct Rounded {
    late: Vec<f64>,
    memory: Vec<f64>,
    drain: Vec<f64>,
    bare: Vec<f64>,
}

impl Rounded {
    fn add(&mut self, answer: &serde_json::Value) -> Outcome<()> {
        self.late.push(number(answer, "late")?);
        self.memory.push(number(answer, "mebibytes")?);
        self.drain.push(number(answer, "drained")?);
        Ok(())
    }

    fn measures(self, what: &str, on: &str) -> Outcome<Vec<Measure>> {
        let rounds = |values: Vec<f64>| Rounds::new(values).ok_or("rounds are missing");
        let (late, memory) = (rounds(self.late)?, rounds(self.memory)?);
        let (drain, bare) = (rounds(self.drain)?, rounds(self.bare)?);
        let plain = |name: &str, unit, values: &Rounds, most| Measure {
            line: LINE.name,
            what: format!("{what}: {name}"),
            unit,
            ours: values.clone(),
            bare: None,
            figure: values.clone(),
            figure_unit: unit,
            target: Target::AtMost(most),
            on: on.to_owned(),
        };
        Ok(vec![
            plain(
                "lateness of fresh timers, p99",
                Unit::Milliseconds,
                &late,
                200.0,
            ),
            plain(
                "most memory that was resident",
                Unit::Mebibytes,
                &memory,
                64.0,
            ),
            Measure {
                line: LINE.name,
                what: format!("{what}: drain ÷ first come, first served"),
                unit: Unit::PerSecond,
                figure: drain.ratio(&bare).ok_or("rounds are missing")?,
                ours: drain,
                bare: Some(bare),
                figure_unit: Unit::Times,
                target: Target::AtLeast(0.75),
                on: on.to_owned(),
            },
        ])
    }
}

fn first_come(bench: &mut Bench, recipe: Recipe, seconds: u64) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let mut bare = Bare::open(&copy.path(), Synchronous::Full)?;
    let started = Instant::now();
    let ends = started + Duration::from_secs(seconds);
    let drained = bare.drain_until(s3::BATCH, bench.now(), || Instant::now() >= ends)?;
    Ok(rate(drained, started.elapsed()))
}

/// The child process: works off the backlog for a number of seconds, and reports the result.
fn catch_up(path: &Path, numbers: &[u64]) -> Outcome<()> {
    let [of_tenants, seconds] = *numbers else {
        return Err("the number of tenants and of seconds have to be said".into());
    };
    let lasts = Duration::from_secs(seconds);
    let clock = SystemClock::start()?;
    // The first tenant may be the one with the backlog.
    let others = tenants(usize::try_from(of_tenants)?)?.split_off(1);
    let now = clock.now();
    let rows = Rows::new(others, 88, now);
    let lateness = Lateness::of(now, Timestamp::MAX);
    let old = Arc::new(AtomicUsize::new(0));
    let (noting, counting) = (Arc::clone(&lateness), Arc::clone(&old));
    let handler = handler_fn(move |envelope| {
        if !noting.note_event(&envelope) {
            counting.fetch_add(1, Ordering::Relaxed);
        }
        async { Answer::Done }
    });
    let load = Load {
        per_second: FRESH,
        lasts,
        ahead: AHEAD,
    };
    let (drained, took) = tokio::runtime::Runtime::new()?.block_on(async {
        let ours = Ours::open(path, &clock)?;
        let started = Instant::now();
        let running = ours.run(s3::draining(), handler).await?;
        load.schedule(&ours.scheduling(), rows).await?;
        tokio::time::sleep(AHEAD.1 + Duration::from_millis(500)).await;
        let (drained, took) = (old.load(Ordering::Relaxed), started.elapsed());
        running.stop().await?;
        ours.close().await;
        Outcome::Ok((drained, took))
    })?;
    let late = lateness.sorted()?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "memory is far below what a double holds exactly"
    )]
    let mebibytes = process::peak_memory() as f64 / f64::from(1 << 20);
    let answer = json!({
        "drained": rate(drained, took),
        "late": percentile(&late, 0.99)?,
        "median": percentile(&late, 0.5)?,
        "latest": percentile(&late, 1.0)?,
        "fresh": late.len(),
        "mebibytes": mebibytes,
    });
    eprintln!("  {answer}");
    println!("{answer}");
    Ok(())
}
