//! The life of one request: its calls, its timers, and what happened to them in order.

use std::fmt::Write as _;
use std::sync::Arc;

use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_api::TraceView;
use punctual_domain::{TimerEntry, TimerKey};
use punctual_ports::{Backend, PageCursor};
use punctual_workflows::calls::{CallPorts, ReadCalls, Trace};

use super::clock;
use super::output::{Answers, say_rest, table};
use super::read::Page;
use crate::cli::{Output, TraceArgs};
use crate::failure::Failure;
use crate::settings::{Environment, TimerDatabase};
use crate::store;

/// Prints the calls, timers and steps of one request.
pub(crate) async fn run(args: TraceArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let clock = clock()?;
    let after = args.page.after.clone().map(|text| {
        let key = PageCursor(text).key();
        key.ok_or_else(|| {
            Failure::usage("--after is no nextCursor of a trace: give one as it was printed")
        })
    });
    let after = after.transpose()?;
    let databases = environment.to_read(&args.page.answer.database)?;
    let mut stores: Vec<Arc<dyn Backend>> = Vec::new();
    for database in &databases {
        match database {
            // One of two may not have been made yet; a single one has to be there.
            TimerDatabase::Sqlite(settings) if databases.len() > 1 && !settings.path.exists() => {}
            TimerDatabase::Sqlite(settings) => {
                stores.push(Arc::new(store::open_existing(settings, &clock)?));
            }
            TimerDatabase::Postgres(settings) => {
                stores.push(Arc::new(store::open_postgres(settings, &clock).await?));
            }
        }
    }
    if stores.iter().any(|it| !it.has_timers()) {
        for store in stores {
            store.close().await;
        }
        return Err(Failure::refused(crate::settings::ATTEMPTS_ALONE));
    }
    let found = find(&args, after, &stores, &clock).await;
    for store in stores {
        store.close().await;
    }
    match found? {
        Found::Calls(trace) => show_trace(args.page.answer.output, *trace),
        Found::Timers { timers, next } => {
            show_timers(args.page.answer.output, &timers, next.as_ref())
        }
        Found::Nothing => {
            let names: Vec<String> = databases.iter().map(TimerDatabase::to_string).collect();
            Err(Failure::failed(format!(
                "nothing belongs to correlation id {} in {}",
                args.correlation,
                names.join(" and ")
            )))
        }
    }
}

enum Found {
    Calls(Box<Trace>),
    Timers {
        timers: Vec<TimerEntry>,
        next: Option<TimerKey>,
    },
    Nothing,
}

async fn find(
    args: &TraceArgs,
    after: Option<TimerKey>,
    stores: &[Arc<dyn Backend>],
    clock: &SystemClock,
) -> Result<Found, Failure> {
    let of = |is_wanted: fn(&Arc<dyn Backend>) -> bool| stores.iter().find(|it| is_wanted(it));
    let shared = of(|it| !it.capabilities().standalone_timers);
    let alone = of(|it| it.capabilities().standalone_timers);
    if let Some(shared) = shared
        && let Some(calls) = shared.call_stores()
    {
        let timers = alone.unwrap_or(shared).timer_stores().persistence;
        // Nothing is published here: the process that serves the file does that.
        let bus = Arc::new(InProcessBus::new(Handlers::Inline));
        let clock = Arc::new(clock.clone());
        let ports = CallPorts::new(clock, Arc::new(UuidIds), bus, calls, timers);
        let trace = ReadCalls::new(&ports)
            .trace(args.correlation, after.clone(), args.page.limit)
            .await?;
        if !trace.steps.is_empty() || !trace.calls.is_empty() {
            return Ok(Found::Calls(Box::new(trace)));
        }
    }
    let Some(alone) = alone else {
        return Ok(Found::Nothing);
    };
    let limit = args.page.limit.saturating_add(1);
    let timers = alone.timer_stores().persistence;
    let mut timers = timers
        .find_by_correlation(args.correlation, after, limit)
        .await?;
    let has_more = timers.len() > args.page.limit;
    timers.truncate(args.page.limit);
    let last = timers.last().map(|timer| timer.timer().key.clone());
    Ok(match last {
        None => Found::Nothing,
        Some(last) => Found::Timers {
            timers,
            next: has_more.then_some(last),
        },
    })
}

fn show_timers(
    output: Output,
    timers: &[TimerEntry],
    next: Option<&TimerKey>,
) -> Result<(), Failure> {
    let next = next.map(PageCursor::after_key);
    let page = Page {
        items: timers,
        next_cursor: next.as_ref().map(|cursor| cursor.0.as_str()),
    };
    Answers::open()?.show(output, &page, || table(timers))?;
    say_rest(false, next.map(|cursor| cursor.0));
    Ok(())
}

fn show_trace(output: Output, trace: Trace) -> Result<(), Failure> {
    let next = trace.next.as_ref().map(PageCursor::after_key);
    let text = steps_and_calls(&trace);
    Answers::open()?.show(output, &TraceView::from(trace), || text)?;
    say_rest(false, next.map(|cursor| cursor.0));
    Ok(())
}

fn steps_and_calls(trace: &Trace) -> String {
    let mut text = format!(
        "{:24}  {:22}  {:36}  SERVICE CALL OF TENANT\n",
        "AT", "WHAT", "MESSAGE"
    );
    for step in &trace.steps {
        let message = step.message_id.map(|id| id.to_string()).unwrap_or_default();
        let (id, tenant) = (step.key.service_call_id, &step.key.tenant_id);
        let (at, what) = (step.at.to_string(), step.what);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{at:24}  {what:22}  {message:36}  {id} of {tenant}");
    }
    for call in &trace.calls {
        let (details, status) = (call.details(), call.status());
        let (id, name) = (details.key.service_call_id, &details.name);
        let _ = writeln!(text, "\n{id} ({name}): {status}");
    }
    text
}
