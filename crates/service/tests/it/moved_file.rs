//! A database that is renamed, removed or replaced under the service: it promises and begins nothing
//! more, ends with one sentence, and no call is made twice after the next start.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, IdPort};
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::broker::Broker;
use crate::running::{Ended, Home, PATIENCE, Running};
use crate::target::Target;

const CALLS: &str = "/api/tenants/demo/service-calls";
const ENDS: [&str; 3] = ["", "-wal", "-shm"];

fn named(home: &Home, file: &str, end: &str) -> std::path::PathBuf {
    home.path(&format!("{file}{end}"))
}

/// Moves a database aside and puts a copy in its place, as whoever restores a backup does.
fn replace(home: &Home, file: &str) {
    for end in ENDS {
        let (there, aside) = (
            named(home, file, end),
            named(home, &format!("old-{file}"), end),
        );
        std::fs::rename(&there, &aside).unwrap();
        // The index of the log is made anew by whoever opens it.
        if end != "-shm" {
            std::fs::copy(aside, there).unwrap();
        }
    }
}

fn call(target: &Target, path: &str, due_at: Timestamp) -> Value {
    json!({"name": "greet", "dueAt": due_at,
        "requestSpec": {"method": "GET", "url": target.url(path)}})
}

fn due_in(after: Duration) -> Timestamp {
    let now = SystemClock::start().unwrap().now();
    now.next().saturating_add(after)
}

/// Submits calls that are due a while later.
fn submit_some(api: Api, target: &Target, count: usize) {
    let due_at = due_in(Duration::from_secs(4));
    for n in 0..count {
        let answer = api.ask("POST", CALLS, Some(&call(target, &format!("/{n}"), due_at)));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    // Until their timers are there, too, so that nothing is on the way any more.
    until(|| {
        let page = api.get(&format!("{CALLS}?limit=100"));
        let items = page["items"].as_array().unwrap();
        let has_timer = |item: &Value| {
            let id = item["serviceCallId"].as_str().unwrap();
            api.get(&format!("{CALLS}/{id}"))["timer"].is_object()
        };
        items.len() == count && items.iter().all(has_timer)
    });
}

fn until(condition: impl Fn() -> bool) {
    let clock = SystemClock::start().unwrap();
    let begun = clock.monotonic();
    while !condition() {
        let waited = clock.monotonic().saturating_sub(begun);
        assert!(waited < PATIENCE, "it did not come to that");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Asks until nobody listens any more: nothing is accepted, and health is well to the end.
fn refuses_until_it_ends(api: Api, body: &Value) {
    until(|| {
        let submitted = api.try_ask("POST", CALLS, Some(body));
        if let Some(answer) = submitted {
            assert!(answer.status >= 500, "{answer:?}");
        }
        if let Some(answer) = api.try_ask("GET", "/readyz", None) {
            assert_eq!(answer.status, 503, "{answer:?}");
        }
        let health = api.try_ask("GET", "/healthz", None);
        if let Some(answer) = &health {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        health.is_none()
    });
}

/// It has ended with its code, and its last line is one sentence about the file.
fn says_why(ended: &Ended, file: &Path) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    let sentence = format!("{} was renamed, removed or replaced", file.display());
    assert!(last.starts_with("error: "), "{last}");
    assert!(last.contains(&sentence), "{last}");
}

/// After the next start every call is made, and none of them twice.
fn makes_each_call_once(command: &mut Command, target: &Target, count: usize) {
    let (_serving, api) = serve_calls(command);
    until(|| {
        let page = api.get(&format!("{CALLS}?status=Succeeded&limit=100"));
        page["items"].as_array().unwrap().len() == count
    });
    let mut paths: Vec<String> = target.seen().into_iter().map(|seen| seen.path).collect();
    paths.sort();
    let all = paths.len();
    paths.dedup();
    assert_eq!((all, paths.len()), (count, count), "some were made twice");
}

#[test]
fn a_replaced_database_ends_the_service_and_no_call_is_made_twice() {
    let (home, target) = (Home::new(), Target::start());
    let (serving, api) = serve_calls(&mut calls_command(&home));
    submit_some(api, &target, 20);
    replace(&home, "calls.db");
    let refused = call(&target, "/refused", due_in(Duration::ZERO));
    refuses_until_it_ends(api, &refused);
    says_why(&serving.end(), &home.path("calls.db"));
    assert_eq!(target.seen().len(), 0, "nothing was made from the old file");
    makes_each_call_once(&mut calls_command(&home), &target, 20);
}

#[test]
fn each_of_two_files_counts() {
    for file in ["timer.db", "calls.db"] {
        let (home, target) = (Home::new(), Target::start());
        let own = home.path("timer.db");
        let (serving, api) = serve_calls(calls_command(&home).env("TIMER_DB_PATH", &own));
        submit_some(api, &target, 5);
        replace(&home, file);
        says_why(&serving.end(), &home.path(file));
        assert_eq!(target.seen().len(), 0);
        let mut again = calls_command(&home);
        makes_each_call_once(again.env("TIMER_DB_PATH", &own), &target, 5);
    }
}

#[test]
fn commands_of_a_broker_are_not_acknowledged_into_a_file_that_is_gone() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, target) = (Home::new(), Target::start());
    let command = || {
        let mut command =
            broker.command(&home, "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
        command
            .env_remove("MODULES")
            .env_remove("TIMER_DB_PATH")
            .env("DB_PATH", home.path("calls.db"));
        command
    };
    let (serving, api) = serve_calls(&mut command());
    submit_some(api, &target, 5);
    broker.wait_until_empty("COMMANDS");
    replace(&home, "calls.db");
    let id = UuidIds.next_id().to_string();
    let due_at = due_in(Duration::ZERO);
    let mut payload = call(&target, "/by-command", due_at);
    payload["tenantId"] = json!("demo");
    payload["serviceCallId"] = json!(id);
    let submit = json!({"id": UuidIds.next_id().to_string(), "type": "SubmitServiceCall",
        "tenantId": "demo", "timestampMs": due_at.as_millis(), "payload": payload});
    broker.publish("orchestration.commands", submit.to_string().as_bytes());
    says_why(&serving.end(), &home.path("calls.db"));
    assert_eq!(target.seen().len(), 0);
    // It was left with the broker, which gives it to the next.
    makes_each_call_once(&mut command(), &target, 6);
}

#[test]
fn an_idle_service_notices_a_database_that_was_removed() {
    let home = Home::new();
    let mut serving = Running::start(&mut home.command("serve --polling-interval 60000"));
    serving.wait_until_ready();
    home.json("schedule --tenant a --in 3s");
    for end in ENDS {
        // Whether these exist depends on who else has the file open.
        let _ = std::fs::remove_file(named(&home, "timer.db", end));
    }
    let ended = serving.end();
    says_why(&ended, &home.db());
    assert_eq!(ended.stdout, "", "nothing fires from a file that is gone");
}
