//! `backup` beside a running service, and copies that were made by other means.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::running::{Ended, Home, Running, run};

const CALLS: &str = "/api/tenants/demo/service-calls";

fn submit(api: Api, count: usize) {
    for _ in 0..count {
        let body = json!({
            "name": "a", "dueAt": "2096-12-24T18:00:00Z",
            "requestSpec": {"method": "GET", "url": "https://example.com/"},
        });
        let answer = api.ask("POST", CALLS, Some(&body));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

fn count(api: Api) -> usize {
    let page = api.get(&format!("{CALLS}?limit=1000"));
    page["items"].as_array().unwrap().len()
}

/// Runs a command on the databases of calls.
fn on_calls(home: &Home, line: &str) -> Ended {
    let mut command = home.command(line);
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    run(&mut command)
}

/// What a service says that is started on these files.
fn started_on(home: &Home) -> Ended {
    Running::start(&mut calls_command(home)).end()
}

#[test]
fn a_backup_beside_a_busy_service_is_whole_and_can_be_served() {
    let (home, other) = (Home::new(), Home::new());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    submit(api, 50);
    let load = std::thread::spawn(move || submit(api, 100));
    let copied = on_calls(&home, "backup copy.db");
    load.join().unwrap();
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let answer: Value = serde_json::from_str(&copied.stdout).unwrap();
    assert_eq!(
        (&answer["set"], &answer["backup"]),
        (&json!("shared"), &json!("copy.db"))
    );
    assert!(answer["rows"].as_u64().unwrap() >= 150, "{answer}");
    assert_eq!(count(api), 150, "the service went on");
    let left: Vec<_> = std::fs::read_dir(home.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("copy"))
        .collect();
    assert_eq!(left, ["copy.db"], "nothing else is left");

    std::fs::copy(home.path("copy.db"), other.path("calls.db")).unwrap();
    let (_other_serving, other_api) = serve_calls(&mut calls_command(&other));
    let found = count(other_api);
    assert!((50..=150).contains(&found), "{found}");
}

#[test]
fn with_a_file_each_both_go_to_a_folder() {
    let home = Home::new();
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(command.env("TIMER_DB_PATH", home.db()));
    submit(api, 3);
    let both = |line: &str| {
        let mut command = home.command(line);
        command
            .env_remove("MODULES")
            .env("DB_PATH", home.path("calls.db"));
        run(&mut command)
    };
    let refused = both("backup copy.db");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("has to be a folder"), "{refused:?}");
    std::fs::create_dir(home.path("copies")).unwrap();
    let copied = both("backup copies");
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert_eq!(copied.stdout.lines().count(), 2);
    let one = both("backup --calls-db calls.db alone.db");
    assert_eq!(one.code, Some(0), "{one:?}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    let other = Home::new();
    for name in ["calls.db", "timer.db"] {
        let from = home.path(&format!("copies/{name}"));
        std::fs::copy(from, other.path(name)).unwrap();
    }
    let mut command = calls_command(&other);
    let (_serving, api) = serve_calls(command.env("TIMER_DB_PATH", other.db()));
    assert_eq!(count(api), 3);
}

#[test]
fn a_backup_replaces_nothing_and_leaves_nothing_behind() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h");
    std::fs::write(home.path("mine"), "precious").unwrap();
    for (line, code, words) in [
        ("backup mine", 1, "it exists already: name a new file"),
        (
            "backup no/such/folder/copy.db",
            1,
            "its folder is not there: make it first",
        ),
        (
            "backup copies/",
            1,
            "its folder is not there: make it first",
        ),
        ("backup --db none.db copy.db", 1, "there is no database"),
        (
            "backup --calls-db timer.db copy.db",
            3,
            "timers-only tables",
        ),
    ] {
        let ended = home.run(line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words), "{line}: {ended:?}");
    }
    assert_eq!(
        std::fs::read_to_string(home.path("mine")).unwrap(),
        "precious"
    );
    assert!(!home.path("copy.db").exists());
}

fn copy(from: &Home, to: &Home, ends: &[&str]) {
    for end in ends {
        let name = format!("calls.db{end}");
        std::fs::copy(from.path(&name), to.path(&name)).unwrap();
    }
}

fn assert_refused(home: &Home, words: &[&str]) {
    let before = files(&home.path(""));
    let refused = started_on(home);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    for word in words {
        assert!(refused.stderr.contains(word), "{refused:?}");
    }
    let sentences = refused.stderr.lines().filter(|it| it.contains("error: "));
    assert_eq!(sentences.count(), 1, "{refused:?}");
    for (name, bytes) in before {
        let now = std::fs::read(home.path("").join(&name)).unwrap();
        assert_eq!(now.len(), bytes.len(), "{name} is as it was");
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn a_plain_copy_that_would_begin_empty_is_refused() {
    let home = Home::new();
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    submit(api, 20);

    let without_log = Home::new();
    copy(&home, &without_log, &[""]);
    let words = ["was copied while it was in use", "timer-service backup"];
    assert_refused(&without_log, &words);

    let log_alone = Home::new();
    copy(&home, &log_alone, &["-wal"]);
    assert_refused(
        &log_alone,
        &["without its database", "timer-service backup"],
    );
    std::fs::write(log_alone.path("calls.db"), "").unwrap();
    assert_refused(&log_alone, &["without its database"]);
    let checked = on_calls(&log_alone, "check");
    assert_eq!(checked.code, Some(1), "{checked:?}");

    let foreign_log = Home::new();
    copy(&home, &foreign_log, &["", "-wal"]);
    let log = foreign_log.path("calls.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[16] ^= 0xff;
    std::fs::write(&log, bytes).unwrap();
    assert_refused(&foreign_log, &["was copied while it was in use"]);

    // With its log, and nothing written meanwhile, it is whole.
    let whole = Home::new();
    copy(&home, &whole, &["", "-wal"]);
    let (_other, other_api) = serve_calls(&mut calls_command(&whole));
    assert_eq!(count(other_api), 20);
}

#[test]
fn a_start_that_was_cut_off_can_be_repeated() {
    let home = Home::new();
    let connection = rusqlite::Connection::open(home.path("calls.db")).unwrap();
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    // As a process that was killed leaves it: with a log that has nothing in it, or with its lock.
    let bytes = std::fs::read(home.path("calls.db")).unwrap();
    drop(connection);
    for beside in ["-wal", ".timer.lock"] {
        let cut_off = Home::new();
        std::fs::write(cut_off.path("calls.db"), &bytes).unwrap();
        std::fs::write(cut_off.path(&format!("calls.db{beside}")), "").unwrap();
        let (_serving, api) = serve_calls(&mut calls_command(&cut_off));
        assert_eq!(count(api), 0);
    }
}
