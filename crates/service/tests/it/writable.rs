//! `/readyz` while nothing can be written: 503 with the reason within five seconds, and 200 again
//! within five seconds after.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual::rusqlite::Connection;
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_ports::{ClockPort, IdPort};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::broker::Broker;
use crate::running::{Home, PATIENCE, Running};
use crate::target::Target;

const CALLS: &str = "/api/tenants/demo/service-calls";
/// The name of calls that are to be made.
const MADE: &str = "made";
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// Asks until it is so, and returns the problem with writing. It has to come in time.
pub(crate) fn ready_within(api: Api, status: u16, within: Duration) -> Value {
    let clock = SystemClock::start().unwrap();
    let begun = clock.monotonic();
    loop {
        let ready = api.ask("GET", "/readyz", None);
        let waited = clock.monotonic().saturating_sub(begun);
        if ready.status == status {
            assert!(waited <= within, "{waited:?}");
            let checks = ready.json()["checks"].as_array().unwrap().clone();
            let is_writing = |check: &&Value| check["name"] == "writing";
            return checks.iter().find(is_writing).unwrap()["problem"].clone();
        }
        assert!(waited <= PATIENCE, "still {ready:?}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// The figure for the alert follows, by itself.
fn shows_writable(api: Api, value: &str) {
    let clock = SystemClock::start().unwrap();
    let begun = clock.monotonic();
    let line = format!("store_writable {value}");
    while !api.ask("GET", "/metrics", None).body.contains(&line) {
        let waited = clock.monotonic().saturating_sub(begun);
        assert!(waited <= PATIENCE, "no {line}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Holds the write lock of a file for a while, as another program would.
fn with_lock(api: Api, path: &Path) {
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let problem = ready_within(api, 503, WITHIN);
    let shown = path.display().to_string();
    assert!(problem.as_str().unwrap().contains(&shown), "{problem}");
    assert!(problem.as_str().unwrap().contains("lock"), "{problem}");
    shows_writable(api, "0");
    assert_eq!(api.ask("GET", "/healthz", None).status, 200);
    other.execute_batch("ROLLBACK").unwrap();
    ready_within(api, 200, WITHIN);
    shows_writable(api, "1");
}

#[test]
fn a_lock_of_another_program_is_told_and_its_end_too() {
    let home = Home::new();
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    ready_within(api, 200, PATIENCE);
    with_lock(api, &home.path("calls.db"));
}

#[test]
fn each_of_two_files_is_checked() {
    let home = Home::new();
    let own = home.path("timer.db");
    let (_serving, api) = serve_calls(calls_command(&home).env("TIMER_DB_PATH", &own));
    ready_within(api, 200, PATIENCE);
    with_lock(api, &own);
    with_lock(api, &home.path("calls.db"));
}

#[test]
fn beside_a_broker_a_lock_is_told_too() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let mut command = broker.command(&home, "serve --listen 127.0.0.1:0");
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    let (_serving, api) = serve_calls(&mut command);
    ready_within(api, 200, PATIENCE);
    with_lock(api, &home.path("calls.db"));
}

fn submit(api: Api, n: usize) -> u16 {
    let body = json!({"name": format!("{n}"), "dueAt": "2100-01-01T00:00:00Z",
        "requestSpec": {"method": "POST", "url": "http://a.example/", "body": "x".repeat(20_000)}});
    api.ask("POST", CALLS, Some(&body)).status
}

#[test]
fn a_file_that_has_grown_to_its_limit_is_told_and_deletions_make_room() {
    let home = Home::new();
    let (_serving, api) = serve_calls(calls_command(&home).env("DB_MAX_MIB", "2"));
    ready_within(api, 200, PATIENCE);
    let refused = (0..1_000).find(|n| submit(api, *n) != 202);
    assert!(refused.is_some_and(|n| n > 5), "{refused:?}");
    let problem = ready_within(api, 503, WITHIN);
    assert!(problem.as_str().unwrap().contains("limit"), "{problem}");
    delete_all(api);
    ready_within(api, 200, WITHIN);
    assert_eq!(submit(api, 1_000), 202);
}

/// Deletes what only takes room.
fn delete_all(api: Api) {
    loop {
        let page = api.get(&format!("{CALLS}?status=Scheduled&limit=100"));
        let items = page["items"].as_array().unwrap().iter();
        let fills: Vec<_> = items.filter(|item| item["name"] != MADE).collect();
        if fills.is_empty() {
            break;
        }
        for item in fills {
            let path = format!("{CALLS}/{}", item["serviceCallId"].as_str().unwrap());
            assert_eq!(api.ask("DELETE", &path, None).status, 204);
        }
    }
}

#[test]
fn a_command_that_comes_while_there_is_no_room_waits_with_the_broker_and_is_stored_after() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, target) = (Home::new(), Target::start());
    let serve = || {
        let mut command =
            broker.command(&home, "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
        command
            .env_remove("MODULES")
            .env_remove("TIMER_DB_PATH")
            .env("DB_PATH", home.path("calls.db"))
            .env("DB_MAX_MIB", "2");
        serve_calls(&mut command)
    };
    let paths = || target.seen().into_iter().map(|seen| seen.path);
    let (mut serving, api) = serve();
    let soon = SystemClock::start().unwrap().now();
    let soon = soon.saturating_add(Duration::from_secs(3));
    let call = |path: &str| {
        json!({"name": MADE, "dueAt": soon,
            "requestSpec": {"method": "POST", "url": target.url(path), "body": "x".repeat(20_000)}})
    };
    let accepted = api.ask("POST", CALLS, Some(&call("/accepted")));
    assert_eq!(accepted.status, 202, "{accepted:?}");
    // Again once all is told of what was submitted: that gives back some room.
    while (0..1_000).position(|n| submit(api, n) != 202).unwrap() > 0 {
        broker.wait_until_empty("COMMANDS");
    }
    ready_within(api, 503, WITHIN);
    let mut payload = call("/by-command");
    payload["tenantId"] = json!("demo");
    payload["serviceCallId"] = json!(UuidIds.next_id().to_string());
    let command = json!({"id": UuidIds.next_id().to_string(), "type": "SubmitServiceCall",
        "tenantId": "demo", "timestampMs": soon.as_millis(), "payload": payload});
    broker.publish("orchestration.commands", command.to_string().as_bytes());
    serving.wait_until_it_says("no more messages are fetched until it can");
    // What was accepted before goes its whole way through the broker all the same.
    until(|| paths().any(|path| path == "/accepted"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));

    let (_serving, api) = serve();
    ready_within(api, 503, WITHIN);
    assert!(!paths().any(|path| path == "/by-command"));
    delete_all(api);
    ready_within(api, 200, WITHIN);
    until(|| paths().any(|path| path == "/by-command"));
    broker.wait_until_empty("COMMANDS");
    assert_eq!(paths().count(), 2, "each is made once");
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

/// The service on a disk of a few MiB, mounted for it alone; `None` where that is not allowed.
pub(crate) fn on_small_disk(home: &Home, disk: &Path, mebibytes: u32) -> Option<Command> {
    std::fs::create_dir(disk).unwrap();
    let unshare = |then: &str| {
        let line = format!("mount -t tmpfs -o size={mebibytes}m small \"$0\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line]).arg(disk);
        command
    };
    if !unshare("true").output().is_ok_and(|it| it.status.success()) {
        println!("skipped: a disk can be mounted by root alone");
        return None;
    }
    let plain = calls_command(home);
    let mut command = unshare("exec \"$@\"");
    command.arg(plain.get_program()).args(plain.get_args());
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path);
    command.env("DB_PATH", disk.join("calls.db"));
    Some(command)
}

/// A file that takes all the room that is left.
pub(crate) struct Filler(PathBuf);

impl Filler {
    /// The disk is mounted for the service only, and reached through its root.
    pub(crate) fn on(disk: &Path, serving: &Running) -> Self {
        let through = PathBuf::from(format!("/proc/{}/root", serving.id()));
        Self(through.join(disk.strip_prefix("/").unwrap()).join("filler"))
    }

    pub(crate) fn fill(&self) {
        let mut file = File::create(&self.0).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    pub(crate) fn remove(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn a_full_disk_is_told_and_its_end_too() {
    let home = Home::new();
    let disk = home.path("disk");
    let Some(mut command) = on_small_disk(&home, &disk, 8) else {
        return;
    };
    let (serving, api) = serve_calls(&mut command);
    ready_within(api, 200, PATIENCE);
    let filler = Filler::on(&disk, &serving);
    for round in 0..3 {
        filler.fill();
        // Until there is no room left in the log either.
        let refused = (0..1_000).find(|n| submit(api, round * 1_000 + n) != 202);
        assert!(refused.is_some());
        let problem = ready_within(api, 503, WITHIN);
        assert!(problem.as_str().unwrap().contains("room"), "{problem}");
        shows_writable(api, "0");
        filler.remove();
        ready_within(api, 200, WITHIN);
        assert_eq!(submit(api, round * 1_000 + 999), 202);
    }
}
