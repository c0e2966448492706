//! The metrics that `/metrics` exports.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use punctual::Punctual;
use punctual_adapters_sqlite::{Role, SchemaSet};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_workflows::metric_names;

use crate::failure::Failure;
use crate::settings::ServeSettings;

/// From a millisecond to the longest attempt.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 3600.0,
];

/// Interval at which gauges are sampled, and the recorder drains its histograms; without it they grow
/// until a scrape.
const UPKEEP: Duration = Duration::from_secs(5);

/// Number of upkeeps between two counts of the backlog, each of which scans an index.
const COUNT_EVERY: u32 = 3;
/// Maximum number of index entries that a count scans.
const COUNT_TO: usize = 1_000_000;
/// Maximum number of waiting attempts that are counted.
const COUNT_ATTEMPTS_TO: usize = 100_000;

/// Installs the recorder.
pub(crate) fn install(settings: &ServeSettings) -> Result<PrometheusHandle, Failure> {
    let failed = |error| Failure::refused(format!("metrics cannot be recorded: {error}"));
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .map_err(failed)?
        .install_recorder()
        .map_err(failed)?;
    metric_names::describe();
    punctual_api::metric_names::describe();
    if settings.database.sqlite().is_none() {
        punctual_adapters_postgres::metric_names::describe();
    }
    // Counters are exported from the start as 0, so that an alert can be set on them.
    for name in [
        metric_names::COMMANDS_RECEIVED,
        metric_names::SCHEDULES_PROCESSED,
        metric_names::PERMANENT_ERRORS,
        metric_names::CALLS_SUBMITTED,
        metric_names::CALLS_DELETED,
        metric_names::OUTBOX_PARKED,
        metric_names::EXECUTIONS_REFUSED,
    ] {
        metrics::counter!(name).increment(0);
    }
    Ok(handle)
}

/// Exports whether the store accepts writes.
pub(crate) fn set_writable(writable: &Result<(), String>) {
    metrics::gauge!(metric_names::STORE_WRITABLE).set(f64::from(u8::from(writable.is_ok())));
}

/// Runs the upkeep of the recorder and samples gauges, for as long as it is polled.
pub(crate) async fn keep(
    handle: &PrometheusHandle,
    clock: &SystemClock,
    punctual: &Punctual,
    settings: &ServeSettings,
) -> Infallible {
    let calls = settings.calls.as_ref().and_then(|it| it.database.as_ref());
    let mut turns = (0..COUNT_EVERY).cycle();
    loop {
        set_writable(&punctual.writable_as_known().await);
        for file in settings.database.sqlite().into_iter().chain(calls) {
            let name = match file.set {
                SchemaSet::ExecutionOnly => "execution",
                _ if file.role == Role::Calls => "calls",
                _ => "timers",
            };
            measure(name, &file.path);
        }
        if let Some(calls) = punctual.calls()
            && let Ok(waiting) = calls.read.waiting_attempts(COUNT_ATTEMPTS_TO).await
        {
            metrics::gauge!(metric_names::EXECUTIONS_WAITING).set(gauge(waiting as u64));
        }
        if turns.next() == Some(0)
            && punctual.fires()
            && let Ok((pending, overdue)) = punctual.backlog(COUNT_TO).await
        {
            metrics::gauge!(metric_names::PENDING).set(gauge(pending as u64));
            metrics::gauge!(metric_names::OVERDUE).set(gauge(overdue as u64));
        }
        clock.sleep_for(UPKEEP).await;
        handle.run_upkeep();
    }
}

/// Exports the size of a database file and of its log.
fn measure(database: &'static str, path: &Path) {
    let mut log = OsString::from(path);
    log.push("-wal");
    // A missing file has no bytes; that a database is missing is reported elsewhere.
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |it| it.len());
    metrics::gauge!(metric_names::DATABASE_BYTES, "database" => database).set(gauge(bytes(path)));
    let log = bytes(Path::new(&log));
    metrics::gauge!(metric_names::DATABASE_LOG_BYTES, "database" => database).set(gauge(log));
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge needs no exact number beyond 9 quadrillions"
)]
const fn gauge(number: u64) -> f64 {
    number as f64
}
