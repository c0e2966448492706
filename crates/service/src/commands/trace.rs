//! The life of one request: its calls, its timers, and what happened to them in order.

use std::fmt::Write as _;
use std::sync::Arc;

use punctual_adapters_sqlite::{SchemaSet, SqliteTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_api::TraceView;
use punctual_domain::{TimerEntry, TimerKey};
use punctual_ports::{CallStores, PageCursor, TimerPersistencePort};
use punctual_workflows::calls::{CallPorts, ReadCalls, Trace};

use super::clock;
use super::output::{Answers, say_rest, table};
use super::read::Page;
use crate::cli::{Output, TraceArgs};
use crate::failure::Failure;
use crate::settings::Environment;
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
    let mut stores = Vec::new();
    for settings in &databases {
        // One of two may not have been made yet; a single one has to be there.
        if databases.len() == 1 || settings.path.exists() {
            stores.push((settings.set, store::open_existing(settings, &clock)?));
        }
    }
    let found = find(&args, after, &stores, &clock).await;
    for (_, store) in stores {
        store.close().await;
    }
    match found? {
        Found::Calls(trace) => show_trace(args.page.answer.output, *trace),
        Found::Timers { timers, next } => {
            show_timers(args.page.answer.output, &timers, next.as_ref())
        }
        Found::Nothing => {
            let paths = databases.iter().map(|it| crate::display::path(&it.path));
            let paths: Vec<String> = paths.collect();
            Err(Failure::failed(format!(
                "nothing belongs to correlation id {} in {}",
                args.correlation,
                paths.join(" and ")
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
    stores: &[(SchemaSet, SqliteTimerStore)],
    clock: &SystemClock,
) -> Result<Found, Failure> {
    let of = |wanted: SchemaSet| {
        stores
            .iter()
            .find(|(set, _)| *set == wanted)
            .map(|(_, it)| it)
    };
    let (shared, alone) = (of(SchemaSet::Shared), of(SchemaSet::TimersOnly));
    if let Some(shared) = shared {
        let timers = Arc::new(alone.unwrap_or(shared).clone());
        // Nothing is published here: the process that serves the file does that.
        let bus = Arc::new(InProcessBus::new(Handlers::Inline));
        let clock = Arc::new(clock.clone());
        let calls = CallStores::new(shared.calls()?);
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
    let mut timers = alone
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
