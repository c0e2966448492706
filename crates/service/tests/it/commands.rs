//! Each command, as it answers when all is well, and when there is nothing to find.

use std::process::Stdio;

use punctual_domain::{TenantId, TimerKey};

use crate::running::{Home, Running, instant, run};

const ID: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
const REQUEST: &str = "0190a6e0-0000-7c11-9d2e-3f4a5b6c7d8e";

#[test]
fn a_scheduled_timer_is_printed_as_it_is_stored() {
    let home = Home::new();
    let line = format!(
        "schedule --tenant a --due 2096-12-24T18:00:00.0001+01:00 --id {ID} --correlation {REQUEST} --data {{\"n\":1}}"
    );
    let timer = home.json(&line);
    assert_eq!(timer["tenantId"], "a");
    assert_eq!(timer["serviceCallId"], ID);
    assert_eq!(timer["correlationId"], REQUEST);
    assert_eq!(timer["dueAt"], "2096-12-24T17:00:00.001Z", "rounded up");
    assert_eq!(timer["state"], "Scheduled");
    assert_eq!(timer["data"]["n"], 1);
    assert!(instant(&timer["registeredAt"]) < instant(&timer["dueAt"]));
    assert!(timer.get("reachedAt").is_none());
    assert_eq!(home.json(&format!("get --tenant a --id {ID}")), timer);
}

#[test]
fn a_name_stands_for_the_same_timer_everywhere() {
    let home = Home::new();
    let timer = home.json("schedule --tenant a --in 2h --name order-123");
    let key = TimerKey::named(TenantId::new("a").unwrap(), "order-123");
    assert_eq!(timer["serviceCallId"], key.service_call_id.to_string());
    let moved = home.json("schedule --tenant a --in 3h --name order-123");
    assert_eq!(moved["serviceCallId"], timer["serviceCallId"]);
    assert!(instant(&moved["dueAt"]) > instant(&timer["dueAt"]));
    assert_eq!(home.json("get --tenant a --name order-123"), moved);
    let listed = home.json("list --tenant a");
    assert_eq!(
        listed["items"].as_array().unwrap().len(),
        1,
        "moved, not added"
    );
}

#[test]
fn without_id_or_name_each_timer_is_a_new_one() {
    let home = Home::new();
    let one = home.json("schedule --tenant a --in 90s");
    let two = home.json("schedule --tenant a --in 90s");
    assert_ne!(one["serviceCallId"], two["serviceCallId"]);
    let wait = instant(&one["dueAt"]).since(instant(&one["registeredAt"]));
    assert!((89..=91).contains(&wait.as_secs()), "{wait:?}");
}

#[test]
fn a_list_is_paged_by_due_time_and_filtered_by_state() {
    let home = Home::new();
    for (tenant, hours) in [("a", 3), ("a", 1), ("b", 2), ("a", 2)] {
        home.json(&format!("schedule --tenant {tenant} --in {hours}h"));
    }
    let first = home.json("list --tenant a --limit 2");
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = home.json(&format!("list --tenant a --limit 2 --after {cursor}"));
    assert!(second.get("nextCursor").is_none());
    let dues: Vec<_> = [&first, &second]
        .iter()
        .flat_map(|page| page["items"].as_array().unwrap())
        .map(|timer| instant(&timer["dueAt"]))
        .collect();
    assert_eq!(dues.len(), 3, "another tenant's timers are not ours to see");
    assert!(dues.is_sorted());
    let reached = home.json("list --tenant a --state reached");
    assert_eq!(reached["items"].as_array().unwrap().len(), 0);
    let scheduled = home.json("list --tenant b --state scheduled");
    assert_eq!(scheduled["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_trace_finds_the_timers_of_one_request() {
    let home = Home::new();
    for tenant in ["a", "b"] {
        home.json(&format!(
            "schedule --tenant {tenant} --in 1h --correlation {REQUEST}"
        ));
    }
    home.json("schedule --tenant a --in 1h");
    let trace = home.json(&format!("trace --correlation {REQUEST}"));
    assert_eq!(trace["items"].as_array().unwrap().len(), 2);
    let page = home.json(&format!("trace --correlation {REQUEST} --limit 1"));
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = home.json(&format!("trace --correlation {REQUEST} --after {cursor}"));
    let both = [page["items"][0].clone(), rest["items"][0].clone()];
    assert_eq!(trace["items"].as_array().unwrap()[..], both);
    assert!(rest.get("nextCursor").is_none());
    let wrong = home.run(&format!("trace --correlation {REQUEST} --after x"));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let nothing = home.run(&format!("trace --correlation {ID}"));
    assert_eq!(nothing.code, Some(1));
}

#[test]
fn a_cancelled_timer_is_gone() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h --name x");
    let cancelled = home.json("cancel --tenant a --name x");
    assert_eq!(cancelled["outcome"], "deleted");
    for line in ["cancel --tenant a --name x", "get --tenant a --name x"] {
        let ended = home.run(line);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stderr.contains("there is no timer \"x\" ("),
            "by the name that was given: {ended:?}"
        );
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn another_tenants_timer_is_as_absent_as_none() {
    let home = Home::new();
    home.json(&format!("schedule --tenant a --in 1h --id {ID}"));
    let theirs = home.run(&format!("get --tenant b --id {ID}"));
    let nobodys = home.run(&format!("get --tenant b --id {REQUEST}"));
    assert_eq!(theirs.code, Some(1));
    assert_eq!(theirs.stderr.replace(ID, REQUEST), nobodys.stderr);
    let cancelled = home.run(&format!("cancel --tenant b --id {ID}"));
    assert_eq!(cancelled.code, Some(1));
    home.json(&format!("get --tenant a --id {ID}"));
}

#[test]
fn people_get_a_table() {
    let home = Home::new();
    home.json(&format!(
        "schedule --tenant a --due 2096-12-24T18:00:00Z --id {ID} --correlation {REQUEST} --data {{\"n\":1}}"
    ));
    let rows = |line: &str| -> Vec<String> {
        let ended = home.run(line);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.lines().map(str::to_owned).collect()
    };
    for line in [
        "list --tenant a --output table".to_owned(),
        format!("get --tenant a --id {ID} --output table"),
        format!("trace --correlation {REQUEST} --output table"),
        format!(
            "schedule --tenant a --due 2096-12-24T18:00:00Z --id {ID} --data {{\"n\":1}} --output table"
        ),
    ] {
        let rows = rows(&line);
        assert_eq!(rows.len(), 2, "{line}: {rows:?}");
        for cell in [ID, "2096-12-24T18:00:00.000Z", "{\"n\":1}"] {
            assert!(rows[1].contains(cell), "{line}: {rows:?}");
        }
    }
    let nothing = home.run("list --tenant nobody --output table");
    let said = (nothing.code, nothing.stderr.as_str());
    assert_eq!(said, (Some(0), "there are none\n"));
    let cancelled = rows(&format!("cancel --tenant a --id {ID} --output table"));
    assert_eq!(cancelled.len(), 2);
    assert!(cancelled[1].ends_with("deleted"), "{cancelled:?}");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let home = Home::new();
    home.json("schedule --tenant a --in 1h --name x");
    for line in [
        "list --tenant a",
        "list --tenant a --output table",
        "get --tenant a --name x",
        "migrate --status",
        "check",
        "completions bash",
        "--help",
    ] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let ended = Running::start_unread(home.command(line).stdout(Stdio::from(writer))).end();
        let said = (ended.code, ended.stderr.as_str());
        assert_eq!(said, (Some(0), ""), "{line}");
    }
    // Who changes something wants to hear that it is done.
    for line in ["schedule --tenant a --in 1h", "cancel --tenant a --name x"] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let ended = Running::start_unread(home.command(line).stdout(Stdio::from(writer))).end();
        assert_eq!(ended.code, Some(1), "{line}");
        let sentence = "error: standard output cannot be written: Broken pipe\n";
        assert_eq!(ended.stderr, sentence, "{line}");
    }
}

#[test]
fn one_database_that_is_missing_does_not_hide_the_other() {
    let home = Home::new();
    home.json("migrate");
    let mut command = home.command("migrate --status");
    let ended = run(command.env("DB_PATH", home.path("absent.db")));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("\"set\":\"timers-only\""),
        "{ended:?}"
    );
    assert!(
        ended
            .stderr
            .contains("absent.db: name another with DB_PATH"),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let mut command = home.command("migrate --status");
    let neither = run(command
        .env("DB_PATH", home.path("absent.db"))
        .env("TIMER_DB_PATH", "absent-too.db"));
    assert_eq!((neither.code, neither.stdout.as_str()), (Some(1), ""));
    assert_eq!(neither.stderr.lines().count(), 2, "{neither:?}");
}

#[test]
fn migrate_makes_both_databases_and_shows_how_far_they_are() {
    let home = Home::new();
    let missing = home.run("migrate --status");
    assert_eq!(missing.code, Some(1));
    assert!(!home.db().exists(), "--status creates nothing");

    let report = home.json("migrate");
    assert_eq!(report["set"], "timers-only");
    assert_eq!(report["pending"], 0);
    assert!(report["appliedNow"].as_u64().unwrap() > 0);
    assert_eq!(home.json("migrate")["appliedNow"], 0);
    let status = home.json("migrate --status");
    assert_eq!(status["pending"], 0);
    assert!(status["migrations"][0]["appliedAt"].is_string());

    let shared = home.path("shared/all.db");
    let mut both = home.command("migrate");
    let ended = run(both.env("DB_PATH", &shared));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout.lines().count(), 2);
    assert!(ended.stdout.contains("\"set\":\"shared\""));
    assert!(shared.exists(), "folders are made");
}

#[test]
fn a_flag_names_another_database() {
    let home = Home::new();
    let other = home.path("folder/other.db");
    home.json(&format!(
        "schedule --tenant a --in 1h --db {}",
        other.display()
    ));
    assert!(other.exists() && !home.db().exists());
}

#[test]
fn help_and_version_are_given_on_standard_output() {
    let home = Home::new();
    for (line, words) in [
        ("--help", "TIMER_POLLING_INTERVAL"),
        ("--help", "Exit codes"),
        ("-h", "schedule --tenant demo --in 5s"),
        ("serve --help", "SIGTERM"),
        ("schedule --help", "\"dueAt\""),
        ("list --help", "nextCursor"),
        ("serve --help", "timer_batch_size = 100"),
        ("serve --help", "DB_MAX_MIB"),
        ("check --help", "WRONG"),
        ("completions --help", "~/.bashrc"),
        ("cancel --help", "ten seconds"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let ended = home.run(line);
        assert_eq!(ended.code, Some(0), "{line}");
        assert!(ended.stdout.contains(words), "{line}: {}", ended.stdout);
        assert_eq!(ended.stderr, "");
    }
    for command in [
        "serve", "schedule", "get", "list", "trace", "cancel", "migrate", "check",
    ] {
        let help = home.run(&format!("{command} --help")).stdout;
        for words in ["Examples:\n  ", "PUNCTUAL_CONFIG", "TIMER_DB_PATH"] {
            assert!(help.contains(words), "{command}: {help}");
        }
        let wide = help.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{command}");
    }
}
