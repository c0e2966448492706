//! A program in another language that knows only `docs/messages.md` schedules a timer over the
//! broker and hears of it.

use std::path::Path;
use std::process::Command;

use punctual_domain::{Message, MessageEnvelope};
use punctual_test_servers::{shared_nats_url, shared_python, unique_prefix};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::{Ended, Home, Running, run};

/// Runs `remind.py` until it has heard of its timer or has given up.
fn remind(python: &Path, url: &str, arguments: &[&str]) -> Ended {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/remind.py");
    run(Command::new(python)
        .arg(program)
        .args(arguments)
        .env("NATS_URL", url))
}

fn envelope(line: &str) -> MessageEnvelope {
    MessageEnvelope::from_json(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_program_in_python_schedules_a_timer_and_hears_of_it() {
    let (Some(url), Some(python)) = (shared_nats_url(), shared_python()) else {
        return;
    };
    let (home, prefix) = (Home::new(), unique_prefix());
    let mut serve = home.command("serve --modules timer");
    serve
        .env("TIMER_BROKER_URL", &url)
        .env("TIMER_BROKER_PREFIX", &prefix);
    let serving = Running::start(&mut serve);

    // It waits for the service by itself: the streams are there once that has reached the broker.
    let arguments = [
        "--prefix", &prefix, "--tenant", "tenant-a", "--in-ms", "500",
    ];
    let ended = remind(
        &python,
        &url,
        &[&arguments[..], &["--data", "{\"say\":\"tea\"}"]].concat(),
    );
    serving.signal(Signal::TERM);
    let served = serving.end();
    assert_eq!(ended.code, Some(0), "{ended:?}\n{served:?}");
    assert_eq!(served.code, Some(0), "{served:?}");

    let lines: Vec<MessageEnvelope> = ended.stdout.lines().map(envelope).collect();
    let [command, event] = lines.as_slice() else {
        panic!("{ended:?}");
    };
    let (Message::ScheduleTimer(asked), Message::DueTimeReached(told)) =
        (&command.message, &event.message)
    else {
        panic!("{ended:?}");
    };
    assert_eq!(told.key(), asked.key());
    assert_eq!((told.due_at, &told.data), (asked.due_at, &asked.data));
    assert_eq!(told.read::<Value>().unwrap(), json!({"say": "tea"}));
    assert!(told.reached_at >= told.due_at, "{told:?}");
    assert_eq!(
        told.firing_id.to_string(),
        format!(
            "tenant-a:{}:{}:{}",
            asked.service_call_id,
            command.timestamp.as_millis(),
            asked.due_at.as_millis()
        )
    );
    assert_eq!(
        event.metadata.correlation_id,
        command.metadata.correlation_id
    );
    assert_eq!(event.metadata.causation_id, None);
}
