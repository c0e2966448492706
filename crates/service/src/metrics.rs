//! The figures that `/metrics` shows.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_workflows::metric_names;

use crate::failure::Failure;

/// From a millisecond to the longest attempt.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 3600.0,
];

/// Without it, what was measured would be kept whole until somebody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Begins to count.
pub(crate) fn install() -> Result<PrometheusHandle, Failure> {
    let failed = |error| Failure::refused(format!("figures cannot be counted: {error}"));
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .map_err(failed)?
        .install_recorder()
        .map_err(failed)?;
    metric_names::describe();
    Ok(handle)
}

/// Keeps what is counted small, for as long as it is polled.
pub(crate) async fn keep(
    handle: &PrometheusHandle,
    clock: &SystemClock,
) -> std::convert::Infallible {
    loop {
        clock.sleep_for(UPKEEP).await;
        handle.run_upkeep();
    }
}
