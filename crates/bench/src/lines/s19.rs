//! S19: tenants whose handlers are slow or hang, and how late the others' timers are meanwhile.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Message, ServiceCallId, TenantId, TimerKey};
use punctual_ports::{Answer, IdPort};
use punctual_workflows::{TimerRequest, WorkerSettings, handler_fn};
use tokio::sync::Semaphore;

use super::Line;
use crate::Outcome;
use crate::databases::Recipe;
use crate::lateness::{Lateness, Load, percentile};
use crate::ours::{Ours, all_created};
use crate::report::{Measure, Target, Unit};
use crate::stats::Rounds;
use crate::turns::Bench;

pub(crate) const LINE: Line = Line {
    name: "S19",
    what: "saturated tenants, and the others meanwhile",
    run,
};

const PER_SECOND: u32 = 500;
/// As many are saturated as are not.
const TENANTS: usize = 20;
const BACKLOG_OF_EACH: usize = 1_000;
/// Before this, the backlog is just being claimed.
const WARM_UP: Duration = Duration::from_secs(2);
const AHEAD: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1_500));

/// What the handlers of saturated tenants do.
#[derive(Debug, Clone, Copy)]
enum Handlers {
    Hang,
    TakeASecond,
}

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let lasts = Duration::from_secs(bench.size(8, 3) as u64);
    let mut measures = Vec::new();
    for (handlers, what) in [
        (Handlers::Hang, "hang"),
        (Handlers::TakeASecond, "take a second"),
    ] {
        let (mut p99, mut most) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let sorted = fire(bench, handlers, lasts)?;
            p99.push(percentile(&sorted, 0.99)?);
            most.push(percentile(&sorted, 1.0)?);
        }
        for (name, values, target) in [
            ("p99", p99, Target::AtMost(100.0)),
            ("the latest", most, Target::None),
        ] {
            let ours = Rounds::new(values).ok_or("rounds are missing")?;
            measures.push(Measure {
                line: LINE.name,
                what: format!("handlers of half of all tenants {what}: lateness of the others, {name}"),
                unit: Unit::Milliseconds,
                figure: ours.clone(),
                ours,
                bare: None,
                figure_unit: Unit::Milliseconds,
                target,
                on: format!(
                    "{TENANTS} tenants with {BACKLOG_OF_EACH} due each, and {PER_SECOND} a second of \
                     {TENANTS} others for {} s a round, scheduled one by one at FULL",
                    lasts.as_secs(),
                ),
            });
        }
    }
    Ok(measures)
}

fn is_saturated(tenant: &TenantId) -> bool {
    tenant.as_str().starts_with("saturated-")
}

/// What the saturated tenants have due.
fn backlog(bench: &Bench, tenant: usize) -> Outcome<Vec<TimerRequest>> {
    let tenant = TenantId::new(&format!("saturated-{tenant}"))?;
    let due = (0..BACKLOG_OF_EACH).map(|_| {
        let id = ServiceCallId::from_uuid(punctual_adapters_system::UuidIds.next_id());
        TimerRequest::at(TimerKey::new(tenant.clone(), id), bench.now())
    });
    Ok(due.collect())
}

fn fire(bench: &mut Bench, handlers: Handlers, lasts: Duration) -> Outcome<Vec<f64>> {
    let copy = bench.copy(Recipe::pending(10_000, TENANTS))?;
    let rows = bench.rows(TENANTS)?;
    let from = bench.now().saturating_add(WARM_UP);
    let lateness = Lateness::of(from, from.saturating_add(lasts));
    let (noting, over) = (Arc::clone(&lateness), Arc::new(Semaphore::new(0)));
    let hanging = Arc::clone(&over);
    let handler = handler_fn(move |envelope| {
        let is_slow = match &envelope.message {
            Message::DueTimeReached(event) => is_saturated(&event.tenant_id),
            _ => false,
        };
        if !is_slow {
            noting.note_event(&envelope);
        }
        let over = Arc::clone(&hanging);
        async move {
            match handlers {
                _ if !is_slow => {}
                // Until the end, when the semaphore is closed.
                Handlers::Hang => _ = over.acquire().await,
                Handlers::TakeASecond => tokio::time::sleep(Duration::from_secs(1)).await,
            }
            Answer::Done
        }
    });
    bench.runtime.block_on(async {
        let ours = Ours::open(&copy.path(), &bench.clock)?;
        for tenant in 0..TENANTS {
            let batch = backlog(bench, tenant)?;
            all_created(ours.scheduling().schedule(batch).await)?;
        }
        let running = ours.run(WorkerSettings::default(), handler).await?;
        let load = Load {
            per_second: PER_SECOND,
            lasts: WARM_UP + lasts + AHEAD.1,
            ahead: AHEAD,
        };
        load.schedule(&ours.scheduling(), rows).await?;
        tokio::time::sleep(AHEAD.1).await;
        over.close();
        running.stop().await?;
        ours.close().await;
        Outcome::Ok(())
    })?;
    let wanted = lasts.as_secs_f64() * f64::from(PER_SECOND);
    let fired = f64::from(u32::try_from(lateness.count())?);
    if (fired / wanted - 1.0).abs() > 0.1 {
        return Err(format!("{fired} timers fired where {wanted} were to").into());
    }
    lateness.sorted()
}
