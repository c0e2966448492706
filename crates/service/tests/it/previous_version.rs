//! A file that the version before wrote and was killed at: it is migrated, and its calls go on.
//!
//! `previous_version.sql` is a dump of such a file, of calls in every state and with messages of every
//! kind that waited to be published. The target's address in it is replaced by one of the test's own.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::running::{Home, PATIENCE};
use crate::target::Target;
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

const DUMP: &str = include_str!("previous_version.sql");
/// The target's address in the dump.
const THEN: &str = "127.0.0.1:47999";

/// What the file says of a call before anything is migrated.
#[derive(Debug)]
struct Before {
    tenant: String,
    path: String,
    status: String,
    /// State of its attempt.
    attempt: Option<String>,
    is_far: bool,
}

/// The calls of the file by id, and the messages that wait in it.
fn load(home: &Home, target: &Target) -> (BTreeMap<String, Before>, BTreeSet<String>) {
    let connection = Connection::open(home.path("calls.db")).unwrap();
    let dump = DUMP.replace(THEN, &target.address().to_string());
    // As that version had it; the rows come in the order of their tables' names.
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = OFF;";
    connection
        .execute_batch(&format!("{pragmas}{dump}"))
        .unwrap();
    let mut calls = connection
        .prepare(
            "SELECT c.service_call_id, c.tenant_id, json_extract(c.request_spec, '$.url'), c.status, l.state,
                c.due_at > '2090'
            FROM service_calls c LEFT JOIN http_execution_log l USING (tenant_id, service_call_id)",
        )
        .unwrap();
    let calls = calls
        .query_map([], |row| {
            let url: String = row.get(2)?;
            let before = Before {
                tenant: row.get(1)?,
                path: url.replace(&target.url(""), ""),
                status: row.get(3)?,
                attempt: row.get(4)?,
                is_far: row.get(5)?,
            };
            Ok((row.get(0)?, before))
        })
        .unwrap();
    let mut waiting = connection
        .prepare("SELECT DISTINCT event_type FROM outbox WHERE published_at IS NULL")
        .unwrap();
    let waiting = waiting.query_map([], |row| row.get(0)).unwrap();
    (
        calls.map(Result::unwrap).collect(),
        waiting.map(Result::unwrap).collect(),
    )
}

/// The call, once it has its outcome or if it is due in many years.
fn settled(api: Api, id: &str, before: &Before) -> Value {
    let clock = SystemClock::start().unwrap();
    let give_up = clock.now().saturating_add(PATIENCE * 4);
    loop {
        let call = api.get(&format!(
            "/api/tenants/{}/service-calls/{id}",
            before.tenant
        ));
        if call["outcome"].is_object() || before.is_far {
            return call;
        }
        assert!(clock.now() < give_up, "it has no end: {before:?} {call}");
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
}

#[test]
fn calls_in_every_state_that_the_version_before_left_go_on_and_none_is_made_twice() {
    let (home, target) = (Home::new(), Target::start());
    let (calls, waiting) = load(&home, &target);
    let messages = [
        "ServiceCallSubmitted",
        "ScheduleTimer",
        "StartExecution",
        "ServiceCallRunning",
        "ExecutionStarted",
        "ExecutionSucceeded",
        "ServiceCallSucceeded",
    ];
    for message in messages {
        assert!(waiting.contains(message), "{message} of {waiting:?}");
    }
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(&mut command);
    let mut ends = BTreeMap::<_, usize>::new();
    for (id, before) in &calls {
        let call = settled(api, id, before);
        let attempt = before.attempt.as_deref().unwrap_or("none");
        let (status, kind) = (&call["status"], &call["outcome"]["errorMeta"]["kind"]);
        let requests = target.seen();
        let requests = requests.iter().filter(|it| it.path == before.path).count();
        let expected = match (before.status.as_str(), attempt) {
            // What had its end keeps it, also where the answer had come and only its message was left.
            ("Succeeded", _) | ("Running", "Finished") => (json!("Succeeded"), Value::Null, 0),
            ("Failed", _) => (json!("Failed"), json!("HttpStatus"), 0),
            // Nobody knows whether the target got it.
            ("Running", "Attempted") => (json!("Failed"), json!("Interrupted"), 0),
            ("Scheduled", _) if before.is_far => (json!("Scheduled"), Value::Null, 0),
            _ => (json!("Succeeded"), Value::Null, 1),
        };
        assert_eq!(
            (status.clone(), kind.clone(), requests),
            expected,
            "{before:?} {call}"
        );
        let is_far = if before.is_far { " in many years" } else { "" };
        *ends
            .entry(format!("{} {attempt}{is_far}", before.status))
            .or_default() += 1;
    }
    let states = [
        "Failed Finished",
        "Running Attempted",
        "Running Finished",
        "Running Waiting",
        "Running none",
        "Scheduled none",
        "Scheduled none in many years",
        "Succeeded Finished",
    ];
    assert_eq!(ends.keys().map(String::as_str).collect::<Vec<_>>(), states);

    // Its key stays taken by the call that was deleted, and what has its secrets is not kept.
    let again = json!({
        "name": "other", "dueAt": "2099-01-01T00:00:00Z", "idempotencyKey": "deleted",
        "requestSpec": {"method": "GET", "url": target.url("/other")},
    });
    let answer = api.ask("POST", "/api/tenants/t1/service-calls", Some(&again));
    assert_eq!(answer.status, 409, "{answer:?}");
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    let connection = Connection::open(home.path("calls.db")).unwrap();
    let kept = connection
        .query_row(
            "SELECT count(*) FROM service_calls
            WHERE request_spec LIKE '%s3cret%' AND status NOT IN ('Scheduled')",
            [],
            |row| row.get::<_, i64>(0),
        )
        .unwrap();
    assert_eq!(kept, 0);
}
