//! Timers that belong to no service call, beside calls: whoever is told that one is stored gets it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::hanging_targets::is_not_late;
use crate::running::{Home, PATIENCE, Running, firing, firings};
use crate::serving::schedule_many;
use crate::target::Target;

const CALLS: &str = "/api/tenants/demo/service-calls";

fn now() -> Timestamp {
    SystemClock::start().unwrap().now()
}

fn timer(n: u32) -> String {
    format!("/api/tenants/demo/timers/0190a6e0-7a3b-7c11-9d2e-{n:012}")
}

/// The API of a service whose standard output is not read.
fn listens(serving: &mut Running) -> Api {
    let line = serving.wait_until_it_says("serving service calls");
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["api"].as_str().unwrap().trim_start_matches("http://");
    Api(address.parse().unwrap())
}

fn submit(api: Api, url: &str, due_at: Timestamp) -> String {
    let body = json!({"name": "a", "dueAt": due_at, "requestSpec": {"method": "GET", "url": url}});
    let answer = api.ask("POST", CALLS, Some(&body));
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["serviceCallId"].as_str().unwrap().to_owned()
}

fn wait_until_made(api: Api, id: &str) -> Value {
    let give_up = now().saturating_add(PATIENCE);
    loop {
        let call = api.get(&format!("{CALLS}/{id}"));
        if call["status"] == "Succeeded" {
            return call;
        }
        assert!(now() < give_up, "{call}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_timer_that_belongs_to_no_call_is_a_line_and_one_of_a_call_is_none() {
    let (home, target) = (Home::new(), Target::start());
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(command.env("TIMER_DB_PATH", home.db()));
    let call = submit(api, &target.url("/made"), now());
    wait_until_made(api, &call);
    let soon = now().saturating_add(Duration::from_millis(600));
    let gone = submit(api, &target.url("/gone"), soon);
    let deleted = api.ask("DELETE", &format!("{CALLS}/{gone}"), None);
    assert_eq!(deleted.status, 204, "{deleted:?}");

    let due_at = now();
    let put = api.ask(
        "PUT",
        &timer(1),
        Some(&json!({"dueAt": due_at, "data": "over http"})),
    );
    assert_eq!(put.status, 201, "{put:?}");
    let over_http = serving.firing();
    assert_eq!(over_http.due_at, due_at);
    assert_eq!(over_http.read::<String>().unwrap(), "over http");
    let by_hand = home.json("schedule --tenant demo --in 1s --data 7");
    let line = serving.firing();
    assert_eq!(
        by_hand["serviceCallId"],
        line.service_call_id.to_string(),
        "a client's timer fires as a line too"
    );
    let state = api.get(&timer(1))["state"].clone();
    assert_eq!(state, "Reached");
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "", "nothing of a call comes as a line");
    assert_eq!(target.seen().len(), 1);
}

#[test]
fn a_reader_who_does_not_read_holds_up_no_call_and_misses_no_timer() {
    const TIMERS: usize = 200;
    let (home, target) = (Home::new(), Target::start());
    let mut command = calls_command(&home);
    command
        .env("TIMER_DB_PATH", home.db())
        .stdout(Stdio::piped());
    let mut serving = Running::start_unread(&mut command);
    let api = listens(&mut serving);
    // More than a pipe holds.
    let data = "x".repeat(1_000);
    for n in 0..TIMERS {
        let n = u32::try_from(n).unwrap();
        let body = json!({"dueAt": now(), "data": data});
        let put = api.ask("PUT", &timer(n), Some(&body));
        assert_eq!(put.status, 201, "{put:?}");
    }
    for n in 0..5 {
        let call = submit(api, &target.url(&format!("/{n}")), now());
        wait_until_made(api, &call);
    }
    let mut unread = serving.take_stdout();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut unread, &mut text);
        text
    });
    let give_up = now().saturating_add(PATIENCE);
    while home.json("list --tenant demo --state scheduled")["items"] != json!([]) {
        assert!(now() < give_up, "they are tried again");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    let mut ids: Vec<_> = firings(&reader.join().unwrap())
        .into_iter()
        .map(|firing| firing.service_call_id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), TIMERS);
}

fn standard_output_is_told(api: Api, status: u16) -> Value {
    let give_up = now().saturating_add(PATIENCE);
    loop {
        let ready = api.ask("GET", "/readyz", None);
        if ready.status == status {
            let checks = ready.json()["checks"].as_array().unwrap().clone();
            let is_it = |check: &&Value| check["name"] == "standard output";
            return checks.iter().find(is_it).unwrap()["problem"].clone();
        }
        assert!(now() < give_up, "still {ready:?}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn a_reader_who_does_not_read_is_told_of_and_makes_no_other_tenants_call_late() {
    const TIMERS: usize = 1_000;
    let (home, target) = (Home::new(), Target::start());
    schedule_many(&home, TIMERS, &"x".repeat(1_000));
    let mut command = calls_command(&home);
    command
        .env("TIMER_DB_PATH", home.db())
        .stdout(Stdio::piped());
    let mut serving = Running::start_unread(&mut command);
    let api = listens(&mut serving);
    serving.wait_until_it_says("standard output is not being read: firings wait");
    let problem = standard_output_is_told(api, 503);
    assert!(problem.as_str().unwrap().contains("is not being read"));
    assert_eq!(api.ask("GET", "/healthz", None).status, 200);
    is_not_late(api, "other", &[&target]);
    let unread = BufReader::new(serving.take_stdout());
    let mut fired = BTreeSet::new();
    for line in unread.lines() {
        fired.insert(firing(&line.unwrap()).service_call_id);
        if fired.len() == TIMERS {
            break;
        }
    }
    serving.wait_until_it_says("standard output is read again");
    assert_eq!(standard_output_is_told(api, 200), Value::Null);
}

#[test]
fn a_broken_standard_output_ends_the_service_and_the_timer_stays() {
    let home = Home::new();
    let mut command = calls_command(&home);
    command
        .env("TIMER_DB_PATH", home.db())
        .stdout(Stdio::piped());
    let mut serving = Running::start_unread(&mut command);
    let api = listens(&mut serving);
    drop(serving.take_stdout());
    let put = api.ask("PUT", &timer(1), Some(&json!({"dueAt": now()})));
    assert_eq!(put.status, 201, "{put:?}");
    let ended = serving.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("stay scheduled"), "{ended:?}");
    let mut command = calls_command(&home);
    let (serving, _) = serve_calls(command.env("TIMER_DB_PATH", home.db()));
    let line = serving.line().expect("it fires after the next start");
    assert_eq!(
        firing(&line).service_call_id.to_string(),
        "0190a6e0-7a3b-7c11-9d2e-000000000001"
    );
}
