//! The settings file, as it is found, heeded and refused.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::refusals::assert_refused;
use crate::running::{Ended, Home, Running, run};

/// Runs the binary with a settings file and nothing in the environment.
fn run_with(home: &Home, text: &str, line: &str) -> Ended {
    std::fs::write(home.path("punctual.toml"), text).unwrap();
    run(home.command(line).env_remove("TIMER_DB_PATH"))
}

#[test]
fn every_command_finds_the_database_that_it_names() {
    let home = Home::new();
    let file = "timer_db_path = \"elsewhere/t.db\"\n";
    for line in [
        "migrate",
        "schedule --tenant a --in 1h --name x",
        "get --tenant a --name x",
        "list --tenant a",
        "cancel --tenant a --name x",
        "migrate --status",
    ] {
        let ended = run_with(&home, file, line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }
    assert!(home.path("elsewhere/t.db").exists());
    assert!(!home.path("data").exists());
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let home = Home::new();
    let file = home.path("punctual.toml");
    let used = |command: &mut std::process::Command| {
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let made = ["flag.db", "variable.db", "file.db", "data/timer.db"];
        let made = made.into_iter().find(|name| home.path(name).exists());
        let made = made.expect("one of them is made");
        std::fs::remove_file(home.path(made)).unwrap();
        made
    };
    std::fs::write(&file, "timer_db_path = \"file.db\"").unwrap();
    let mut command = home.command("migrate --db flag.db");
    assert_eq!(used(command.env("TIMER_DB_PATH", "variable.db")), "flag.db");
    let mut command = home.command("migrate");
    assert_eq!(
        used(command.env("TIMER_DB_PATH", "variable.db")),
        "variable.db"
    );
    let mut command = home.command("migrate");
    assert_eq!(used(command.env("TIMER_DB_PATH", "")), "file.db");
    std::fs::remove_file(&file).unwrap();
    let mut command = home.command("migrate");
    assert_eq!(used(command.env("TIMER_DB_PATH", "")), "data/timer.db");
}

#[test]
fn a_file_that_is_named_is_read_in_place_of_the_usual_one() {
    let home = Home::new();
    std::fs::write(home.path("punctual.toml"), "this is not even TOML").unwrap();
    std::fs::write(home.path("mine.toml"), "timer_db_path = \"mine.db\"").unwrap();
    std::fs::create_dir(home.path("sub")).unwrap();
    std::fs::write(home.path("sub/other.toml"), "timer_db_path = \"other.db\"").unwrap();
    let mut by_flag = home.command("migrate --config sub/other.toml");
    let by_flag = by_flag
        .env_remove("TIMER_DB_PATH")
        .env("PUNCTUAL_CONFIG", "mine.toml");
    assert_eq!(run(by_flag).code, Some(0));
    assert!(
        home.path("other.db").exists(),
        "paths are relative to where we are, not to the file"
    );
    let mut by_variable = home.command("migrate");
    let by_variable = by_variable
        .env_remove("TIMER_DB_PATH")
        .env("PUNCTUAL_CONFIG", "mine.toml");
    assert_eq!(run(by_variable).code, Some(0));
    assert!(home.path("mine.db").exists());

    let absent = home.run("list --tenant a --config absent.toml");
    let words = ["absent.toml", "--config", "No such file"];
    assert_refused("--config", &absent, 3, &words);
    let mut absent = home.command("serve");
    let absent = run(absent.env("PUNCTUAL_CONFIG", "absent.toml"));
    let words = ["absent.toml", "PUNCTUAL_CONFIG", "No such file"];
    assert_refused("PUNCTUAL_CONFIG", &absent, 3, &words);
}

#[test]
fn the_sample_that_we_ship_is_well() {
    let home = Home::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/punctual.toml");
    let mut command = home.command("check --config");
    command.arg(sample).env_remove("MODULES");
    let ended = run(command.env_remove("TIMER_DB_PATH"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(
        ended.stdout.contains("./data/event_service.db (/"),
        "{ended:?}"
    );
}

#[test]
fn serving_heeds_it() {
    let home = Home::new();
    let file = "timer_db_path = \"t.db\"\nlog_format = \"text\"\ndb_synchronous = \"NORMAL\"\n";
    std::fs::write(home.path("punctual.toml"), file).unwrap();
    let mut serving = Running::start(home.command("serve").env_remove("TIMER_DB_PATH"));
    serving.wait_until_it_says("synchronous NORMAL");
    serving.wait_until_it_says(&home.path("t.db").display().to_string());
    let file = home.path("punctual.toml");
    serving.wait_until_it_says(&format!("from:  {} (settings)", file.display()));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}

#[test]
fn what_is_wrong_with_it_is_said_by_every_command_and_touches_nothing() {
    let home = Home::new();
    for (file, words) in [
        (
            "\ntimer_bach_size = 5",
            [
                "punctual.toml line 2",
                "\"timer_bach_size\": did you mean timer_batch_size?",
            ],
        ),
        (
            "retention_days = true",
            [
                "punctual.toml line 1",
                "retention_days is true or false: give a whole number",
            ],
        ),
        (
            "log_format = \"xml\"",
            [
                "punctual.toml line 1",
                "log_format is \"xml\": give text or json",
            ],
        ),
        ("retention days = 5", ["punctual.toml line 1", "not TOML"]),
    ] {
        for line in [
            "serve",
            "list --tenant a",
            "schedule --tenant a --in 1h",
            "migrate",
        ] {
            assert_refused(line, &run_with(&home, file, line), 3, &words);
        }
    }
    assert!(!home.path("data").exists());
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let home = Home::new();
    let file = home.path("punctual.toml");
    std::fs::create_dir(&file).unwrap();
    let folder = home.run("serve");
    let words = ["punctual.toml cannot be read", "Is a directory"];
    assert_refused("a folder", &folder, 3, &words);
    std::fs::remove_dir(&file).unwrap();

    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    let words = ["punctual.toml cannot be read", "it is not UTF-8"];
    assert_refused("no text", &home.run("serve"), 3, &words);

    std::fs::write(&file, " ".repeat(70_000)).unwrap();
    let words = ["punctual.toml cannot be read", "more than 65536 bytes"];
    assert_refused("too long", &home.run("serve"), 3, &words);

    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(home.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = home.command("serve");
    if rustix::process::geteuid().is_root() {
        // Root may read whatever the permissions say.
        command.uid(65_534).gid(65_534);
    }
    let words = ["punctual.toml cannot be read", "Permission denied"];
    assert_refused("not ours", &run(&mut command), 3, &words);
}
