//! Serving: fires timers, and makes service calls, until a signal.
//!
//! | what happens | what we do | exit code |
//! |---|---|---|
//! | SIGTERM, SIGINT | accept and claim nothing more, finish what is in flight, for at most 25 s; an HTTP attempt that still runs then is recorded as interrupted | 0 |
//! | a second signal | end at once, unless it comes within a fifth of a second of the first; what was in flight fires again after the next start | 128 + its number |
//! | SIGHUP | read tokens and certificate authorities again; what cannot be used changes nothing | – |
//! | the broker goes away | go on storing; what is due waits until it is back | – |
//! | standard output is not read | go on with calls and storing; firings wait, and the log and readiness say so | – |
//! | standard output breaks | the same as on a signal; firings that were not written stay scheduled | 1 |
//! | the store is broken, or its file was renamed, removed or replaced | accept and start nothing more, stop with the cause; health answers to the end | 1 |
//! | a panic anywhere | end at once | 1 |

mod banner;
mod clock_check;
mod firing_lines;
mod http;
mod output_stall;
mod reload;
mod signals;
mod stop;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use punctual::http::{HyperHttpClient, Roots};
use punctual::{Builder, CallModules, CallOptions, Punctual, Synchronous};
use punctual_adapters_system::SystemClock;

use crate::failure::Failure;
use crate::listen;
use crate::parse::Modules;
use crate::settings::{CallsSettings, ServeSettings, TimerDatabase};
use crate::stdout;
use crate::store::refuse_what_is_no_file;
use firing_lines::FiringLines;
use output_stall::OutputStall;
use reload::Reload;
use signals::Signals;
use stop::{Reason, Stop};

/// Fires timers until a signal comes or going on makes no sense, and says at the end why it ended.
pub(crate) async fn run(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    let served = serve(settings, clock).await;
    match &served {
        Ok(()) => tracing::info!(reason = "a signal", "stopped: no timer is lost"),
        // A failed start is reported by the caller.
        Err(Failure::Failed(reason)) => tracing::error!(reason, "stopped"),
        Err(_) => {}
    }
    served
}

/// The engine, and the standard output that its firing lines may wait for.
#[derive(Clone)]
struct Engine {
    punctual: Punctual,
    /// `None` if it writes no lines.
    stall: Option<OutputStall>,
    /// What it runs.
    modules: Modules,
}

impl Engine {
    /// Logs the stalls of standard output, for as long as it is polled.
    async fn watch_output(&self) -> Infallible {
        match &self.stall {
            Some(stall) => stall.watch().await,
            None => pending().await,
        }
    }
}

/// Builds the engine with the receivers of its firings: calls, the broker, or standard output. `None`
/// if a stop was requested meanwhile.
async fn build(
    settings: &ServeSettings,
    client: Option<&Arc<HyperHttpClient>>,
    stop: &Stop,
    clock: &SystemClock,
) -> Result<Option<Engine>, Failure> {
    let builder = Punctual::builder();
    let builder = match &settings.database {
        TimerDatabase::Sqlite(file) => {
            refuse_what_is_no_file(&file.path)?;
            builder.sqlite_with(file.clone())
        }
        TimerDatabase::Postgres(database) => builder.postgres_with((**database).clone()),
    };
    let mut builder = builder
        .worker(settings.worker)
        .retention(settings.retention);
    // Whoever runs the modules publishes what the API alone has submitted.
    let broker = settings.broker.as_ref();
    if let Some(broker) = broker.filter(|_| !settings.modules.are_api_alone()) {
        builder = builder.nats_with(broker.clone()).take_commands();
        if settings.modules.are_timers_alone() {
            // Calls may be anywhere.
            builder = builder.hear_deletions();
        }
    }
    let modules = settings.modules;
    let calls = settings.calls.as_ref().zip(client);
    if !settings.writes_lines() {
        if let Some(calls) = calls {
            builder = with_calls(builder, modules, calls, None)?;
        }
        let built = built(builder, stop).await?;
        let stall = None;
        return Ok(built.map(|punctual| Engine {
            punctual,
            stall,
            modules,
        }));
    }
    let unwritable =
        |error| Failure::refused(format!("standard output cannot be written: {error}"));
    let stdout = stdout::open().map_err(unwritable)?;
    let (lines, unwritten) = FiringLines::new();
    let builder = match calls {
        Some(calls) => {
            let lines = lines.beside_calls(clock.clone());
            with_calls(builder, modules, calls, Some(lines))?
        }
        None => builder.subscriber(lines, settings.worker.publish_batch),
    };
    let Some(punctual) = built(builder, stop).await? else {
        return Ok(None);
    };
    // Only now that the role is ours: another process may still be writing to the same file.
    let file = settings.database.sqlite();
    let is_durable = file.is_none_or(|file| file.synchronous == Synchronous::Full);
    let stall = OutputStall::new(clock.clone());
    unwritten
        .start(stdout, stop.clone(), is_durable, stall.clone())
        .map_err(unwritable)?;
    let stall = Some(stall);
    Ok(Some(Engine {
        punctual,
        stall,
        modules,
    }))
}

/// The client that makes the requests of calls.
fn http_client(calls: &CallsSettings) -> Result<Arc<HyperHttpClient>, Failure> {
    HyperHttpClient::new(calls.allowed.clone(), Roots::of_this_machine())
        .map(Arc::new)
        .map_err(Failure::refused)
}

/// `lines`: handles the firings of timers that belong to no call.
fn with_calls(
    builder: Builder,
    modules: Modules,
    (calls, client): (&CallsSettings, &Arc<HyperHttpClient>),
    lines: Option<FiringLines>,
) -> Result<Builder, Failure> {
    let builder = builder.service_calls(CallOptions {
        http: Arc::<HyperHttpClient>::clone(client),
        settings: calls.calls,
        modules: CallModules {
            orchestration: modules.orchestration,
            timer: modules.timer,
            execution: modules.execution,
        },
        other_timers: lines.map(|lines| Arc::new(lines) as _),
    });
    match &calls.database {
        None => Ok(builder),
        Some(database) => {
            refuse_what_is_no_file(&database.path)?;
            Ok(builder.calls_in(database.clone()))
        }
    }
}

async fn built(builder: Builder, stop: &Stop) -> Result<Option<Punctual>, Failure> {
    tokio::select! {
        biased;
        _ = stop.requested() => Ok(None),
        built = builder.build() => built.map(Some).map_err(Failure::refused),
    }
}

async fn serve(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    // Signals first: from now on none of them ends us in an unforeseen way.
    let stop = Stop::default();
    let (signals, hangup) = Signals::listen()
        .map_err(|error| Failure::refused(format!("signals cannot be listened to: {error}")))?;
    tokio::spawn(signals.obey(stop.clone(), clock.clone()));
    // Before the database is opened: a failed bind changes nothing.
    let bound = settings.api.as_ref().map(listen::bind).transpose()?;
    let address = bound.as_ref().map(listen::Bound::address).transpose()?;
    let metrics = crate::metrics::install(&settings)?;
    let client = settings.calls.as_ref().map(http_client).transpose()?;
    let Some(engine) = build(&settings, client.as_ref(), &stop, &clock).await? else {
        return Ok(());
    };
    let punctual = &engine.punctual;
    tokio::spawn(Reload::new(bound.as_ref(), client).on(hangup));
    let stopped =
        |error: punctual::Error| Failure::failed(format!("the timer worker has stopped: {error}"));
    // A start that fails, as beside a consumer that would lose commands, has started nothing.
    let running = punctual.start().await.map_err(Failure::refused)?;
    let api = bound.map(|bound| {
        let stop = stop.clone();
        let shutdown = async move { drop(stop.requested().await) };
        http::start(
            bound,
            engine.clone(),
            metrics.clone(),
            clock.clone(),
            shutdown,
        )
    });
    let api = api.transpose()?;
    banner::show(&settings, address);
    let has_stopped = tokio::select! {
        _ = stop.requested() => false,
        _ = running.stopped() => true,
        never = crate::metrics::keep(&metrics, &clock, punctual, &settings) => match never {},
        never = clock_check::watch(&clock) => match never {},
        never = engine.watch_output() => match never {},
    };

    // Requests in flight are answered by an engine that still runs. One that has stopped by itself is
    // shut down first: it refuses every request, and health is answered meanwhile.
    let (ended, answered) = if has_stopped {
        let ended = running.shutdown().await;
        stop.request(Reason::Requested);
        (ended, answered(api).await)
    } else {
        let answered = answered(api).await;
        (running.shutdown().await, answered)
    };
    // A store that broke is the worst of the reasons, also if it did so while we were stopping.
    ended.map_err(stopped)?;
    answered?;
    match stop.requested().await {
        Reason::Failed(sentence) => Err(Failure::failed(sentence)),
        Reason::Requested => Ok(()),
    }
}

/// Waits until the API has answered the requests in flight.
async fn answered(api: Option<http::Serving>) -> Result<(), Failure> {
    match api {
        Some(api) => api.ended().await,
        None => Ok(()),
    }
}
