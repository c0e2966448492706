//! `check`: everything is said in one run, and nothing is touched.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::api_client::{calls_command, serve_calls};
use crate::running::{Ended, Home, run};

/// The verdict and the words of each thing.
pub(crate) fn findings(ended: &Ended) -> Vec<(&str, &str)> {
    let lines = ended.stdout.lines();
    lines
        .map(|line| {
            let (verdict, rest) = line.split_once(' ').unwrap();
            assert!(["ok", "warn", "WRONG"].contains(&verdict), "{line}");
            (verdict, rest.trim_start())
        })
        .collect()
}

pub(crate) fn assert_all_is_well(ended: &Ended, words: &[&str]) {
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    for (verdict, rest) in findings(ended) {
        assert_eq!(verdict, "ok", "{rest}");
    }
    assert_said(ended, words);
}

pub(crate) fn assert_said(ended: &Ended, words: &[&str]) {
    for word in words {
        assert!(ended.stdout.contains(word), "{word:?} is not in {ended:?}");
    }
}

/// Exactly `count` findings are wrong, and among them are these.
pub(crate) fn assert_wrong(ended: &Ended, count: usize, words: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let findings = findings(ended);
    let wrong: Vec<&str> = findings
        .iter()
        .filter(|(verdict, _)| *verdict == "WRONG")
        .map(|(_, rest)| *rest)
        .collect();
    assert_eq!(wrong.len(), count, "{ended:?}");
    for word in words {
        assert!(
            wrong.iter().any(|line| line.contains(word)),
            "{word:?} is not in {wrong:?}"
        );
    }
    let summary = match count {
        1 => "error: one thing is wrong\n".to_owned(),
        _ => format!("error: {count} things are wrong\n"),
    };
    assert_eq!(ended.stderr, summary);
}

/// Every file of the home, with what is in it; but for the index of a log, which is memory that
/// processes share.
fn contents(home: &Home) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(home.path("")).unwrap().map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_plain = path.is_file() && !name.ends_with("-shm");
        let bytes = is_plain.then(|| std::fs::read(&path).unwrap());
        (name, bytes.unwrap_or_default())
    });
    files.collect()
}

#[test]
fn a_fresh_place_is_well_and_stays_as_it_was() {
    let home = Home::new();
    let ended = run(home.command("check").env_remove("TIMER_DB_PATH"));
    let words = [
        "there is no ./punctual.toml",
        "data/timer.db is not there yet",
        "data is not there yet",
        "timer.db is not there yet: it is made at the start",
        "are free",
    ];
    assert_all_is_well(&ended, &words);
    assert!(contents(&home).is_empty(), "nothing is made");
}

#[test]
fn a_database_at_rest_is_seen_and_stays_as_it_was() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h");
    let before = contents(&home);
    let ended = home.run("check");
    let words = [
        "the timers-only tables",
        "up to date",
        "a write-ahead log",
        "none was found",
        "by no process right now",
    ];
    assert_all_is_well(&ended, &words);
    assert!(contents(&home) == before);
}

#[test]
fn a_database_that_is_served_is_no_fault() {
    let home = Home::new();
    let serving = home.serve();
    home.json("schedule --tenant a --in 1h");
    let before = contents(&home);
    let words = [format!("by process {}, right now", serving.id())];
    assert_all_is_well(&home.run("check"), &[words[0].as_str()]);
    assert!(contents(&home) == before);
}

#[test]
fn each_value_is_told_with_its_origin() {
    let home = Home::new();
    std::fs::write(home.path("punctual.toml"), "\nretention_days = 7\n").unwrap();
    let mut command = home.command("check --batch-size 5");
    let ended = run(command.env("LOG_LEVEL", "debug"));
    let words = [
        "TIMER_BATCH_SIZE            5 (--batch-size)",
        "LOG_LEVEL                   debug (environment)",
        "RETENTION_DAYS              7 (./punctual.toml line 2)",
        "DB_SYNCHRONOUS              FULL (default)",
    ];
    assert_all_is_well(&ended, &words);
}

#[test]
fn one_run_shows_everything_that_is_wrong() {
    let home = Home::new();
    std::fs::write(home.db(), "my diary\n".repeat(1_000)).unwrap();
    let file = "log_level = \"loud\"\nno_such_thing = 1\n";
    std::fs::write(home.path("punctual.toml"), file).unwrap();
    let before = contents(&home);
    let mut command = home.command("check");
    let ended = run(command
        .env("TIMER_BATCH_SIZE", "0")
        .env("DB_PATH", home.path("punctual.toml/x.db"))
        .env("TIMER_BROKER_URL", "http://secret")
        .env("DATABASE_URL", "postgres://secret"));
    let words = [
        "punctual.toml line 1: log_level is \"loud\"",
        "punctual.toml line 2: there is no setting \"no_such_thing\"",
        "TIMER_BATCH_SIZE is \"0\": give a number from 1 to 10000",
        "TIMER_BROKER_URL is wrong: it cannot be understood: give nats://host:4222",
        "DATABASE_URL is wrong: its user: give postgres://user@host:5432/database",
        "timer.db is damaged or no SQLite database",
        "punctual.toml is a file: name a folder",
    ];
    assert_wrong(&ended, words.len(), &words);
    assert!(!ended.stdout.contains("secret"), "it may hold a password");
    assert!(
        !ended.stdout.contains("LOG_LEVEL "),
        "its default does not hold"
    );
    assert!(contents(&home) == before);
}

#[test]
fn a_settings_file_that_is_not_there_is_wrong_only_if_it_was_named() {
    let home = Home::new();
    let ended = home.run("check --config absent.toml");
    assert_wrong(&ended, 1, &["absent.toml, named by --config"]);
}

#[test]
fn a_database_that_cannot_be_used_is_wrong() {
    let home = Home::new();
    let both = run(home.command("check").env("DB_PATH", home.db()));
    assert_wrong(&both, 1, &["both name"]);

    let folder = home.run("check --db .");
    assert_wrong(&folder, 1, &["is a folder: name a file"]);

    home.json("migrate");
    let before = contents(&home);
    let mut shared = home.command("check --db other.db");
    let shared = run(shared.env("DB_PATH", home.db()));
    assert_wrong(
        &shared,
        1,
        &["timers-only tables, but the shared tables are needed"],
    );
    assert!(contents(&home) == before);
}

#[test]
fn damage_is_found_where_opening_would_not_meet_it() {
    let home = Home::new();
    home.json("migrate");
    let connection = rusqlite::Connection::open(home.db()).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'timer_schedules'";
    let root: u16 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    connection.close().unwrap();
    let mut bytes = std::fs::read(home.db()).unwrap();
    let root = usize::from(root);
    bytes[(root - 1) * 4_096..root * 4_096].fill(0xee);
    std::fs::write(home.db(), bytes).unwrap();
    assert_wrong(
        &home.run("check"),
        1,
        &["damage", "restore it from a backup"],
    );
}

#[test]
fn what_may_not_be_written_is_wrong() {
    let home = Home::new();
    home.json("migrate");
    std::fs::create_dir(home.path("closed")).unwrap();
    let root = home.path("");
    for (path, mode) in [
        (home.db(), 0o444),
        (home.path("closed"), 0o555),
        (root.clone(), 0o755),
    ] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let check = |line: &str| {
        let mut command = home.command(line);
        if rustix::process::geteuid().is_root() {
            // Root may write whatever the permissions say.
            command.uid(65_534).gid(65_534);
        }
        run(&mut command)
    };
    let closed = check("check --db closed/t.db");
    assert_wrong(
        &closed,
        1,
        &["closed cannot be written (Permission denied)"],
    );
    let below = check("check --db closed/deep/er/t.db");
    assert_wrong(&below, 1, &["deep/er cannot be made: "]);
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o777)).unwrap();
    let file = check("check");
    assert_wrong(&file, 1, &["timer.db cannot be read and written"]);
}

#[test]
fn a_full_database_is_wrong() {
    let home = Home::new();
    home.json("migrate");
    let file = std::fs::OpenOptions::new().write(true).open(home.db());
    file.unwrap().set_len(1 << 20).unwrap();
    let ended = run(home.command("check").env("DB_MAX_MIB", "1"));
    assert_eq!(ended.code, Some(1));
    assert_said(
        &ended,
        &["it has grown to DB_MAX_MIB, so new timers are refused"],
    );
}

#[test]
fn programs_get_json() {
    let home = Home::new();
    let ended = run(home.command("check --output json").env("LOG_FORMAT", "xml"));
    assert_eq!(ended.code, Some(1));
    let findings: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let wrong: Vec<_> = findings.iter().filter(|it| it["ok"] == false).collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0]["what"], "LOG_FORMAT");
    assert!(
        wrong[0]["detail"]
            .as_str()
            .unwrap()
            .contains("text or json")
    );
}

/// `check` and `serve` with the same flags and variables.
fn both(home: &Home, flags: &str, variables: &[(&str, &str)]) -> (Ended, Ended) {
    let [checked, served] = ["check", "serve"].map(|command| {
        let mut command = home.command(&format!("{command} {flags}"));
        command.env_remove("MODULES").env_remove("TIMER_DB_PATH");
        run(command.envs(variables.iter().copied()))
    });
    (checked, served)
}

#[test]
fn what_serve_refuses_of_the_interface_is_wrong_in_the_same_words() {
    let home = Home::new();
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listening.local_addr().unwrap();
    let tokens = home.path("tokens");
    std::fs::write(&tokens, "demo:sesame\n").unwrap();
    std::fs::write(home.path("empty"), "# nobody\n").unwrap();
    for (flags, variables, words) in [
        (
            format!("--listen {taken}"),
            [("X", "")],
            "name another address",
        ),
        (
            "--listen 0.0.0.0:0".to_owned(),
            [("X", "")],
            "API_TOKENS_FILE",
        ),
        (
            "--tokens nowhere".to_owned(),
            [("X", "")],
            "nowhere cannot be read",
        ),
        (
            "--tokens tokens".to_owned(),
            [("X", "")],
            "the token itself",
        ),
        (
            "--tokens empty".to_owned(),
            [("X", "")],
            "no request would be accepted",
        ),
        (
            String::new(),
            [("MODULES", "orchestration,timer,execution")],
            "add api to MODULES",
        ),
    ] {
        let flags = if flags.contains("--listen") {
            flags
        } else {
            format!("{flags} --listen 127.0.0.1:0")
        };
        let (checked, served) = both(&home, &flags, &variables);
        assert_eq!(served.code, Some(3), "{served:?}");
        let sentence = served.stderr.trim_end().trim_start_matches("error: ");
        assert!(sentence.contains(words), "{sentence}");
        assert_wrong(&checked, 1, &[sentence]);
        assert!(!checked.stdout.contains("sesame") && !home.path("data").exists());
    }
}

#[test]
fn an_interface_that_can_be_served_is_well_and_so_is_one_that_is() {
    let home = Home::new();
    let hash = punctual_api::hash_token("sesame");
    std::fs::write(home.path("tokens"), format!("demo:{hash}\n")).unwrap();
    let mut command = home.command("check --listen 127.0.0.1:0 --tokens tokens");
    let ended = run(command.env_remove("MODULES").env_remove("TIMER_DB_PATH"));
    assert_all_is_well(&ended, &["it can listen on 127.0.0.1:0, with one token"]);

    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let mut command = home.command(&format!("check --listen {}", api.0));
    command.env_remove("MODULES").env_remove("TIMER_DB_PATH");
    let ended = run(command.env("DB_PATH", home.path("calls.db")));
    let words = [format!(
        "{} is taken, and the database is being served",
        api.0
    )];
    assert_all_is_well(&ended, &[words[0].as_str()]);
}
