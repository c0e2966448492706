//! Every refusal: its exit code, one sentence, and nothing touched.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::running::{Ended, Home, run};

/// One sentence on standard error, nothing on standard output, and the exit code.
pub(crate) fn assert_refused(what: &str, ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{what}: {ended:?}");
    assert_eq!(ended.stdout, "", "{what}");
    assert_eq!(ended.stderr.lines().count(), 1, "{what}: {ended:?}");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "{what}: {word:?} is not in {ended:?}"
        );
    }
}

#[test]
fn wrong_usage_is_named_and_touches_nothing() {
    let home = Home::new();
    for (line, words) in [
        ("--nonsense", ["--nonsense", "--help"]),
        ("gett --tenant a", ["gett", "--help"]),
        ("schedule --tenant a", ["--due", "schedule --help"]),
        ("schedule --tenant a --in soon", ["--in", "90s"]),
        ("schedule --tenant a --in 400000000d", ["--in", "9998"]),
        (
            "schedule --tenant a --due tomorrow",
            ["--due", "2026-12-24T18:00:00Z"],
        ),
        (
            "schedule --tenant a --due 2026-12-24",
            ["--due", "RFC 3339"],
        ),
        (
            "schedule --tenant a --due 1969-12-31T23:59:59Z",
            ["--due", "1970"],
        ),
        (
            "schedule --tenant a --due 9999-01-01T00:00:00Z",
            ["--due", "9998"],
        ),
        ("schedule --tenant a.b --in 5s", ["--tenant", "'.'"]),
        ("schedule --tenant a --in 5s --id 7", ["--id", "UUID"]),
        ("schedule --tenant a --in 5s --data {", ["--data", "JSON"]),
        (
            "get --tenant a --id 0190a6e07a3b7c119d2e3f4a5b6c7d8e",
            ["--id", "36 characters"],
        ),
        ("get --tenant a", ["--id", "get --help"]),
        ("list --tenant a --limit 0", ["--limit", "1 to 1000"]),
        (
            "list --tenant a --state done",
            ["--state", "scheduled or reached"],
        ),
        (
            "serve --modules api,occasions",
            ["--modules", "api, orchestration, timer and execution exist"],
        ),
        ("--batch-size 0", ["--batch-size", "1 to 10000"]),
        (
            "serve --polling-interval 1s",
            ["--polling-interval", "milliseconds"],
        ),
        ("serve --retention-days 0", ["--retention-days", "days"]),
        (
            "serve --synchronous OFF",
            ["--synchronous", "FULL or NORMAL"],
        ),
        ("serve --log-level loud", ["--log-level", "debug"]),
    ] {
        assert_refused(line, &home.run(line), 2, &words);
    }
    assert!(!home.db().exists());
}

#[test]
fn a_bad_setting_is_named_and_touches_nothing() {
    let home = Home::new();
    for (name, value, words) in [
        ("TIMER_POLLING_INTERVAL", "1s", "milliseconds"),
        ("TIMER_BATCH_SIZE", "-1", "1 to 10000"),
        ("RETENTION_DAYS", "never", "1 to 36500"),
        ("DB_SYNCHRONOUS", "EXTRA", "FULL or NORMAL"),
        ("LOG_FORMAT", "xml", "text or json"),
        ("LOG_LEVEL", "loud", "debug"),
        ("TIMER_BROKER_URL", "http://localhost:4222", "nats://host"),
        ("DATABASE_URL", "postgres://localhost/x", "its user"),
    ] {
        let ended = run(home.command("serve").env(name, value));
        assert_refused(name, &ended, 3, &[name, words]);
    }
    for name in ["DB_SYNCHRONOUS", "DATABASE_URL"] {
        let mut command = home.command("schedule --tenant a --in 5s");
        assert_refused(name, &run(command.env(name, "x")), 3, &[name]);
    }
    let mut same = home.command("migrate");
    let ended = run(same.env("DB_PATH", home.db()));
    assert_refused("migrate", &ended, 3, &["TIMER_DB_PATH and DB_PATH"]);
    assert!(!home.db().exists());
}

/// Every command that opens the database refuses it, and leaves it byte for byte as it was.
fn assert_the_database_is_refused(home: &Home, words: &[&str]) {
    let before = std::fs::read(home.db()).unwrap();
    for line in [
        "serve",
        "schedule --tenant a --in 5s",
        "schedule --batch /dev/null",
        "get --tenant a --name x",
        "list --tenant a",
        "cancel --tenant a --name x",
        "migrate",
        "migrate --status",
    ] {
        assert_refused(line, &home.run(line), 3, words);
    }
    assert!(
        std::fs::read(home.db()).unwrap() == before,
        "it was touched"
    );
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let home = Home::new();
    std::fs::write(home.db(), "my diary\n".repeat(1_000)).unwrap();
    assert_the_database_is_refused(&home, &["timer.db", "no SQLite database"]);
}

#[test]
fn a_damaged_database_is_refused() {
    let home = Home::new();
    home.json("migrate");
    let mut bytes = std::fs::read(home.db()).unwrap();
    bytes[100..1_000].fill(0xff);
    std::fs::write(home.db(), bytes).unwrap();
    assert_the_database_is_refused(&home, &["timer.db", "damaged"]);
}

#[test]
fn the_shared_database_is_refused_for_timers_alone() {
    let home = Home::new();
    let mut shared = home.command("migrate --db unused.db");
    assert_eq!(run(&mut shared).code, Some(0));
    let mut shared = home.command("migrate");
    let shared = shared
        .env("DB_PATH", home.db())
        .env("TIMER_DB_PATH", home.path("t.db"));
    assert_eq!(run(shared).code, Some(0));
    assert_the_database_is_refused(&home, &["timer.db", "shared", "timers-only"]);
}

#[test]
fn a_database_of_a_newer_program_is_refused() {
    let home = Home::new();
    home.json("migrate");
    let newer = rusqlite::Connection::open(home.db()).unwrap();
    newer
        .execute(
            "INSERT INTO punctual_migrations
             SELECT 9999, '9999_future', checksum, set_name, applied_at, '99.0.0'
             FROM punctual_migrations LIMIT 1",
            [],
        )
        .unwrap();
    newer.close().unwrap();
    assert_the_database_is_refused(&home, &["timer.db", "9999_future", "newer program"]);
}

#[test]
fn a_database_that_is_not_there_is_not_made_by_reading_it() {
    let home = Home::new();
    for line in [
        "get --tenant a --name x",
        "list --tenant a",
        "cancel --tenant a --name x",
        "trace --correlation 0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e",
        "migrate --status",
    ] {
        assert_refused(
            line,
            &home.run(line),
            1,
            &["there is no database at", "timer.db"],
        );
    }
    assert!(!home.db().exists());
}

#[test]
fn a_database_that_cannot_be_written_is_refused() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h --name x");
    let folder = home.path("");
    let before = std::fs::read(home.db()).unwrap();
    for (path, mode) in [(&home.db(), 0o444), (&folder, 0o555)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    for line in [
        "serve",
        "schedule --tenant a --in 5s",
        "cancel --tenant a --name x",
    ] {
        let mut command = home.command(line);
        if rustix::process::geteuid().is_root() {
            // Root may write whatever the permissions say.
            command.uid(65_534).gid(65_534);
        }
        let ended = run(&mut command);
        assert_refused(line, &ended, 3, &["timer.db", "writable"]);
    }
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(std::fs::read(home.db()).unwrap() == before);
}

#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let home = Home::new();
    std::fs::write(home.path("file"), "").unwrap();
    let ended = home.run("serve --db file/timer.db");
    assert_refused("serve", &ended, 3, &["folder", "file"]);
    let ended = home.run("schedule --tenant a --in 5s --db .");
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

#[test]
fn a_cursor_that_is_none_is_wrong_usage() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h");
    let ended = home.run("list --tenant a --after nonsense");
    assert_refused("list", &ended, 2, &["--after", "nextCursor"]);
}

#[test]
fn a_bad_flag_after_a_good_start_does_not_disturb_who_serves() {
    let home = Home::new();
    let serving = home.serve();
    assert_eq!(home.run("serve --batch-size 0").code, Some(2));
    assert_eq!(home.run("serve").code, Some(3));
    home.json("schedule --tenant a --in 0s");
    serving.firing();
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}
