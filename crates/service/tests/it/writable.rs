//! `/readyz` while nothing can be written: 503 with the reason within five seconds, and 200 again
//! within five seconds after.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual::rusqlite::Connection;
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::broker::Broker;
use crate::running::{Home, PATIENCE};

const CALLS: &str = "/api/tenants/demo/service-calls";
const WITHIN: Duration = Duration::from_secs(5);

/// Asks until it is so, and returns the problem with writing. It has to come in time.
fn ready_within(api: Api, status: u16, within: Duration) -> Value {
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
fn each_of_two_files_is_looked_at() {
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
    loop {
        let page = api.get(&format!("{CALLS}?limit=100"));
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            break;
        }
        for item in items {
            let path = format!("{CALLS}/{}", item["serviceCallId"].as_str().unwrap());
            assert_eq!(api.ask("DELETE", &path, None).status, 204);
        }
    }
    ready_within(api, 200, WITHIN);
    assert_eq!(submit(api, 1_000), 202);
}

/// The service on a disk of a few MiB, mounted for it alone; `None` where that is not allowed.
fn on_small_disk(home: &Home, disk: &Path) -> Option<Command> {
    std::fs::create_dir(disk).unwrap();
    let unshare = |then: &str| {
        let line = format!("mount -t tmpfs -o size=8m small \"$0\" && {then}");
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

#[test]
fn a_full_disk_is_told_and_its_end_too() {
    let home = Home::new();
    let disk = home.path("disk");
    let Some(mut command) = on_small_disk(&home, &disk) else {
        return;
    };
    let (serving, api) = serve_calls(&mut command);
    ready_within(api, 200, PATIENCE);
    // The disk is there for nobody but the service, and for whoever looks through its eyes.
    let through = PathBuf::from(format!("/proc/{}/root", serving.id()));
    let filler = through.join(disk.strip_prefix("/").unwrap()).join("filler");
    let fill = || {
        use std::io::Write;
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    for round in 0..3 {
        fill();
        // Until there is no room left in the log either.
        let refused = (0..1_000).find(|n| submit(api, round * 1_000 + n) != 202);
        assert!(refused.is_some());
        let problem = ready_within(api, 503, WITHIN);
        assert!(problem.as_str().unwrap().contains("room"), "{problem}");
        shows_writable(api, "0");
        std::fs::remove_file(&filler).unwrap();
        ready_within(api, 200, WITHIN);
        assert_eq!(submit(api, round * 1_000 + 999), 202);
    }
}
