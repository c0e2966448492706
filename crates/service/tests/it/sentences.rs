//! Whatever is wrong, in a setting, an id, a date, a path or a permission, is one sentence that names
//! it, with its exit code, in words for people.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::running::{Ended, Home, run};

/// What only a programmer, or the program itself, would say.
const JARGON: [&str; 16] = [
    "Os {",
    "os error",
    "ParseIntError",
    "Utf8Error",
    "Some(",
    "None",
    "Ok(",
    "Err(",
    "::",
    "invalid digit",
    "EOF while",
    "expected value",
    "serde",
    "SqliteFailure",
    "panicked",
    "I/O error",
];

fn assert_one_sentence(what: &str, ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{what}: {ended:?}");
    assert_eq!(ended.stdout, "", "{what}");
    let said = &ended.stderr;
    assert!(said.starts_with("error: "), "{what}: {said}");
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(said.len() < 500, "{what}: {said}");
    for word in words {
        assert!(said.contains(word), "{what}: {word:?} is not in {said}");
    }
    // An address is no name of a type.
    let plain = said.replace("fd00::/8", "");
    for word in JARGON {
        assert!(!plain.contains(word), "{what}: {word:?} is in {said}");
    }
}

/// A setting, its flag, and wrong values: for flag and variable, and as it stands in the file.
struct Wrong {
    variable: &'static str,
    flag: Option<&'static str>,
    values: &'static [&'static str],
    in_file: &'static [&'static str],
    right: &'static str,
}

const SETTINGS: &[Wrong] = &[
    Wrong {
        variable: "DATABASE_URL",
        flag: Some("--database-url"),
        values: &[
            "mysql://me@host/timers",
            "postgres://me@host/timers?sslmode=perhaps",
        ],
        in_file: &["\"postgres://me@host:port/timers\"", "5432"],
        right: "give",
    },
    Wrong {
        variable: "DATABASE_SCHEMA",
        flag: None,
        values: &["timers"],
        in_file: &["\"timers\""],
        right: "set DATABASE_URL too",
    },
    Wrong {
        variable: "DATABASE_PASSWORD_FILE",
        flag: None,
        values: &["absent"],
        in_file: &["\"absent\""],
        right: "set DATABASE_URL too",
    },
    Wrong {
        variable: "DATABASE_LISTEN_URL",
        flag: None,
        values: &["localhost"],
        in_file: &["\"localhost\""],
        right: "postgres://",
    },
    Wrong {
        variable: "DATABASE_TIMEOUT",
        flag: None,
        values: &["999", "5s"],
        in_file: &["600001", "\"5s\""],
        right: "give",
    },
    Wrong {
        variable: "DATABASE_WAIT",
        flag: None,
        values: &["-1", "30s"],
        in_file: &["3600001", "\"30s\""],
        right: "give",
    },
    Wrong {
        variable: "TIMER_DB_PATH",
        flag: Some("--db"),
        values: &[],
        in_file: &["\"\"", "7", "[\"a\"]"],
        right: "give",
    },
    Wrong {
        variable: "DB_PATH",
        flag: None,
        values: &[],
        in_file: &["\"\"", "true"],
        right: "give",
    },
    Wrong {
        variable: "EXECUTION_DB_PATH",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "DB_SYNCHRONOUS",
        flag: Some("--synchronous"),
        values: &["OFF", "EXTRA", "1"],
        in_file: &["\"OFF\"", "1", "\"\""],
        right: "give",
    },
    Wrong {
        variable: "DB_MAX_MIB",
        flag: None,
        values: &["0", "1.5", "1000001", "many", "99999999999999999999"],
        in_file: &["0", "1.5", "\"1\"", "99999999999999999999"],
        right: "give a",
    },
    Wrong {
        variable: "TIMER_POLLING_INTERVAL",
        flag: Some("--polling-interval"),
        values: &["9", "5s", "86400001", "-1", "1e3"],
        in_file: &["9", "\"5s\"", "-1", "1e3"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BATCH_SIZE",
        flag: Some("--batch-size"),
        values: &["0", "10001", "ten", "٥"],
        in_file: &["0", "10001", "false", "1979-05-27"],
        right: "give a",
    },
    Wrong {
        variable: "RETENTION_DAYS",
        flag: Some("--retention-days"),
        values: &["0", "36501", "30d"],
        in_file: &["0", "36501", "\"30d\"", "{ days = 3 }"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_URL",
        flag: Some("--broker"),
        values: &[
            "http://a:4222",
            "nats://a:99999",
            "nats://a/b",
            "nats://a,,b",
        ],
        in_file: &["\"ws://a\"", "7", "\"\""],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_PREFIX",
        flag: None,
        values: &["a.b", "a b", "ä", "123456789012345678901234567890123"],
        in_file: &["\"a.b\"", "7", "\"\""],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_USER",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_PASSWORD_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_TOKEN_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_NKEY_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_CREDS_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_CA_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_CERT_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_KEY_FILE",
        flag: None,
        values: &[],
        in_file: &["\"\"", "7"],
        right: "give",
    },
    Wrong {
        variable: "TIMER_BROKER_TLS",
        flag: None,
        values: &["yes", "Require"],
        in_file: &["\"yes\"", "true"],
        right: "give",
    },
    Wrong {
        variable: "MODULES",
        flag: Some("--modules"),
        values: &["timers", "timer,occasions", ","],
        in_file: &["[\"timers\"]", "\"timer,occasions\"", "[[]]", "1"],
        right: "timer",
    },
    Wrong {
        variable: "API_LISTEN",
        flag: Some("--listen"),
        values: &["8080", "localhost:8080", "127.0.0.1"],
        in_file: &["\"8080\"", "8080"],
        right: "give",
    },
    Wrong {
        variable: "API_TOKENS_FILE",
        flag: Some("--tokens"),
        values: &[],
        in_file: &["\"\"", "1"],
        right: "give",
    },
    Wrong {
        variable: "EXECUTION_TIMEOUT",
        flag: None,
        values: &["30s", "0", "3600001", "-1"],
        in_file: &["\"30s\"", "0", "1.5"],
        right: "give",
    },
    Wrong {
        variable: "EXECUTION_ALLOW_NETS",
        flag: Some("--allow-nets"),
        values: &["intranet", "10.0.0.0/33", "127.0.0.1/8/9"],
        in_file: &["[\"intranet\"]", "1"],
        right: "give",
    },
    Wrong {
        variable: "LOG_FORMAT",
        flag: Some("--log-format"),
        values: &["xml", "JSON "],
        in_file: &["\"xml\"", "1"],
        right: "give",
    },
    Wrong {
        variable: "LOG_LEVEL",
        flag: Some("--log-level"),
        values: &["loud", "5"],
        in_file: &["\"loud\"", "5"],
        right: "give",
    },
];

#[test]
fn no_setting_is_forgotten_here() {
    let home = Home::new();
    let checked = home.run("check --output json").stdout;
    let things = checked.lines().map(|line| {
        let finding: Value = serde_json::from_str(line).unwrap();
        finding["what"].as_str().unwrap().to_owned()
    });
    let is_setting = |what: &String| what.starts_with(|c: char| c.is_ascii_uppercase());
    let known: BTreeSet<String> = things.filter(is_setting).collect();
    let here: BTreeSet<String> = SETTINGS.iter().map(|it| it.variable.to_owned()).collect();
    assert_eq!(here, known);
}

#[test]
fn a_wrong_setting_is_named_wherever_it_comes_from() {
    let home = Home::new();
    for wrong in SETTINGS {
        for value in wrong.values {
            if let Some(flag) = wrong.flag {
                let mut command = home.command("serve");
                let ended = run(command.args([&format!("{flag}={value}")]));
                let what = format!("{flag} {value}");
                assert_one_sentence(&what, &ended, 2, &[flag, wrong.right]);
            }
            let ended = run(home.command("serve").env(wrong.variable, value));
            let what = format!("{}={value}", wrong.variable);
            assert_one_sentence(&what, &ended, 3, &[wrong.variable, wrong.right]);
        }
        for value in wrong.in_file {
            let key = wrong.variable.to_lowercase();
            let line = format!("\n{key} = {value}\n");
            std::fs::write(home.path("punctual.toml"), &line).unwrap();
            let ended = home.run("serve");
            let words = ["punctual.toml line 2: ", &key, wrong.right];
            assert_one_sentence(&line, &ended, 3, &words);
            std::fs::remove_file(home.path("punctual.toml")).unwrap();
        }
    }
    let mut empty = home.command("serve");
    let ended = run(empty.args(["--db", ""]));
    assert_one_sentence("--db", &ended, 2, &["--db", "give the path of a file"]);
    assert!(!home.db().exists(), "nothing was begun");
}

#[test]
fn a_wrong_id_name_date_or_amount_is_named() {
    let home = Home::new();
    let long = "x".repeat(2_000);
    for (line, words) in [
        ("get --tenant a --id order-123", ["--id", "36 characters"]),
        ("cancel --tenant a --id {}", ["--id", "36 characters"]),
        (
            "schedule --tenant a --in 1s --id 0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8g",
            ["--id", "UUID"],
        ),
        ("trace --correlation 7", ["--correlation", "UUID"]),
        (
            "schedule --tenant a --in 1s --correlation LONG",
            ["--correlation", "xxx…"],
        ),
        ("list --tenant a.b", ["--tenant", "'.' as character 2"]),
        ("list --tenant ä", ["--tenant", "only A-Z"]),
        ("list --tenant LONG", ["--tenant", "at most 128"]),
        ("get --tenant a --name LONG", ["--name", "1 to 512 bytes"]),
        ("get --tenant a", ["--id", "or --name"]),
        ("cancel --tenant a", ["--id", "or --name"]),
        ("schedule --tenant a", ["--due", "or --in"]),
        ("schedule --in 5s", ["--tenant", "schedule --help"]),
        (
            "schedule --tenant a --due 2026-12-24",
            ["--due", "time of day is missing"],
        ),
        (
            "schedule --tenant a --due 2026-12-24T18:00:00",
            ["--due", "add Z or an offset such as +01:00"],
        ),
        (
            "schedule --tenant a --due 2026-12-24T18:00Z",
            ["--due", "seconds are missing"],
        ),
        (
            "schedule --tenant a --due 2026-02-30T00:00:00Z",
            ["--due", "no such day"],
        ),
        (
            "schedule --tenant a --due 2026-12-24T25:00:00Z",
            ["--due", "no such time"],
        ),
        (
            "schedule --tenant a --due 1969-12-31T23:59:59Z",
            ["--due", "1970 to 9998"],
        ),
        (
            "schedule --tenant a --due 12026-12-31T23:59:59Z",
            ["--due", "1970 to 9998"],
        ),
        ("schedule --tenant a --due LONG", ["--due", "RFC 3339"]),
        ("schedule --tenant a --in 1.5h", ["--in", "whole number"]),
        (
            "schedule --tenant a --in 99999999999999999d",
            ["--in", "9998"],
        ),
        (
            "schedule --tenant a --in 1s --data hello",
            ["--data", "single quotes"],
        ),
        (
            "schedule --tenant a --in 1s --data [1",
            ["--data", "ends too early"],
        ),
        (
            "schedule --tenant a --in 1s --data LONG",
            ["--data", "xxx…"],
        ),
        ("list --tenant a --limit 0", ["--limit", "1 to 1000"]),
        ("list --tenant a --limit LONG", ["--limit", "xxx…"]),
        (
            "list --tenant a --state done",
            ["--state", "scheduled or reached"],
        ),
        ("list --tenant a --output xml", ["--output", "json, table"]),
        ("completions tcsh", ["tcsh", "bash"]),
        (
            "schedule --tenant a --in 1s --due 2026-12-24T18:00:00Z",
            ["--in", "--due"],
        ),
        ("schedule --batch - --output table", ["--batch", "--output"]),
    ] {
        let ended = home.run(&line.replace("LONG", &long));
        assert_one_sentence(line, &ended, 2, &words);
    }
    assert!(!home.db().exists(), "nothing was begun");
}

#[test]
fn a_wrong_command_to_the_broker_or_about_dead_letters_is_named() {
    let home = Home::new();
    let long = "x".repeat(2_000);
    for (line, words) in [
        (
            "send --tenant a.b --in 1s",
            ["--tenant", "'.' as character 2"],
        ),
        ("send --tenant a", ["--due", "or --in"]),
        ("send --tenant a --in 1s --id 7", ["--id", "36 characters"]),
        (
            "send --tenant a --in 1s --wait soon",
            ["--wait", "whole number"],
        ),
        (
            "send --tenant a --in 1s --wait 1s --no-wait",
            ["--wait", "--no-wait"],
        ),
        (
            "send --tenant a --in 400000000d --broker a",
            ["--in", "9998"],
        ),
        ("send --tenant a --in 1s", ["--broker", "TIMER_BROKER_URL"]),
        ("dead-letters --limit 1001", ["--limit", "1 to 1000"]),
        ("dead-letters --after LONG", ["--after", "xxx…"]),
        ("dead-letters --remove -1", ["-1", "dead-letters --help"]),
        (
            "dead-letters --remove 1 --payload",
            ["--remove", "--payload"],
        ),
    ] {
        let ended = home.run(&line.replace("LONG", &long));
        assert_one_sentence(line, &ended, 2, &words);
    }
    assert!(!home.db().exists(), "nothing was begun");
}

/// Runs as a user to whom permissions apply, unlike root.
fn run_unprivileged(home: &Home, line: &str) -> Ended {
    let mut command = home.command(line);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    run(&mut command)
}

#[test]
fn a_path_that_leads_nowhere_or_to_the_wrong_thing_is_named() {
    let home = Home::new();
    std::fs::write(home.path("file"), "").unwrap();
    std::fs::create_dir(home.path("folder")).unwrap();
    let long = "x".repeat(300);
    for (line, code, words) in [
        (
            "list --tenant a --db no/such/t.db",
            1,
            ["there is no database at", "no/such/t.db"],
        ),
        (
            "migrate --status --db no/such/t.db",
            1,
            ["there is no database at", "no/such/t.db"],
        ),
        (
            "list --tenant a --db a\u{1b}b",
            1,
            ["there is no database at", "a\\u{1b}b"],
        ),
        (
            "schedule --batch no-such",
            1,
            ["cannot read no-such", "No such file"],
        ),
        (
            "schedule --batch folder",
            1,
            ["cannot read folder", "Is a directory"],
        ),
        (
            "serve --config no-such",
            3,
            ["no-such, named by --config", "No such file"],
        ),
        (
            "serve --config folder",
            3,
            ["folder, named by --config", "Is a directory"],
        ),
    ] {
        assert_one_sentence(line, &home.run(line), code, &words);
    }
    for command in [
        "serve",
        "schedule --tenant a --in 5s",
        "get --tenant a --name x",
        "list --tenant a",
        "cancel --tenant a --name x",
        "migrate",
        "migrate --status",
    ] {
        let run = |path: &str| home.run(&format!("{command} --db {path}"));
        let words = ["folder is a folder: name a file"];
        assert_one_sentence(command, &run("folder"), 3, &words);
        let words = ["/dev/null is not a file"];
        assert_one_sentence(command, &run("/dev/null"), 3, &words);
        let below = run("file/t.db");
        assert_one_sentence(command, &below, 3, &["/file", " name "]);
        let ended = run(&long);
        assert_eq!(ended.code, Some(3), "{command}: {ended:?}");
    }
}

#[test]
fn a_permission_that_is_missing_is_named() {
    let home = Home::new();
    home.json("migrate");
    for name in ["unreadable.db", "unreadable.ndjson", "unreadable.toml"] {
        std::fs::copy(home.db(), home.path(name)).unwrap();
        std::fs::set_permissions(home.path(name), PermissionsExt::from_mode(0o000)).unwrap();
    }
    std::fs::create_dir(home.path("closed")).unwrap();
    std::fs::set_permissions(home.path("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    std::fs::set_permissions(home.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    for (line, code, words) in [
        (
            "list --tenant a --db unreadable.db",
            3,
            ["unreadable.db", "may read"],
        ),
        ("serve --db unreadable.db", 3, ["unreadable.db", "may read"]),
        (
            "migrate --status --db unreadable.db",
            3,
            ["unreadable.db", "may read"],
        ),
        ("serve --db closed/t.db", 3, ["closed/t.db", "may write"]),
        (
            "schedule --tenant a --in 5s --db closed/t.db",
            3,
            ["closed/t.db", "may write"],
        ),
        (
            "serve --db closed/deep/t.db",
            3,
            ["closed/deep", "Permission denied"],
        ),
        (
            "schedule --batch unreadable.ndjson",
            1,
            ["unreadable.ndjson", "Permission denied"],
        ),
        (
            "serve --config unreadable.toml",
            3,
            ["unreadable.toml", "Permission denied"],
        ),
    ] {
        assert_one_sentence(line, &run_unprivileged(&home, line), code, &words);
    }
}
