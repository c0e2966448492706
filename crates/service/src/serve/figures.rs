//! Gauges that are sampled: the size of the files, and the number of waiting attempts.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use punctual::Punctual;
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_workflows::metric_names;

use crate::settings::ServeSettings;

const EVERY: Duration = Duration::from_secs(5);
/// Maximum number of attempts that are counted.
const COUNT_TO: usize = 100_000;

/// Samples every [`EVERY`], for as long as it is polled.
pub(super) async fn watch(
    settings: &ServeSettings,
    punctual: &Punctual,
    clock: &SystemClock,
) -> Infallible {
    let calls = settings.calls.as_ref().and_then(|it| it.database.as_ref());
    loop {
        measure("timers", &settings.database.path);
        if let Some(calls) = calls {
            measure("calls", &calls.path);
        }
        if let Some(calls) = punctual.calls()
            && let Ok(waiting) = calls.read.waiting_attempts(COUNT_TO).await
        {
            let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            metrics::gauge!(metric_names::EXECUTIONS_WAITING).set(f64::from(waiting));
        }
        clock.sleep_for(EVERY).await;
    }
}

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
    reason = "a gauge needs no exact bytes beyond 9 petabytes"
)]
const fn gauge(bytes: u64) -> f64 {
    bytes as f64
}
