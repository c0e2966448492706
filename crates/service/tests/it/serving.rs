//! Serving: what is scheduled fires, whoever schedules it, and an orderly stop repeats nothing.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::{DueTimeReached, Timestamp};
use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::Value;

use crate::running::{Home, Running, firings, instant, run};

#[test]
fn a_timer_that_is_scheduled_beside_it_fires_within_a_second() {
    let home = Home::new();
    let mut serving = Running::start(&mut home.command("serve --polling-interval 60000"));
    serving.wait_until_ready();
    let clock = SystemClock::start().unwrap();
    // Overdue at once, and nothing but the commit of another process tells so.
    let timer = home.json("schedule --tenant a --in 0s --data {\"say\":\"tea\"}");
    let scheduled = clock.monotonic();
    let fired = serving.firing();
    assert!(clock.now() >= fired.reached_at);
    let waited = clock.monotonic().saturating_sub(scheduled);
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    assert_eq!(fired.service_call_id.to_string(), timer["serviceCallId"]);
    assert_eq!(fired.due_at, instant(&timer["dueAt"]));
    assert!(fired.reached_at >= fired.due_at);
    assert_eq!(fired.data.unwrap().as_json(), "{\"say\":\"tea\"}");
}

#[test]
fn what_became_due_while_nobody_served_fires_at_the_start() {
    let home = Home::new();
    home.json("schedule --tenant a --due 2020-01-01T00:00:00Z --name old");
    let serving = home.serve();
    let fired = serving.firing();
    assert_eq!(fired.due_at.to_string(), "2020-01-01T00:00:00.000Z");
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    let timer = home.json("get --tenant a --name old");
    assert_eq!(timer["state"], "Reached");
    assert_eq!(instant(&timer["reachedAt"]), fired.reached_at);
}

#[test]
fn a_timer_that_has_fired_fires_again_only_if_it_is_replaced() {
    let home = Home::new();
    home.json("schedule --tenant a --in 0s --name x");
    let serving = home.serve();
    let first = serving.firing();
    serving.signal(Signal::TERM);
    serving.end();

    let refused = home.run("schedule --tenant a --in 0s --name x");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("--replace"), "{refused:?}");
    let cancelled = home.run("cancel --tenant a --name x");
    assert_eq!(cancelled.code, Some(1));
    assert!(
        cancelled.stderr.contains("has fired already"),
        "{cancelled:?}"
    );
    home.json("schedule --tenant a --in 0s --name x --replace");
    let second = home.serve().firing();
    assert_eq!(first.key(), second.key());
    assert_ne!(first.firing_id, second.firing_id);
}

#[test]
fn a_timer_that_may_be_firing_cannot_be_cancelled() {
    let home = Home::new();
    let serving = home.serve();
    home.json("schedule --tenant a --in 1s --name soon");
    let cancelled = home.run("cancel --tenant a --name soon");
    assert_eq!(cancelled.code, Some(1), "{cancelled:?}");
    assert!(
        cancelled.stderr.contains("cannot be cancelled any more"),
        "{cancelled:?}"
    );
    serving.firing();
}

/// Schedules many timers that are due, and returns how many.
pub(crate) fn schedule_many(home: &Home, count: usize, data: &str) {
    let mut feeding = Running::start(home.command("schedule --batch -").stdin(Stdio::piped()));
    let mut stdin = feeding.take_stdin();
    for n in 0..count {
        let tenant = n % 7;
        writeln!(
            stdin,
            r#"{{"tenantId":"t{tenant}","name":"{n}","dueAt":"2026-01-01T00:00:00Z","data":"{data}"}}"#
        )
        .unwrap();
    }
    drop(stdin);
    assert_eq!(feeding.end().code, Some(0));
}

#[test]
fn a_signal_in_the_middle_of_firing_repeats_nothing() {
    const COUNT: usize = 3_000;
    let home = Home::new();
    schedule_many(&home, COUNT, "");
    let mut seen = BTreeSet::new();
    let mut stops = 0;
    while seen.len() < COUNT {
        let mut serving = home.serve();
        let signal = if stops % 2 == 0 {
            Signal::TERM
        } else {
            Signal::INT
        };
        let mut events = Vec::new();
        while events.len() < 400 && seen.len() + events.len() < COUNT {
            events.push(serving.firing());
        }
        serving.signal(signal);
        // As `timeout` does, which tells the process and then its group.
        serving.wait_until_it_says("stopping");
        serving.signal(signal);
        let ended = serving.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        events.extend(firings(&ended.stdout));
        for event in events {
            assert!(
                seen.insert(event.firing_id.to_string()),
                "{event:?} came twice"
            );
        }
        stops += 1;
    }
    assert!(stops > 1, "it was stopped in the middle at least once");
}

#[test]
fn a_second_signal_ends_it_at_once_and_loses_nothing() {
    const COUNT: usize = 100;
    let home = Home::new();
    schedule_many(&home, COUNT, &"x".repeat(10_000));
    let mut serving = Running::start_unread(home.command("serve").stdout(Stdio::piped()));
    let mut stdout = BufReader::with_capacity(1, serving.take_stdout());
    let mut first = String::new();
    for _ in 0..20 {
        stdout.read_line(&mut first).unwrap();
    }
    // From here on nothing is read, more is in flight than a pipe takes, and the drain cannot end.
    serving.signal(Signal::TERM);
    serving.wait_until_it_says("a second signal ends it at once");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(143));

    // What was written is there, up to a line that was cut; the rest comes now.
    stdout.read_to_string(&mut first).unwrap();
    let whole = first.rfind('\n').unwrap();
    let mut fired: BTreeSet<_> = firings(&first[..whole])
        .iter()
        .map(DueTimeReached::key)
        .collect();
    let serving = home.serve();
    while fired.len() < COUNT {
        fired.insert(serving.firing().key());
    }
}

#[test]
fn a_second_one_is_refused_and_takes_over_at_once_when_the_first_is_killed() {
    let home = Home::new();
    let mut first = home.serve();
    let refused = home.run("serve");
    assert_eq!(refused.code, Some(3));
    assert!(
        refused.stderr.contains("are fired by process"),
        "{refused:?}"
    );
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");

    home.json("schedule --tenant a --in 0s");
    first.firing();
    first.kill();
    let second = home.serve();
    home.json("schedule --tenant a --in 0s --name after");
    let named = home.json("get --tenant a --name after");
    // The first one's firing may come again; the new one comes in any case.
    while second.firing().service_call_id.to_string() != named["serviceCallId"] {}
}

#[test]
fn a_database_that_breaks_under_it_stops_it_with_the_cause() {
    let home = Home::new();
    let serving = home.serve();
    home.json("schedule --tenant a --in 2s");
    for file in ["timer.db", "timer.db-wal"] {
        let path = home.path(file);
        let length = std::fs::metadata(&path).unwrap().len();
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        let garbage = vec![0xee; usize::try_from(length).unwrap()];
        file.write_all(&garbage).unwrap();
    }
    let ended = serving.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("error: the timer worker has stopped: "),
        "{last}"
    );
    let log = ended.stderr.lines().rev().nth(1).unwrap();
    let log: Value = serde_json::from_str(log).unwrap();
    assert_eq!(log["level"], "ERROR");
    let reason = log["reason"].as_str().unwrap();
    assert_eq!(last, format!("error: {reason}"));
}

#[test]
fn the_log_is_json_where_a_program_reads_it() {
    let home = Home::new();
    let serving = Running::start(&mut home.command("--modules timer --log-level debug"));
    home.json("schedule --tenant a --in 0s --data \"a-secret\"");
    serving.firing();
    serving.signal(Signal::INT);
    let ended = serving.end();
    assert_eq!(ended.code, Some(0));
    for line in ended.stderr.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(entry["level"].is_string(), "{line}");
    }
    assert!(!ended.stderr.contains("a-secret"), "data is never logged");
    let last: Value = serde_json::from_str(ended.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(last["message"], "stopped: no timer is lost");
    assert_eq!(last["reason"], "a signal");
    instant(&last["timestamp"]);
}

#[test]
fn the_log_is_text_where_that_was_asked_for() {
    let home = Home::new();
    let mut serving = Running::start(&mut home.command("--log-format text"));
    serving.wait_until_it_says("stop:  Ctrl-C");
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!(ended.code, Some(0));
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for (line, words) in [
        (
            lines[0],
            "INFO stopping: what is in flight is finished first",
        ),
        (
            lines[lines.len() - 1],
            "INFO stopped: no timer is lost reason=\"a signal\"",
        ),
    ] {
        let (time, rest) = line.split_once(' ').unwrap();
        assert_eq!(time.parse::<Timestamp>().unwrap().to_string(), time);
        assert!(rest.trim_start().starts_with(words), "{line}");
        assert!(!line.contains('\u{1b}'), "colours are for terminals");
    }
}

#[test]
fn the_banner_says_where_the_data_is_and_what_to_try() {
    let home = Home::new();
    let serving = Running::start(&mut home.command("--log-format text"));
    home.json("schedule --tenant a --in 0s");
    serving.firing();
    serving.signal(Signal::TERM);
    let ended = serving.end();
    let db = home.db();
    assert!(
        ended.stderr.contains(&format!("data:  {}", db.display())),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("schedule --tenant demo --in 5s --db"),
        "{ended:?}"
    );
}

#[test]
fn a_full_database_refuses_new_timers_and_fires_the_stored_ones() {
    let home = Home::new();
    let data = format!("\"{}\"", "x".repeat(15_000));
    let schedule = |n: usize| {
        let mut command = home.command(&format!("schedule --tenant t --in 0s --name {n}"));
        run(command.args(["--data", &data]).env("DB_MAX_MIB", "1"))
    };
    let (stored, refused) = (0..100)
        .find_map(|n| {
            let ended = schedule(n);
            (ended.code != Some(0)).then_some((n, ended))
        })
        .unwrap();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("the file has grown to its limit"),
        "{refused:?}"
    );
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    assert!(stored > 20, "{stored}");
    let serving = home.serve();
    let fired: BTreeSet<_> = (0..stored).map(|_| serving.firing().key()).collect();
    assert_eq!(fired.len(), stored);
}
