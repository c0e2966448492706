//! Serving: fires timers, and makes service calls, until told to stop.
//!
//! | what happens | what we do | exit code |
//! |---|---|---|
//! | SIGTERM, SIGINT | take and claim nothing more, finish what is in flight, for at most 25 s; an HTTP attempt that still runs then is recorded as interrupted | 0 |
//! | a second signal | end at once, unless it comes within a fifth of a second of the first; what was in flight fires again after the next start | 128 + its number |
//! | the broker goes away | go on storing; what is due waits until it is back | – |
//! | standard output breaks | the same as on a signal; firings that were not written stay scheduled | 1 |
//! | the store is broken | stop, with the cause | 1 |
//! | a panic anywhere | end at once | 1 |

mod banner;
mod file_check;
mod firing_lines;
mod http;
mod signals;
mod stop;

use punctual::http::{HyperHttpClient, Roots};
use punctual::{Builder, CallOptions, Punctual, Synchronous};
use punctual_adapters_system::SystemClock;

use crate::failure::Failure;
use crate::settings::{CallsSettings, ServeSettings};
use crate::stdout;
use crate::store::refuse_what_is_no_file;
use file_check::Gone;
use firing_lines::FiringLines;
use signals::Signals;
use stop::{Reason, Stop};

/// Fires timers until a signal comes or going on makes no sense, and says at the end why it ended.
pub(crate) async fn run(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    let served = serve(settings, clock).await;
    match &served {
        Ok(()) => tracing::info!(reason = "a signal", "stopped: no timer is lost"),
        // Whoever could not even start has not stopped.
        Err(Failure::Failed(reason)) => tracing::error!(reason, "stopped: no timer is lost"),
        Err(_) => {}
    }
    served
}

/// Puts the engine together, with somebody to tell: the calls, the broker, or whoever reads standard
/// output. `None` if it was stopped meanwhile.
async fn build(settings: &ServeSettings, stop: &Stop) -> Result<Option<Punctual>, Failure> {
    refuse_what_is_no_file(&settings.database.path)?;
    let mut builder = Punctual::builder()
        .sqlite_with(settings.database.clone())
        .worker(settings.worker)
        .retention(settings.retention);
    if let Some(broker) = &settings.broker {
        builder = builder.nats_with(broker.clone()).take_commands();
    }
    if let Some(calls) = &settings.calls {
        return built(with_calls(builder, calls)?, stop).await;
    }
    if settings.broker.is_some() {
        return built(builder, stop).await;
    }
    let unwritable =
        |error| Failure::refused(format!("standard output cannot be written: {error}"));
    let stdout = stdout::open().map_err(unwritable)?;
    let (lines, unwritten) = FiringLines::new();
    let builder = builder.subscriber(lines, settings.worker.publish_batch);
    let Some(punctual) = built(builder, stop).await? else {
        return Ok(None);
    };
    // Only now that the role is ours: another process may still be writing to the same file.
    let is_durable = settings.database.synchronous == Synchronous::Full;
    unwritten
        .start(stdout, stop.clone(), is_durable)
        .map_err(unwritable)?;
    Ok(Some(punctual))
}

fn with_calls(builder: Builder, calls: &CallsSettings) -> Result<Builder, Failure> {
    let client = HyperHttpClient::new(calls.allowed.clone(), Roots::of_this_machine())
        .map_err(|error| Failure::refused(error.to_string()))?;
    let mut options = CallOptions::new(client);
    options.settings = calls.calls;
    let builder = builder.service_calls(options);
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
        built = builder.build() => match built {
            Ok(punctual) => Ok(Some(punctual)),
            Err(error) => Err(Failure::refused(error.to_string())),
        },
    }
}

async fn serve(settings: ServeSettings, clock: SystemClock) -> Result<(), Failure> {
    // Signals first: from now on none of them ends us in an unforeseen way.
    let stop = Stop::new();
    let signals = Signals::listen()
        .map_err(|error| Failure::refused(format!("signals cannot be listened to: {error}")))?;
    tokio::spawn(signals.obey(stop.clone(), clock.clone()));
    // Before the database is opened: whoever cannot listen has changed nothing.
    let bound = settings.api.as_ref().map(http::bind).transpose()?;
    let address = bound.as_ref().map(http::Bound::address).transpose()?;
    let metrics = crate::metrics::install()?;
    let Some(punctual) = build(&settings, &stop).await? else {
        return Ok(());
    };
    let stopped =
        |error: punctual::Error| Failure::failed(format!("the timer worker has stopped: {error}"));
    // Nothing has begun if it cannot be started, as beside a consumer that would lose commands.
    let running = punctual.start().await;
    let running = running.map_err(|error| Failure::refused(error.to_string()))?;
    let gone = Gone::not_yet();
    let api = bound.map(|bound| {
        let (stop, gone) = (stop.clone(), gone.clone());
        let asked = async move {
            tokio::select! {
                _ = stop.requested() => {}
                () = gone.noticed() => {}
            }
        };
        tokio::spawn(bound.serve(punctual.clone(), metrics.clone(), clock.clone(), asked))
    });
    let separate = settings
        .calls
        .as_ref()
        .and_then(|calls| calls.database.as_ref());
    let calls_file = &separate.unwrap_or(&settings.database).path;
    banner::show(&settings, address);
    tokio::select! {
        _ = stop.requested() => {}
        _ = running.stopped() => {}
        never = file_check::watch(&settings.database.path, &clock, &gone) => match never {},
        never = file_check::watch(calls_file, &clock, &gone) => match never {},
        never = crate::metrics::keep(&metrics, &clock, &punctual) => match never {},
    }

    // Whatever ended the engine ends the rest. A store that broke is the worst of the reasons, also
    // if it did so while we were stopping.
    stop.request(Reason::Asked);
    // First, so that whoever was promised an answer gets it from an engine that still runs.
    let answered = match api {
        Some(api) => api
            .await
            .unwrap_or_else(|error| Err(Failure::failed(format!("the API has stopped: {error}")))),
        None => Ok(()),
    };
    running.shutdown().await.map_err(stopped)?;
    answered?;
    match stop.requested().await {
        Reason::Failed(sentence) => Err(Failure::failed(sentence)),
        Reason::Asked => Ok(()),
    }
}
