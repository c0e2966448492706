//! What operators see of calls.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use punctual_workflows::metric_names;

use super::http::Behaviour;
use super::world::{CallWorld, call};
use crate::world::{ms, secs};

#[test]
fn the_lateness_of_a_call_counts_from_its_due_time_to_its_request_and_once() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = CallWorld::with_rare_polls().await;
            world.outside.http.does(Behaviour::Answer(200, ms(7)));
            let overdue = world.now().saturating_sub(secs(3));
            world.submit(call("late", overdue)).await;
            world.submit(call("in-time", world.in_(secs(1)))).await;
            world.advance(secs(30)).await;
        });
    });
    let all = snapshots.snapshot().into_vec();
    let found = |name: &str| {
        let found = all.iter().find(|(key, ..)| key.key().name() == name);
        &found.unwrap_or_else(|| panic!("{name} is missing")).3
    };
    let DebugValue::Histogram(late) = found(metric_names::CALL_LATENESS) else {
        panic!("it is a histogram");
    };
    let mut late: Vec<f64> = late.iter().map(|seconds| seconds.into_inner()).collect();
    late.sort_by(f64::total_cmp);
    assert_eq!(late, [0.0, 3.0]);
    let running = found(metric_names::EXECUTIONS_RUNNING);
    assert!(matches!(running, DebugValue::Gauge(value) if value.into_inner() == 0.0));
}
