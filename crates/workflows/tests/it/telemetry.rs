//! What operators see: counters, histograms, and logs that say which request they are about.

use std::sync::{Arc, Mutex};

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use punctual_domain::{CorrelationId, TimerData};
use punctual_ports::{Answer, TimerStores};
use punctual_workflows::{RepublishLost, TimerRequest, metric_names};
use uuid::Uuid;

use crate::ledger::{poison, reply, retry};
use crate::losing_bus::LosingBus;
use crate::world::{World, key, secs};

#[test]
fn firings_retries_and_dead_letters_are_counted_without_labels() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        metric_names::describe();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            world.ledger.answers(|event, earlier| {
                let answer = match earlier {
                    _ if event.key() == key("poison") => poison(),
                    0 if event.key() == key("retry") => retry(),
                    _ => Answer::Done,
                };
                reply(answer)
            });
            for name in ["good", "retry", "poison"] {
                world.schedule(&key(name), secs(1)).await;
            }
            world.advance(secs(30)).await;
        });
    });
    let all = snapshots.snapshot().into_vec();
    assert!(all.iter().all(|(key, ..)| key.key().labels().count() == 0));
    let counter = |name: &str| {
        let found = all.iter().find(|(key, ..)| key.key().name() == name);
        match found.map(|(.., value)| value) {
            Some(DebugValue::Counter(count)) => *count,
            other => panic!("{name}: {other:?}"),
        }
    };
    assert_eq!(counter(metric_names::SCHEDULES_PROCESSED), 2);
    assert_eq!(counter(metric_names::RETRIES), 1);
    assert_eq!(counter(metric_names::PERMANENT_ERRORS), 1);
    let last_poll = all
        .iter()
        .find(|(key, ..)| key.key().name() == metric_names::LAST_POLL);
    assert_eq!(last_poll.unwrap().0.kind(), MetricKind::Gauge);
    let lateness = all
        .iter()
        .find(|(key, ..)| key.key().name() == metric_names::LATENESS);
    assert!(matches!(&lateness.unwrap().3, DebugValue::Histogram(values) if values.len() == 2));
}

/// Reschedules its own timer, and then fails, or not, as its name says.
async fn fire_rescheduling_timers(names: &'static [&'static str]) -> World {
    let world = World::new().await;
    let timers = world.timers.clone();
    world.ledger.answers(move |event, _| {
        let (timers, event) = (timers.clone(), event.clone());
        Box::pin(async move {
            let next = event.due_at.saturating_add(secs(86_400));
            let request = TimerRequest::at(event.key(), next);
            timers.schedule(vec![request]).await.unwrap();
            match () {
                () if event.key() == key("poison") => poison(),
                () if event.key() == key("retry") => retry(),
                () => Answer::Done,
            }
        })
    });
    for name in names {
        world.schedule(&key(name), secs(1)).await;
    }
    world.advance(secs(3_600)).await;
    world
}

#[test]
fn a_failure_after_a_reschedule_is_counted_as_superseded_and_nothing_else() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = fire_rescheduling_timers(&["good", "retry", "poison"]).await;
            assert_eq!(world.ledger.seen().len(), 3, "each once, for a day");
        });
    });
    let all = snapshots.snapshot().into_vec();
    let counter = |name: &str| {
        let found = all.iter().find(|(key, ..)| key.key().name() == name);
        match found.map(|(.., value)| value) {
            Some(DebugValue::Counter(count)) => *count,
            None => 0,
            other => panic!("{name}: {other:?}"),
        }
    };
    assert_eq!(counter(metric_names::FAILURES_SUPERSEDED), 2);
    assert_eq!(
        counter(metric_names::SCHEDULES_PROCESSED),
        1,
        "the good one"
    );
    assert_eq!(counter(metric_names::RETRIES), 0);
    assert_eq!(counter(metric_names::PERMANENT_ERRORS), 0);
}

#[test]
fn a_failure_after_a_reschedule_promises_neither_a_retry_nor_a_dead_letter() {
    if !alone("telemetry::a_failure_after_a_reschedule_promises_neither_a_retry_nor_a_dead_letter")
    {
        return;
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(fire_rescheduling_timers(&["retry", "poison"]));
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("the new schedule stands") && line.contains("tenant_id")),
        "{text}"
    );
    assert!(
        text.contains("not this time") && text.contains("is not retried"),
        "{text}"
    );
    assert!(
        text.contains("not ever") && text.contains("is no dead letter"),
        "{text}"
    );
    assert!(
        !text.contains("retry_at") && !text.contains("attempt"),
        "{text}"
    );
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether a log line is enabled is remembered for the whole process, so beside other tests, which
/// log to nobody, a line may stay disabled: this test runs in a process of its own.
fn alone(test: &str) -> bool {
    const ALONE: &str = "PUNCTUAL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let output = command
        .args([test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    false
}

#[test]
fn logs_name_the_request_and_never_show_the_data() {
    if !alone("telemetry::logs_name_the_request_and_never_show_the_data") {
        return;
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let correlation_id = CorrelationId::from_uuid(Uuid::from_u128(0xabc));
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            world.ledger.answers(|_, earlier| {
                tracing::info!("the handler is at work");
                reply(if earlier == 0 { retry() } else { Answer::Done })
            });
            let request = TimerRequest {
                correlation_id: Some(correlation_id),
                data: Some(TimerData::from_json("\"hunter2\"").unwrap()),
                ..TimerRequest::at(key("a"), world.in_(secs(1)))
            };
            world.timers.schedule(vec![request]).await.unwrap();
            world.advance(secs(30)).await;
        });
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for line in [
        "the handler is at work",
        "could not be handled",
        "a timer has fired",
    ] {
        let found = text
            .lines()
            .find(|l| l.contains(line))
            .unwrap_or_else(|| panic!("{line}"));
        assert!(found.contains(&correlation_id.to_string()), "{found}");
    }
    assert!(!text.contains("hunter2"));
}

/// Publishes again what was fired, of a loss that finds something or of one that does not.
async fn recover(world: &World, since: punctual_domain::Timestamp) {
    let bus = LosingBus::new(&world.clock);
    bus.loses(1, since);
    let mut ports = world.ports.clone();
    ports.bus = bus.clone();
    let until = async {
        while bus.recovered().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let republish = RepublishLost::new(&ports, &TimerStores::new(world.store.clone()));
    republish.run(until).await.unwrap();
}

#[test]
fn losses_and_firings_that_are_published_again_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let start = world.now();
            for name in ["a", "b", "c"] {
                world.schedule(&key(name), secs(1)).await;
            }
            world.advance(secs(30)).await;
            recover(&world, start).await;
            // Nothing was fired since: that is no loss.
            recover(&world, world.now()).await;
        });
    });
    let all = snapshots.snapshot().into_vec();
    for (name, expected) in [
        (metric_names::BROKER_LOST, 1),
        (metric_names::REPUBLISHED, 3),
    ] {
        let found = all.iter().find(|(key, ..)| key.key().name() == name);
        let value = found.map(|(.., value)| value);
        assert_eq!(value, Some(&DebugValue::Counter(expected)), "{name}");
    }
}

#[test]
fn a_loss_is_logged_in_two_lines_and_one_that_lost_nothing_in_none() {
    if !alone("telemetry::a_loss_is_logged_in_two_lines_and_one_that_lost_nothing_in_none") {
        return;
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let start = world.now();
            recover(&world, start).await;
            assert_eq!(*log.0.lock().unwrap(), b"", "nothing was fired");
            world.schedule(&key("a"), secs(1)).await;
            world.advance(secs(30)).await;
            recover(&world, start).await;
        });
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines.iter().all(|line| line.contains("WARN")), "{text}");
    assert!(lines[0].contains("loss number 1"), "{text}");
    assert!(lines[1].contains("count"), "{text}");
}
