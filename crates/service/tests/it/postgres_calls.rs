//! Service calls on PostgreSQL: by one instance, and by several that are equal.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use punctual_test_servers::psql;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, serve_calls};
use crate::postgres::Database;
use crate::running::{Ended, PATIENCE, Running, run};
use crate::target::Target;

const CALLS: &str = "/api/tenants/demo/service-calls";
const FINISHED: &[&str] = &["Succeeded", "Failed"];

fn clock() -> SystemClock {
    SystemClock::start().unwrap()
}

fn due_in(after: Duration) -> Timestamp {
    clock().now().next().saturating_add(after)
}

fn call(url: &str, due_at: Timestamp) -> Value {
    json!({"name": "greet", "dueAt": due_at, "requestSpec": {"method": "GET", "url": url}})
}

fn submit(api: Api, body: &Value) -> String {
    let answer = api.ask("POST", CALLS, Some(body));
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["serviceCallId"].as_str().unwrap().to_owned()
}

/// Polls a call until it is in one of these states.
fn wait_for(api: Api, id: &str, states: &[&str], patience: Duration) -> Value {
    let clock = clock();
    let give_up = clock.now().saturating_add(patience);
    loop {
        let call = api.get(&format!("{CALLS}/{id}"));
        if states.contains(&call["status"].as_str().unwrap()) {
            return call;
        }
        assert!(clock.now() < give_up, "it stays as it is: {call}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn finished(api: Api, id: &str) -> Value {
    wait_for(api, id, FINISHED, PATIENCE)
}

fn command(database: &Database) -> Command {
    let mut command = database.command("serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command.env_remove("MODULES");
    command
}

fn serve(database: &Database) -> (Running, Api) {
    serve_calls(&mut command(database))
}

fn what(trace: &Value) -> Vec<String> {
    let steps = trace["steps"].as_array().unwrap().iter();
    steps
        .map(|step| step["what"].as_str().unwrap().to_owned())
        .collect()
}

fn refused(ended: &Ended, words: &str) {
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains(words), "{ended:?}");
}

#[test]
fn a_call_is_scheduled_made_once_found_and_traced() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    let (serving, api) = serve(&database);
    let due_at = due_in(Duration::from_secs(1));
    let mut body = call(&target.url("/slow/300/hello"), due_at);
    body["tags"] = json!(["greeting", "first"]);
    body["requestSpec"]["headers"] = json!({"Authorization": "Bearer header-canary"});
    let id = submit(api, &body);
    assert_eq!(
        submit(api, &call(&target.url("/now"), clock().now())).len(),
        36
    );
    wait_for(api, &id, &["Running"], PATIENCE);
    let made = finished(api, &id);
    assert_eq!(made["status"], "Succeeded", "{made}");
    assert_eq!(made["timer"]["state"], "Reached");
    let slow = target.seen().into_iter().filter(|it| it.path != "/now");
    let slow: Vec<_> = slow.collect();
    assert_eq!(slow.len(), 1);
    assert!(slow[0].at >= due_at);
    let execution = made["executionLog"][0]["executionId"].as_str().unwrap();
    assert_eq!(slow[0].header("idempotency-key"), Some(execution));
    assert_eq!(
        slow[0].header("authorization"),
        Some("Bearer header-canary")
    );
    let query = "tag=greeting&tag=first&status=Succeeded";
    let page = api.get(&format!("{CALLS}?{query}"));
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    let correlation = made["correlationId"].as_str().unwrap();
    let trace = what(&api.get(&format!("/api/correlations/{correlation}")));
    let end = [
        "StartExecution",
        "ExecutionStarted",
        "ExecutionSucceeded",
        "ServiceCallSucceeded",
    ];
    assert!(trace.ends_with(&end.map(str::to_owned)), "{trace:?}");
    let mut traced = database.command(&format!("trace --correlation {correlation}"));
    let traced = run(traced.env_remove("MODULES"));
    assert_eq!(traced.code, Some(0), "{traced:?}");
    assert_eq!(what(&serde_json::from_str(&traced.stdout).unwrap()), trace);
    refused(
        &run(&mut database.command("schedule --tenant demo --in 5s")),
        "belong to service calls",
    );
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    for table in [
        "service_calls",
        "http_execution_log",
        "outbox",
        "submissions",
    ] {
        let rows = format!("SELECT * FROM {}.{table}", database.schema());
        let rows = psql(database.url(), &rows).unwrap();
        assert!(!rows.contains("canary"), "{table}: {rows}");
    }
}

#[test]
fn of_three_instances_one_takes_a_call_one_reads_it_and_one_deletes_it() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    let (_one, one) = serve(&database);
    let (_two, two) = serve(&database);
    let (_three, three) = serve(&database);
    let gone = submit(
        one,
        &call(&target.url("/gone"), due_in(Duration::from_secs(2))),
    );
    let found = two.get(&format!("{CALLS}/{gone}"));
    assert_eq!(found["status"], "Scheduled");
    let deleted = three.ask("DELETE", &format!("{CALLS}/{gone}"), None);
    assert_eq!(deleted.status, 204, "{deleted:?}");
    for api in [one, two, three] {
        assert_eq!(api.ask("GET", &format!("{CALLS}/{gone}"), None).status, 404);
    }
    let calls: Vec<String> = (0..60)
        .map(|n| {
            let after = Duration::from_millis(n % 3 * 400);
            let body = call(&target.url(&format!("/made/{n}")), due_in(after));
            submit([one, two, three][usize::try_from(n % 3).unwrap()], &body)
        })
        .collect();
    for (n, id) in calls.iter().enumerate() {
        let made = finished([two, three, one][n % 3], id);
        assert_eq!(made["status"], "Succeeded", "{made}");
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for seen in target.seen() {
        *times.entry(seen.path).or_default() += 1;
    }
    assert_eq!(times.len(), 60, "the deleted one was not made: {times:?}");
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

/// Whatever it was making is interrupted by another when its lease has ended; what waited is made by others.
#[test]
fn of_three_instances_one_is_killed_and_each_call_has_one_outcome() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    // Alone at first, so that it is the one that makes the slow call.
    let (mut dying, api) = serve(&database);
    let slow = call(&target.url("/slow/20000/slow"), clock().now());
    let slow = submit(api, &slow);
    let clock = clock();
    let give_up = clock.now().saturating_add(PATIENCE);
    while target.seen().is_empty() {
        assert!(clock.now() < give_up, "it does not begin");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let (_two, two) = serve(&database);
    let (_three, three) = serve(&database);
    let later: Vec<String> = (0..20)
        .map(|n| {
            let url = target.url(&format!("/later/{n}"));
            submit(api, &call(&url, due_in(Duration::from_millis(500))))
        })
        .collect();
    dying.kill();
    for id in &later {
        let made = wait_for(three, id, FINISHED, Duration::from_mins(2));
        assert_eq!(made["status"], "Succeeded", "{made}");
    }
    let cut = wait_for(two, &slow, FINISHED, Duration::from_mins(2));
    assert_eq!(cut["outcome"]["errorMeta"]["kind"], "Interrupted", "{cut}");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for seen in target.seen() {
        *times.entry(seen.path).or_default() += 1;
    }
    assert_eq!(times.len(), 21, "{times:?}");
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}
