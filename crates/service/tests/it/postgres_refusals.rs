//! What is wrong with a PostgreSQL database, or with the settings for it, is one sentence and an exit code.

use std::process::Command;

use punctual_test_servers::PostgresServer;

use crate::postgres::Database;
use crate::running::{Ended, Home, run};

/// What nobody but the user and the server may read.
const SECRET: &str = "hunter2";

fn assert_refused(what: &str, ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(3), "{what}: {ended:?}");
    assert_eq!(ended.stdout, "", "{what}");
    let said = &ended.stderr;
    assert!(said.starts_with("error: "), "{what}: {said}");
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(!said.contains(SECRET), "{what}: {said}");
    for word in words {
        assert!(said.contains(word), "{what}: {word:?} is not in {said}");
    }
}

/// The binary on a database; nothing is logged but errors.
fn on(home: &Home, url: &str, line: &str) -> Command {
    let mut command = home.command(line);
    command
        .env_remove("TIMER_DB_PATH")
        .env("LOG_LEVEL", "error")
        .env("DATABASE_WAIT", "0")
        .env("DATABASE_URL", url);
    command
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let home = Home::new();
    let url = format!("postgres://me:{SECRET}@127.0.0.1:1/timers");
    let apart = "api,orchestration";
    let ended = run(on(&home, &url, "serve").env("MODULES", apart));
    assert_refused(apart, &ended, &["set TIMER_BROKER_URL, or run all three"]);
    let two = "timer,execution";
    let mut in_one_schema = on(&home, &url, "serve");
    in_one_schema.env("TIMER_BROKER_URL", "nats://127.0.0.1:1");
    let ended = run(in_one_schema.env("MODULES", two));
    assert_refused(two, &ended, &["run two processes", "DATABASE_SCHEMA"]);
    for (name, value) in [
        ("TIMER_DB_PATH", "timer.db"),
        ("DB_PATH", "calls.db"),
        ("EXECUTION_DB_PATH", "execution.db"),
        ("DB_SYNCHRONOUS", "NORMAL"),
        ("DB_MAX_MIB", "100"),
    ] {
        for line in ["serve", "list --tenant a", "migrate"] {
            let ended = run(on(&home, &url, line).env(name, value));
            let words = [name, "but DATABASE_URL names a PostgreSQL database"];
            assert_refused(name, &ended, &words);
        }
    }
    let ended = run(&mut on(&home, &url, "serve --db timer.db"));
    assert_refused("--db", &ended, &["--db is for an SQLite file"]);
    let ended = run(&mut on(&home, &url, "backup copy.db"));
    assert_refused("backup", &ended, &["me@127.0.0.1:1/timers", "pg_dump"]);
    let ended = run(on(&home, &url, "serve").env("DATABASE_PASSWORD_FILE", "absent"));
    let words = ["DATABASE_PASSWORD_FILE names absent, which cannot be read"];
    assert_refused("password file", &ended, &words);
    assert!(!home.path("timer.db").exists());
}

#[test]
fn a_database_that_cannot_be_used_is_refused_by_every_command() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute(&format!(
        "CREATE ROLE me LOGIN PASSWORD '{SECRET}'; CREATE ROLE reader LOGIN; \
         ALTER ROLE reader SET default_transaction_read_only = on; \
         CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET synchronous_commit = off; \
         CREATE ROLE guest LOGIN; CREATE SCHEMA closed; CREATE SCHEMA fixed; GRANT USAGE ON SCHEMA fixed TO guest"
    ));
    server.set_hba("host all me 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust");
    let home = Home::new();
    let elsewhere = format!("postgres://me:{SECRET}@127.0.0.1:1/timers");
    let wrong = server.url_as(&format!("me:not{SECRET}"));
    let absent = server.url().replace("/postgres", "/absent");
    let read_only = "is read-only: set default_transaction_read_only = off";
    for (what, url, schema, words) in [
        ("nobody answers", elsewhere, "", "does not answer"),
        ("password", wrong, "", "check user and password"),
        ("no password", server.url_as("me"), "", "me@127.0.0.1"),
        ("role", server.url_as("nobody"), "", "does not let us in"),
        ("database", absent, "", "there is no database absent"),
        ("read-only", server.url_as("reader"), "", read_only),
        (
            "durability",
            server.url_as("hasty"),
            "",
            "has synchronous_commit = off",
        ),
        (
            "schema",
            server.url(),
            "absent",
            "create it with CREATE SCHEMA absent",
        ),
        (
            "schema of the server",
            server.url(),
            "information_schema",
            "reserves the schema information_schema for itself: name one of your own with DATABASE_SCHEMA",
        ),
        (
            "schema that nobody can create",
            server.url(),
            "pg_mine",
            "reserves the schema pg_mine for itself: name one of your own with DATABASE_SCHEMA",
        ),
        (
            "usage",
            server.url_as("guest"),
            "closed",
            "run GRANT USAGE ON SCHEMA closed TO guest",
        ),
        (
            "create",
            server.url_as("guest"),
            "fixed",
            "run GRANT CREATE ON SCHEMA fixed TO guest",
        ),
    ] {
        let lines: &[&str] = match what {
            // Clients create no tables.
            "create" => &["serve", "migrate"],
            _ => &["serve", "migrate", "migrate --status", "list --tenant a"],
        };
        for line in lines {
            let ended = run(on(&home, &url, line).env("DATABASE_SCHEMA", schema));
            assert_refused(&format!("{what}: {line}"), &ended, &[words]);
        }
        let checked = run(on(&home, &url, "check").env("DATABASE_SCHEMA", schema));
        assert_eq!(checked.code, Some(1), "{what}: {checked:?}");
        assert!(checked.stdout.contains(words), "{what}: {checked:?}");
        let all = format!("{checked:?}");
        assert!(!all.contains(SECRET), "{all}");
    }
    // The right password comes from a file.
    std::fs::write(home.path("password"), format!("{SECRET}\n")).unwrap();
    server.execute("CREATE SCHEMA me AUTHORIZATION me");
    let url = server.url_as("me");
    let ended = run(on(&home, &url, "migrate").env("DATABASE_PASSWORD_FILE", "password"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("the schema me of"), "{ended:?}");
}

#[test]
fn check_shows_the_server_and_the_tables() {
    let Some(database) = Database::shared() else {
        return;
    };
    let pending = run(&mut database.command("check"));
    assert_eq!(pending.code, Some(0), "{pending:?}");
    assert!(
        pending.stdout.contains("5 of 5 migrations are pending in"),
        "{pending:?}"
    );
    run(&mut database.command("migrate"));
    let ended = run(&mut database.command("check"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "ok    version                     PostgreSQL 15",
        "ok    recovery                    it is a primary",
        "fsync ",
        "full_page_writes ",
        "ok    synchronous_commit ",
        "ok    standbys                    none is connected; a commit waits for none",
        "ok    xmin ",
        "ok    clock ",
        "connections ",
        "ok    tables                      up to date in the schema ",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    let mut command = database.command("check");
    let unheard = command.env("DATABASE_LISTEN_URL", "postgres://me@127.0.0.1:1/timers");
    let unheard = run(unheard);
    assert_eq!(unheard.code, Some(0), "{unheard:?}");
    assert!(
        unheard.stdout.contains("warn  notifications "),
        "{unheard:?}"
    );
}
