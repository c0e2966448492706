//! S19: tenants whose handlers are slow or hang, and how late the others' timers are meanwhile.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Message, TenantId};
use punctual_ports::Answer;
use punctual_workflows::{TimerRequest, handler_fn};
use tokio::sync::Semaphore;

use crate::Outcome;
use crate::databases::Recipe;
use crate::lateness::{Steady, percentile};
use crate::ours::all_created;
use crate::report::{Measure, Unit};
use crate::rows::Rows;
use crate::stats::Rounds;
use crate::turns::Bench;

pub(super) const WHAT: &str = "saturated tenants, and the others meanwhile";

const PER_SECOND: u32 = 500;
/// As many are saturated as are not.
const TENANTS: usize = 20;
const BACKLOG_OF_EACH: usize = 1_000;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let lasts = Duration::from_secs(bench.size(8, 3) as u64);
    let mut measures = Vec::new();
    for (takes, what) in [
        (None, "hang"),
        (Some(Duration::from_secs(1)), "take a second"),
    ] {
        let rounds = bench.in_turns(3, 1, |bench, _| fire(bench, takes, lasts))?;
        let on = format!(
            "{TENANTS} tenants with {BACKLOG_OF_EACH} due each, and {PER_SECOND} a second of \
             {TENANTS} others for {} s a round, scheduled one by one at FULL",
            lasts.as_secs(),
        );
        let measure = |name: &str, part| {
            let late = Rounds::of(&rounds[0], |sorted| percentile(sorted, part))?;
            let what =
                format!("handlers of half of all tenants {what}: lateness of the others, {name}");
            Outcome::Ok(Measure::of(what, Unit::Milliseconds, &late, &on))
        };
        measures.push(measure("p99", 0.99)?.at_most(100.0));
        measures.push(measure("the latest", 1.0)?);
    }
    Ok(measures)
}

/// What the saturated tenants have due.
fn backlog(bench: &Bench, tenant: usize) -> Outcome<Vec<TimerRequest>> {
    let tenant = TenantId::new(&format!("saturated-{tenant}"))?;
    let mut rows = Rows::new(vec![tenant], 19, bench.now());
    let now = (Duration::ZERO, Duration::ZERO);
    Ok((0..BACKLOG_OF_EACH)
        .map(|_| rows.soon(bench.now(), now))
        .collect())
}

/// Handlers of saturated tenants take so long; without it, until the end.
fn fire(bench: &mut Bench, takes: Option<Duration>, lasts: Duration) -> Outcome<Vec<f64>> {
    let copy = bench.copy(Recipe::pending(10_000, TENANTS))?;
    let rows = bench.rows(TENANTS)?;
    let steady = Steady::new(PER_SECOND, lasts);
    let (noting, over) = (Arc::clone(&steady.lateness), Arc::new(Semaphore::new(0)));
    let hanging = Arc::clone(&over);
    let handler = handler_fn(move |envelope| {
        let is_slow = match &envelope.message {
            Message::DueTimeReached(event) => event.tenant_id.as_str().starts_with("saturated-"),
            _ => false,
        };
        if !is_slow {
            noting.note_event(&envelope);
        }
        let over = Arc::clone(&hanging);
        async move {
            match takes {
                _ if !is_slow => {}
                // When the semaphore is closed.
                None => _ = over.acquire().await,
                Some(takes) => tokio::time::sleep(takes).await,
            }
            Answer::Done
        }
    });
    bench.with_ours(&copy, async |ours| {
        for tenant in 0..TENANTS {
            let batch = backlog(bench, tenant)?;
            all_created(ours.scheduling().schedule(batch).await)?;
        }
        let running = steady.fire(ours, rows, handler).await?;
        over.close();
        running.stop().await
    })?;
    steady.sorted()
}
