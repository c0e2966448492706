//! Instances: how soon one takes over what another had claimed, and what an idle one asks.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_adapters_postgres::Role;
use punctual_adapters_system::SystemClock;
use punctual_ports::{Claim, ClockPort, TimerQueuePort};
use punctual_workflows::WorkerSettings;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::super::TENANTS;
use super::pending;
use crate::child::{self, Child};
use crate::databases::Recipe;
use crate::ours::each;
use crate::postgres::{Layout, open};
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, float};
use crate::turns::Bench;
use crate::{Outcome, grouped};

/// A process that claims all that is due and keeps it.
pub(super) const HOLD: Child = Child {
    name: "claim-and-hold",
    run: hold,
};

const LEASE: Duration = Duration::from_secs(8);
const HELD: usize = 1_000;
/// A take-over that takes longer has lost something.
const LONGEST: Duration = Duration::from_mins(1);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = Recipe {
        due: HELD,
        ..pending(100_000, TENANTS)
    };
    let rounds = bench.size(3, 1);
    let [vanished, released] = bench.take_turns(
        rounds,
        [&|bench| take_over(bench, recipe, true), &|bench| {
            take_over(bench, recipe, false)
        }],
    )?;
    let on = format!(
        "{HELD} timers in flight in another process, a lease of {} s, {} rows",
        LEASE.as_secs(),
        grouped(recipe.rows)
    );
    let measure = |what: &str, took: &Rounds| Measure::of(what, Unit::Milliseconds, took, &on);
    let mut measures = vec![
        measure("take-over after SIGKILL, until the last fired", &vanished).at_most(9_000.0),
        measure("take-over after a release, until the last fired", &released).at_most(1_000.0),
    ];
    measures.extend(idle(bench)?);
    Ok(measures)
}

/// The other process: claims all that is due, and releases it when it is asked to.
fn hold(path: &Path, _: [u64; 2]) -> Outcome<()> {
    let url = path.to_str().ok_or("the address is no text")?;
    let clock = SystemClock::start()?;
    Runtime::new()?.block_on(async {
        let store = open(url, Role::Timer, &clock).await?;
        let batch = store.claim_due(clock.now(), HELD + 1, LEASE).await?;
        println!("{}", batch.claims.len());
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        let claims = batch.claims.iter().map(Claim::reference);
        store.release(claims.collect()).await?;
        store.close().await;
        Ok(())
    })
}

/// Milliseconds from the end of the other process, or from its release, until all have fired here.
fn take_over(bench: &mut Bench, recipe: Recipe, by_kill: bool) -> Outcome<f64> {
    bench.on_postgres(recipe, Layout::Ours, async |database| {
        let mut holder = child::command(HOLD.name, Path::new(&database.url), [0, 0])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(holder.stdout.take().ok_or("a process has no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.trim() != HELD.to_string() {
            return Err(format!("the other process claimed {line}").into());
        }
        let ours = database.ours().await?;
        let (fired, enough) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        let notifier = Arc::clone(&enough);
        let handler = each(move |_| {
            if fired.fetch_add(1, Ordering::Relaxed) + 1 == HELD {
                notifier.notify_one();
            }
        });
        let settings = WorkerSettings {
            lease: LEASE,
            ..WorkerSettings::default()
        };
        let running = ours.run(settings, handler).await?;
        if !by_kill {
            // The worker here has polled, and sleeps.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let started = Instant::now();
        if by_kill {
            holder.kill()?;
        } else if let Some(input) = &mut holder.stdin {
            input.write_all(b"release\n")?;
        }
        tokio::time::timeout(LONGEST, enough.notified()).await?;
        let took = started.elapsed();
        holder.wait()?;
        running.stop().await?;
        ours.close().await;
        Ok(took.as_secs_f64() * 1e3)
    })
}

/// Statements of an instance that has nothing to do.
fn idle(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let recipe = pending(100_000, TENANTS);
    let lasts = Duration::from_secs(bench.size(60, 10) as u64);
    let [statements, all, transactions] = bench.on_postgres(recipe, Layout::Ours, async |database| {
        let counting = database.connect().await?;
        let name = &database.name;
        counting
            .batch_execute(&format!(
                "CREATE EXTENSION pg_stat_statements;
                 ALTER DATABASE {name} SET pg_stat_statements.track = 'all'"
            ))
            .await?;
        let ours = database.ours().await?;
        let running = ours.run(WorkerSettings::default(), each(|_| {})).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        counting
            .batch_execute("SELECT pg_stat_statements_reset()")
            .await?;
        let transactions = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
        let before = database.number(transactions).await?;
        tokio::time::sleep(lasts).await;
        let sql = "SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(begin|set|commit)'), 0)::bigint,
            coalesce(sum(calls), 0)::bigint FROM pg_stat_statements";
        let row = counting.query_one(sql, &[]).await?;
        let (statements, all): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let after = database.number(transactions).await?;
        running.stop().await?;
        ours.close().await;
        Ok([statements, all, after - before])
    })?;
    let a_second = |count: i64| {
        let count = float(count.unsigned_abs()) / lasts.as_secs_f64();
        Rounds::new(vec![count])
    };
    let on = format!(
        "{} pending, nothing due, {} s, the defaults",
        grouped(recipe.rows),
        lasts.as_secs()
    );
    let what = "statements a second of an idle instance";
    Ok(vec![
        Measure::of(what, Unit::Times, &a_second(statements)?, &on).at_most(2.0),
        Measure::of(
            "the same with BEGIN, SET and COMMIT",
            Unit::Times,
            &a_second(all)?,
            &on,
        ),
        Measure::of(
            "transactions a second of an idle instance",
            Unit::Times,
            &a_second(transactions)?,
            &on,
        ),
    ])
}
