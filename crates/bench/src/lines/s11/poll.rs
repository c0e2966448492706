//! Polls: what a claim costs, however much is pending and however many tenants there are.

use std::time::{Duration, Instant};

use punctual_adapters_postgres::{PostgresTimerStore, Role};
use punctual_domain::Timestamp;
use punctual_ports::{Claim, ClaimBatch, ClockPort, TimerQueuePort};

use super::super::TENANTS;
use super::pending;
use crate::databases::{Owner, Recipe};
use crate::postgres::{BarePostgres, Database, Layout};
use crate::report::{Measure, Unit};
use crate::stats::{Rounds, float, micros};
use crate::turns::Bench;
use crate::{Outcome, grouped};

const LEASE: Duration = Duration::from_secs(8);
/// So long ago that nothing was due.
const LONG_AGO: Duration = Duration::from_hours(24);
/// How many are due, of which a claim gets some: it is shared between tenants.
const DUE: usize = 2_000;
const SHARE: usize = 500;
/// A claim that gets all that is due.
const FEW: usize = 100;
/// Number of polls whose mean is one sample.
const POLLS: usize = 50;
const WHAT: [&str; 3] = [
    "a poll with nothing due",
    "a claim of all that is due, 100",
    "a claim of 500 where 2 000 are due, shared between tenants",
];

/// Microseconds of each of the three, and of the bare poll.
type Costs = [f64; 4];

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let (small, large) = (10_000, bench.size(1_000_000, 100_000));
    let tenants = 10_000;
    let sizes = [(small, 1), (small, tenants), (large, 1), (large, tenants)];
    let mut measures = flatness(bench, &sizes)?;
    measures.push(fresh(bench)?);
    Ok(measures)
}

/// The same on ten million rows, which takes minutes to build.
pub(super) fn ten_million(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let tenants = 10_000;
    flatness(bench, &[(10_000, tenants), (10_000_000, tenants)])
}

fn flatness(bench: &mut Bench, sizes: &[(usize, usize)]) -> Outcome<Vec<Measure>> {
    let samples = bench.size(21, 7);
    let mut files = Vec::new();
    for (rows, tenants) in sizes {
        let recipe = Recipe {
            due: DUE,
            ..pending(*rows, *tenants)
        };
        files.push(open(bench, recipe)?);
    }
    let found = bench.in_turns(samples, files.len(), |bench, place| {
        let now = bench.now();
        bench.runtime.block_on(sample(&files[place], now))
    })?;
    let mut measures = compared(sizes, &found)?;
    for (file, (rows, tenants)) in files.into_iter().zip(sizes) {
        let bytes = bench.runtime.block_on(file.bytes())?;
        let what = format!(
            "disk for each of {} pending timers of {} tenants",
            grouped(*rows),
            grouped(*tenants)
        );
        let bytes = Rounds::new(vec![float(bytes) / float(*rows as u64)])?;
        if *rows > 10_000 {
            measures.push(Measure::of(
                what,
                Unit::Bytes,
                &bytes,
                "tables and indexes, those of no timers included",
            ));
        }
        bench.runtime.block_on(file.store.close());
        bench.remove_from_postgres(&file.database);
    }
    Ok(measures)
}

/// What each costs on each of the databases, and how far that is apart.
fn compared(sizes: &[(usize, usize)], found: &[Vec<Costs>]) -> Outcome<Vec<Measure>> {
    let samples = found.first().map_or(0, Vec::len);
    let mut measures = Vec::new();
    for (thing, what) in WHAT.into_iter().enumerate() {
        let costs = found.iter().map(|samples| {
            Ok((
                Rounds::of(samples, |costs| Ok(costs[thing]))?,
                Rounds::of(samples, |costs| Ok(costs[3]))?,
            ))
        });
        let costs = costs.collect::<Outcome<Vec<_>>>()?;
        // Disturbances only add: the least disturbed sample of each says most.
        let least = || costs.iter().map(|(ours, _)| ours.min());
        let slowest = least().fold(f64::NEG_INFINITY, f64::max);
        let fastest = least().fold(f64::INFINITY, f64::min);
        let one = |value: f64| Rounds::new(vec![value]);
        let on = format!(
            "{samples} samples in turns, the shortest of each: the largest and the smallest of them"
        );
        measures.push(
            Measure::of(
                format!("{what}: slowest ÷ fastest of {}", sizes.len()),
                Unit::Microseconds,
                &one(slowest)?,
                &on,
            )
            .beside(&one(fastest)?)
            .with_figure(one(slowest / fastest)?, Unit::Times)
            .at_most(1.5),
        );
        for ((rows, tenants), (ours, bare)) in sizes.iter().zip(&costs) {
            let what = format!(
                "{what}, {} pending of {} tenants",
                grouped(*rows),
                grouped(*tenants)
            );
            let on = "bare is one prepared SELECT of the next";
            measures.push(Measure::of(what, Unit::Microseconds, ours, on).beside(bare));
        }
    }
    Ok(measures)
}

/// One database, open for both sides.
struct Pending {
    store: PostgresTimerStore,
    bare: BarePostgres,
    database: Database,
    /// When only a few were due.
    few_due: Timestamp,
}

impl Pending {
    async fn bytes(&self) -> Outcome<u64> {
        let sql = "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
            WHERE c.relkind = 'r' AND c.relname LIKE 'timer%'";
        Ok(self.database.number(sql).await?.unsigned_abs())
    }
}

fn open(bench: &mut Bench, recipe: Recipe) -> Outcome<Pending> {
    let database = bench.postgres_copy(recipe, Layout::Ours)?;
    bench.runtime.block_on(async {
        let few = format!(
            "SELECT (extract(epoch FROM ready_at) * 1000)::bigint FROM timer_queue ORDER BY ready_at OFFSET {} LIMIT 1",
            FEW - 1
        );
        let few_due = Timestamp::from_millis(database.number(&few).await?)?;
        Ok(Pending {
            store: database.open(Role::Timer).await?,
            bare: BarePostgres::open(&database).await?,
            database,
            few_due,
        })
    })
}

async fn sample(file: &Pending, now: Timestamp) -> Outcome<Costs> {
    let store = file.store.clone();
    let (few_due, long_ago) = (file.few_due, now.saturating_sub(LONG_AGO));
    let costs = tokio::spawn(async move {
        // The first of a kind is not measured: what the last one was decides how it begins.
        claim(&store, long_ago, FEW).await?;
        let started = Instant::now();
        for _ in 0..POLLS {
            if !store
                .claim_due(long_ago, FEW, LEASE)
                .await?
                .claims
                .is_empty()
            {
                return Err("something was due before everything".into());
            }
        }
        let empty = micros(POLLS, started.elapsed());
        claim(&store, few_due, 2 * FEW).await?;
        let (all, few) = claim(&store, few_due, 2 * FEW).await?;
        claim(&store, now, SHARE).await?;
        let (some, share) = claim(&store, now, SHARE).await?;
        if !few.abs_diff(FEW).le(&2) || share != SHARE {
            return Err(format!("{few} and {share} timers were claimed").into());
        }
        Outcome::Ok([empty, all, some])
    });
    let [empty, all, some] = costs.await??;
    let bare = file.bare.poll(POLLS).await?;
    Ok([empty, all, some, micros(POLLS, bare)])
}

/// Claims and releases; returns how long the claim took, and how many it got.
async fn claim(store: &PostgresTimerStore, now: Timestamp, limit: usize) -> Outcome<(f64, usize)> {
    let started = Instant::now();
    let ClaimBatch { claims, .. } = store.claim_due(now, limit, LEASE).await?;
    let took = micros(1, started.elapsed());
    let count = claims.len();
    for outcome in store
        .release(claims.iter().map(Claim::reference).collect())
        .await?
    {
        outcome?;
    }
    Ok((took, count))
}

/// One tenant has a backlog, and another one a timer that has just become due.
fn fresh(bench: &mut Bench) -> Outcome<Measure> {
    const TRIALS: usize = 20;
    let due = bench.size(100_000, 20_000);
    let recipe = Recipe {
        due,
        owner: Owner::One,
        ..pending(due + 10_000, TENANTS)
    };
    let mut rows = bench.rows_of_others(TENANTS)?;
    let clock = bench.clock.clone();
    let found = bench.on_postgres(recipe, Layout::Ours, async |database| {
        let ours = database.ours().await?;
        let mut found = 0;
        for _ in 0..TRIALS {
            let timer = rows.soon(clock.now(), (Duration::ZERO, Duration::ZERO));
            let key = timer.key.clone();
            ours.schedule(vec![timer], 1, 1).await?;
            let batch = ours.store.claim_due(clock.now(), FEW, LEASE).await?;
            found += usize::from(batch.claims.iter().any(|claim| claim.timer.key == key));
            let claims = batch.claims.iter().map(Claim::reference);
            ours.store.release(claims.collect()).await?;
        }
        ours.close().await;
        Ok(found)
    })?;
    let what = format!("a fresh timer of another tenant is in the first claim, of {TRIALS}");
    let on = format!(
        "{} overdue of one tenant, {TENANTS} tenants, claims of {FEW}",
        grouped(due)
    );
    let found = Rounds::new(vec![float(found as u64)])?;
    Ok(Measure::of(what, Unit::Count, &found, &on).at_least(float(TRIALS as u64)))
}
