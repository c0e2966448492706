//! The demo, from start to end: what it counts, what it leaves behind, and how it fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::running::{Ended, Home, Running, run};

/// A home whose temporary folders are made where a test can find them.
struct Stage {
    home: Home,
    temporary: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let home = Home::new();
        let temporary = home.path("temporary");
        fs::create_dir(&temporary).unwrap();
        Self { home, temporary }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.home.command(line);
        command.env("TMPDIR", &self.temporary);
        command
    }

    fn run(&self, line: &str) -> Ended {
        run(&mut self.command(line))
    }

    fn left_behind(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.temporary).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn assert_nothing_is_left_behind(&self) {
        assert_eq!(self.left_behind(), Vec::<PathBuf>::new());
        assert!(!self.home.db().exists(), "the user's database is not used");
    }
}

/// The one line of JSON of a demo that went well.
fn result(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn assert_all_is_well(result: &Value, timers: u64) {
    for (field, count) in [
        ("scheduled", timers),
        ("fired", timers),
        ("early", 0),
        ("lost", 0),
        ("otherId", 0),
        ("unasked", 0),
    ] {
        assert_eq!(result[field], count, "{field} in {result}");
    }
    let buckets = result["histogram"].as_array().unwrap();
    let counted: u64 = buckets
        .iter()
        .map(|bucket| bucket["timers"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, timers, "{result}");
}

/// The worker that the demo tells of.
fn worker(demo: &mut Running) -> Pid {
    let line = demo.wait_until_it_says(" serves");
    let id = line.split(' ').find_map(|word| word.parse().ok());
    Pid::from_raw(id.unwrap()).unwrap()
}

#[test]
fn every_timer_fires_once_whatever_the_settings_are() {
    let stage = Stage::new();
    fs::write(stage.home.path("punctual.toml"), "nonsense = 1").unwrap();
    let ended = run(stage
        .command("demo --timers 200 --seconds 1 --tenants 7 --output json")
        .env("TIMER_BROKER_URL", "nats://localhost:4222")
        .env("TIMER_BATCH_SIZE", "many")
        .env("LOG_LEVEL", "off"));
    let result = result(&ended);
    assert_all_is_well(&result, 200);
    assert_eq!(result["firedAgain"], 0, "{result}");
    assert_eq!(result["tenants"], 7);
    assert_eq!(result["kills"].as_array().unwrap().len(), 0);
    stage.assert_nothing_is_left_behind();
}

#[test]
fn a_worker_that_is_killed_on_the_way_loses_nothing() {
    let stage = Stage::new();
    let ended = stage.run("demo --timers 200 --seconds 1 --kill --output json");
    let result = result(&ended);
    assert_all_is_well(&result, 200);
    let kills = result["kills"].as_array().unwrap();
    assert!(!kills.is_empty(), "{result}");
    for kill in kills {
        let before = kill["firedBefore"].as_u64().unwrap();
        assert!((1..200).contains(&before), "in the middle: {result}");
    }
    stage.assert_nothing_is_left_behind();
}

/// Nothing twice, nothing early, nothing without an outcome, and all figures agree.
fn assert_all_calls_are_well(result: &Value, calls: u64) {
    for (field, count) in [
        ("calls", calls),
        ("accepted", calls),
        ("twice", 0),
        ("early", 0),
        ("withoutOutcome", 0),
        ("untrue", 0),
        ("unasked", 0),
    ] {
        assert_eq!(result[field], count, "{field} in {result}");
    }
    let failed = result["failed"].as_object().unwrap();
    let failed: u64 = failed.values().map(|count| count.as_u64().unwrap()).sum();
    let succeeded = result["succeeded"].as_u64().unwrap();
    assert_eq!(succeeded + failed, calls, "{result}");
    let buckets = result["histogram"].as_array().unwrap();
    let counted: u64 = buckets
        .iter()
        .map(|bucket| bucket["calls"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, result["requests"], "{result}");
}

#[test]
fn every_call_is_made_once_and_has_the_outcome_that_the_target_gave_it() {
    let stage = Stage::new();
    fs::write(stage.home.path("punctual.toml"), "nonsense = 1").unwrap();
    let ended = run(stage
        .command("demo --calls 60 --seconds 1 --tenants 7 --output json")
        .env("API_LISTEN", "nowhere")
        .env("DB_PATH", "/nowhere/at/all.db"));
    let result = result(&ended);
    assert_all_calls_are_well(&result, 60);
    assert_eq!(result["requests"], 60, "{result}");
    assert_eq!(result["succeeded"], 54, "{result}");
    assert_eq!(result["failed"]["HttpStatus"], 6, "{result}");
    assert_eq!(result["tenants"], 7);
    assert_eq!(result["kills"].as_array().unwrap().len(), 0);
    stage.assert_nothing_is_left_behind();
}

#[test]
fn a_service_that_is_killed_on_the_way_repeats_no_call_and_forgets_none() {
    let stage = Stage::new();
    let ended = stage.run("demo --calls 60 --seconds 1 --kill --output json");
    let result = result(&ended);
    assert_all_calls_are_well(&result, 60);
    let kills = result["kills"].as_array().unwrap();
    assert!(!kills.is_empty(), "{result}");
    // The request at which the service is killed is not answered yet, so one is under way each time.
    let interrupted = result["failed"]["Interrupted"].as_u64().unwrap();
    assert!(interrupted >= kills.len() as u64, "{result}");
    stage.assert_nothing_is_left_behind();
}

#[test]
fn people_get_the_figures_of_calls_and_may_keep_their_database() {
    let stage = Stage::new();
    let ended = stage.run("demo --calls 20 --seconds 1 --tenants 2 --keep");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in [
        "How late",
        " ms  ",
        "p99",
        "accepted",
        "HttpStatus",
        "twice",
        "no outcome   none\n",
    ] {
        let is_told = ended.stdout.contains(words);
        assert!(is_told, "{words:?} is not in {ended:?}");
    }
    for words in ["20 calls of 2 tenants", "None twice, none early"] {
        let is_told = ended.stderr.contains(words);
        assert!(is_told, "{words:?} is not in {ended:?}");
    }
    let left = stage.left_behind();
    let [folder] = left.as_slice() else {
        panic!("one folder is kept, not {left:?}");
    };
    let database = folder.join("calls.db");
    assert!(ended.stderr.contains(database.to_str().unwrap()));
    let stored = rusqlite::Connection::open(&database).unwrap();
    let calls = "SELECT count(*) FROM service_calls WHERE status IN ('Succeeded', 'Failed')";
    let calls: u32 = stored.query_row(calls, [], |row| row.get(0)).unwrap();
    assert_eq!(calls, 20);
}

#[test]
fn a_service_of_calls_that_dies_by_itself_ends_the_demo_with_a_sentence() {
    let stage = Stage::new();
    let mut demo = Running::start(&mut stage.command("demo --calls --seconds 600 --output json"));
    let worker = worker(&mut demo);
    kill_process(worker, Signal::KILL).unwrap();
    let ended = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.contains("ended by itself"), "{last}");
    assert!(last.contains("of 200 calls had been made"), "{last}");
    stage.assert_nothing_is_left_behind();
}

#[test]
fn people_get_a_histogram_and_may_keep_the_database() {
    let stage = Stage::new();
    let ended = stage.run("demo --timers 20 --seconds 1 --tenants 2 --keep");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in [
        "How late", " ms  ", "p50", "p99", "max", "early", "lost", "none\n",
    ] {
        assert!(
            ended.stdout.contains(words),
            "{words:?} is not in {ended:?}"
        );
    }
    for words in ["20 timers of 2 tenants", "None lost, none early."] {
        assert!(
            ended.stderr.contains(words),
            "{words:?} is not in {ended:?}"
        );
    }
    let left = stage.left_behind();
    let [folder] = left.as_slice() else {
        panic!("one folder is kept, not {left:?}");
    };
    let mode = folder.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let database = folder.join("timer.db");
    assert!(ended.stderr.contains(database.to_str().unwrap()));
    let database = database.display();
    let stored = format!("list --tenant demo-2 --state reached --db {database}");
    let stored = stage.home.json(&stored);
    assert_eq!(stored["items"].as_array().unwrap().len(), 10);
}

#[test]
fn a_worker_that_dies_by_itself_ends_the_demo_with_a_sentence() {
    let stage = Stage::new();
    let mut demo = Running::start(&mut stage.command("demo --seconds 600 --output json"));
    let worker = worker(&mut demo);
    kill_process(worker, Signal::KILL).unwrap();
    let ended = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: the worker process"), "{last}");
    assert!(last.contains("ended by itself"), "{last}");
    assert!(last.contains("SIGKILL"), "{last}");
    stage.assert_nothing_is_left_behind();
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let stage = Stage::new();
        let line = match signal {
            Signal::TERM => "demo --seconds 600",
            _ => "demo --calls --seconds 600",
        };
        let mut demo = Running::start(&mut stage.command(line));
        let worker = worker(&mut demo);
        demo.signal(signal);
        let ended = demo.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains("stopped before the end"), "{ended:?}");
        assert!(test_kill_process(worker).is_err(), "the worker lives on");
        stage.assert_nothing_is_left_behind();
    }
}

#[test]
fn what_cannot_be_shown_is_refused_with_the_flag_and_its_range() {
    let stage = Stage::new();
    for (line, words) in [
        ("demo --timers 0", ["--timers", "1 to 1000000"]),
        ("demo --timers 1000001", ["--timers", "1 to 1000000"]),
        ("demo --calls 0", ["--calls", "1 to 100000"]),
        ("demo --calls 100001", ["--calls", "1 to 100000"]),
        ("demo --calls --timers 5", ["--calls", "--timers"]),
        ("demo --seconds 0", ["--seconds", "1 to 3600"]),
        ("demo --seconds 3601", ["--seconds", "1 to 3600"]),
        ("demo --tenants 0", ["--tenants", "1 to 10000"]),
        ("demo --tenants 10001", ["--tenants", "1 to 10000"]),
        ("demo --tenants many", ["--tenants", "1 to 10000"]),
    ] {
        let ended = stage.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{line}: {ended:?}");
        for word in words {
            assert!(ended.stderr.contains(word), "{line}: {ended:?}");
        }
    }
    stage.assert_nothing_is_left_behind();
}

#[test]
fn a_place_without_room_for_a_folder_is_named() {
    let stage = Stage::new();
    let nowhere = Path::new("/nowhere/at/all");
    let ended = run(stage.command("demo").env("TMPDIR", nowhere));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    for word in ["/nowhere/at/all", "TMPDIR"] {
        assert!(ended.stderr.contains(word), "{ended:?}");
    }
}
