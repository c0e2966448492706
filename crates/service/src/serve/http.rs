//! The HTTP API beside the engine: bound before anything is opened, drained before it is closed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use metrics_exporter_prometheus::PrometheusHandle;
use punctual::{NotReady, Punctual};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_api::{
    ApiParts, ApiSettings as Limits, CallsApi, Instances, Readiness, ReadinessCheck, TimersApi,
};
use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{ClockPort, IdPort, Instance, PortError, PortErrorKind, TimerPersistencePort};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Engine;
use super::output_stall::OutputStall;
use crate::failure::Failure;
use crate::listen::Bound;
use crate::parse::Modules;
use crate::settings::this_process;

/// Maximum age of the worker's last poll while it counts as ready.
const POLLS_WITHIN: Duration = Duration::from_secs(30);

/// Maximum wait for the answer to a read. Whoever asks whether we are ready has little patience.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// Maximum time to finish requests at a shutdown; the attempts of calls have the rest.
const DRAIN: Duration = Duration::from_secs(2);

/// The API, served.
pub(super) struct Serving(oneshot::Receiver<Result<(), Failure>>);

impl Serving {
    /// Waits until it has answered the requests that came before the shutdown.
    pub(super) async fn ended(self) -> Result<(), Failure> {
        let stopped = |_| Err(Failure::failed("the API has stopped by itself"));
        self.0.await.unwrap_or_else(stopped)
    }
}

/// Serves until `shutdown` is ready, and then finishes the requests in flight.
///
/// It has a thread of its own: whatever clients do there, timers and calls have the other threads.
pub(super) fn start(
    bound: Bound,
    engine: Engine,
    metrics: PrometheusHandle,
    clock: SystemClock,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, Failure> {
    let failed = |error| Failure::refused(format!("the API has no thread: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (done, ended) = oneshot::channel();
    let serve = move || {
        let served = runtime.block_on(serve(bound, engine, metrics, clock, shutdown));
        // A reader that still hangs in the database must not hold us up.
        runtime.shutdown_background();
        // The receiver may have been dropped.
        let _ = done.send(served);
    };
    let named = std::thread::Builder::new().name("api".to_owned());
    named.spawn(serve).map_err(failed)?;
    Ok(Serving(ended))
}

async fn serve(
    bound: Bound,
    engine: Engine,
    metrics: PrometheusHandle,
    clock: SystemClock,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failure> {
    let Engine {
        punctual,
        stall,
        modules,
    } = engine;
    let limits = Limits {
        drain: DRAIN,
        ..Limits::default()
    };
    let calls = punctual.calls().filter(|_| modules.have_calls_api());
    let calls = calls.map(|calls| CallsApi {
        submit: calls.submit,
        read: calls.read,
    });
    // Timers of their own are scheduled only where they need not belong to a call.
    let has_timers = modules.timer && punctual.has_timers_of_their_own();
    let timers = has_timers.then(|| TimersApi {
        schedule: punctual.timer_ports().1,
        timers: punctual.timer_ports().0,
    });
    let parts = ApiParts {
        calls,
        timers,
        tokens: bound.tokens,
        instances: instances(punctual.clone(), alone(modules, punctual.now())),
        readiness: readiness(punctual, stall, clock.clone()),
        metrics: Arc::new(move || metrics.render()),
        ids: Arc::new(UuidIds),
        clock: Arc::new(clock.clone()),
        settings: limits,
    };
    let router = punctual_api::router(parts);
    let failed = |error| Failure::failed(format!("the API cannot listen: {error}"));
    bound.listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(bound.listener).map_err(failed)?;
    let served = punctual_api::serve(listener, router, limits, Arc::new(clock), shutdown).await;
    if served.cut_off > 0 {
        tracing::warn!(
            connections = served.cut_off,
            "connections were still busy and were cut off"
        );
    }
    Ok(())
}

/// This process, as it is listed where it has the database to itself.
fn alone(modules: Modules, now: Timestamp) -> Instance {
    Instance {
        id: UuidIds.next_id(),
        name: this_process(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        modules: modules.to_string(),
        started_at: now,
        heartbeat_at: now,
        clock_offset_millis: 0,
        claimed: None,
    }
}

/// The instances that share the database.
fn instances(punctual: Punctual, alone: Instance) -> Instances {
    Arc::new(move || {
        let (punctual, mut alone) = (punctual.clone(), alone.clone());
        async move {
            let unreadable = |error: punctual::Error| {
                let reason = error.to_string();
                PortError::new(PortErrorKind::Unavailable, "list the instances", reason)
            };
            alone.heartbeat_at = punctual.now();
            let listed = punctual.instances().await.map_err(unreadable)?;
            Ok(listed.unwrap_or_else(|| vec![alone]))
        }
        .boxed()
    })
}

/// Checks that the database can be read and written, the broker is connected, the worker polls, and
/// firing lines, if there are any, are read.
fn readiness(punctual: Punctual, stall: Option<OutputStall>, clock: SystemClock) -> Readiness {
    Arc::new(move || {
        let (punctual, clock) = (punctual.clone(), clock.clone());
        let check = |name, problem| ReadinessCheck { name, problem };
        let lines = stall.as_ref();
        let lines = lines.map(|stall| check("standard output", stall.problem()));
        async move {
            let (database, writable) = join(readable(&punctual, &clock), punctual.writable()).await;
            crate::metrics::set_writable(&writable);
            let (worker, broker) = match punctual.readiness() {
                Err(NotReady::Polls(why)) => (Some(why), None),
                Err(why) => (poll_problem(&punctual, &clock), Some(why.to_string())),
                Ok(()) => (poll_problem(&punctual, &clock), None),
            };
            let checks = [
                check("database", database),
                check("writing", writable.err()),
                check("broker", broker),
                check("worker", worker),
            ];
            checks.into_iter().chain(lines).collect()
        }
        .boxed()
    })
}

/// Why the database cannot be read, if so: the timers, or the attempts where these are all there is.
async fn readable(punctual: &Punctual, clock: &SystemClock) -> Option<String> {
    let store: Arc<dyn TimerPersistencePort> = punctual.timer_ports().0;
    let absent = TimerKey::new(TenantId::default(), ServiceCallId::from_uuid(Uuid::nil()));
    let read = async {
        match punctual.calls() {
            Some(calls) if !punctual.fires() => calls.read.waiting_attempts(1).await.map(drop),
            _ => store.find(absent).await.map(drop),
        }
    };
    tokio::select! {
        biased;
        found = read => found.err().map(|error| error.to_string()),
        () = clock.sleep_for(READ_WITHIN) => Some("it has not answered for two seconds".to_owned()),
    }
}

/// Why the worker does not seem to poll, if so.
fn poll_problem(punctual: &Punctual, clock: &SystemClock) -> Option<String> {
    if !punctual.fires() {
        return None;
    }
    match punctual.last_poll() {
        Some(at) if clock.now().since(at) <= POLLS_WITHIN => None,
        Some(at) => Some(format!("its last poll for due timers was at {at}")),
        None => Some("it has not polled for due timers yet".to_owned()),
    }
}
