//! Modules in processes of their own: what they refuse, what reaches them, and what commands say of them.

use std::time::Duration;

use punctual_adapters_system::UuidIds;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, IdPort};
use serde_json::{Value, json};

use crate::api_client::{Api, CALLS, FINISHED, call, clock, due_in, serve_calls};
use crate::broker::Broker;
use crate::postgres::Database;
use crate::refusals::assert_refused;
use crate::running::{Ended, Home, PATIENCE, Running, run};
use crate::shapes::{every_module, module_on_files, serve_module};
use crate::target::Target;

/// Calls, timers and attempts in a process and on a file each.
struct Apart {
    broker: Broker,
    home: Home,
    api: Api,
    _processes: [Running; 3],
}

impl Apart {
    fn start() -> Option<Self> {
        let (broker, home) = (Broker::shared()?, Home::new());
        let modules = |modules| module_on_files(&broker, &home, modules);
        let (calls, api) = serve_calls(&mut modules("api,orchestration"));
        let timer = serve_module(&mut modules("timer"));
        let execution = serve_module(&mut modules("execution"));
        Some(Self {
            broker,
            home,
            api,
            _processes: [calls, timer, execution],
        })
    }

    /// A command on the timers' file.
    fn timer(&self, id: &str) -> Ended {
        self.home.run(&format!("get --tenant demo --id {id}"))
    }

    fn publish(&self, topic: &str, message: &Value) {
        let payload = message.to_string();
        self.broker.publish(topic, payload.as_bytes());
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = clock();
    let give_up = clock.now().saturating_add(PATIENCE);
    while !condition() {
        assert!(clock.now() < give_up, "{what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn command(kind: &str, id: &str, sent_at: Timestamp, payload: &Value) -> Value {
    let mut payload = payload.clone();
    payload["tenantId"] = json!("demo");
    payload["serviceCallId"] = json!(id);
    json!({
        "id": UuidIds.next_id().to_string(), "type": kind, "tenantId": "demo",
        "timestampMs": sent_at.as_millis(), "payload": payload,
    })
}

#[test]
fn a_deletion_reaches_timers_and_attempts_and_what_was_sent_before_it_comes_too_late() {
    let Some(apart) = Apart::start() else {
        return;
    };
    let target = Target::start();
    let sent_at = clock().now();
    let body = call(&target.url("/gone"), due_in(Duration::from_hours(1)));
    let id = apart.api.submit(&body);
    until("the timer is scheduled", || {
        apart.timer(&id).code == Some(0)
    });
    let deleted = apart.api.ask("DELETE", &format!("{CALLS}/{id}"), None);
    assert_eq!(deleted.status, 204, "{deleted:?}");
    until("the timer is deleted", || apart.timer(&id).code == Some(1));
    // As a broker does that delivers again what it had delivered before.
    let due = json!({"dueAt": sent_at});
    let schedule = command("ScheduleTimer", &id, sent_at, &due);
    apart.publish("timer.commands", &schedule);
    let request = json!({"requestSpec": body["requestSpec"], "timeoutMs": 1_000});
    // What has told the timer tells the attempts, too.
    let events = "execution_orchestration-events";
    apart.broker.wait_until_settled("EVENTS", events);
    let start = command("StartExecution", &id, sent_at, &request);
    apart.publish("execution.commands", &start);
    // What comes after them is handled after them.
    let after = apart
        .api
        .submit(&call(&target.url("/after"), due_in(Duration::ZERO)));
    let made = apart.api.wait_for(&after, FINISHED);
    assert_eq!(made["status"], "Succeeded", "{made}");
    apart.broker.wait_until_empty("COMMANDS");
    assert_eq!(apart.timer(&id).code, Some(1));
    let paths: Vec<String> = target.seen().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/after"]);
}

#[test]
fn a_service_with_another_database_may_not_take_part_of_the_messages() {
    let Some(apart) = Apart::start() else {
        return;
    };
    for (modules, consumer) in [
        ("execution", "execution_"),
        ("timer", "timer_"),
        ("orchestration", "orchestration_"),
    ] {
        let elsewhere = Home::new();
        let ended =
            run(module_on_files(&apart.broker, &elsewhere, modules).env("LOG_LEVEL", "error"));
        assert_eq!(ended.code, Some(3), "{modules}: {ended:?}");
        for words in [
            &format!("consumer {consumer}"),
            "belongs to the database",
            "another prefix",
        ] {
            assert!(ended.stderr.contains(words), "{modules}: {ended:?}");
        }
    }
    // And one that comes back with its own may.
    let target = Target::start();
    let id = apart
        .api
        .submit(&call(&target.url("/"), due_in(Duration::ZERO)));
    assert_eq!(apart.api.wait_for(&id, FINISHED)["status"], "Succeeded");
}

#[test]
fn an_attempt_that_a_killed_process_was_making_is_interrupted_by_the_next_one() {
    let (Some(broker), home) = (Broker::shared(), Home::new()) else {
        return;
    };
    let target = Target::start();
    let modules = |modules| module_on_files(&broker, &home, modules);
    let (_calls, api) = serve_calls(&mut modules("api,orchestration,timer"));
    let mut execution = serve_module(&mut modules("execution"));
    let slow = call(&target.url("/slow/60000/x"), due_in(Duration::ZERO));
    let id = api.submit(&slow);
    until("it is under way", || !target.seen().is_empty());
    execution.kill();
    let _again = serve_module(&mut modules("execution"));
    let made = api.wait_for(&id, FINISHED);
    assert_eq!(
        made["outcome"]["errorMeta"]["kind"], "Interrupted",
        "{made}"
    );
    assert_eq!(target.seen().len(), 1);
}

#[test]
fn an_api_alone_submits_into_the_database_of_instances_without_a_broker() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    let (api_process, api) = serve_calls(every_module(&database).env("MODULES", "api"));
    let id = api.submit(&call(&target.url("/early"), due_in(Duration::ZERO)));
    assert_eq!(api.get("/readyz")["status"], "ready");
    let modules = "orchestration,timer,execution";
    let worker = serve_module(every_module(&database).env("MODULES", modules));
    assert_eq!(api.wait_for(&id, FINISHED)["status"], "Succeeded");
    let soon = due_in(Duration::from_millis(300));
    let id = api.submit(&call(&target.url("/later"), soon));
    assert_eq!(api.wait_for(&id, FINISHED)["status"], "Succeeded");
    // What only tells of calls is for nobody there, and waits for nobody.
    let correlation = api.call(&id)["correlationId"].clone();
    let trace = format!("/api/correlations/{}", correlation.as_str().unwrap());
    until("all is published", || {
        let steps = api.get(&trace)["steps"].clone();
        let steps = steps.as_array().unwrap().iter();
        let of_messages = { steps }.filter(|it| it["messageId"].is_string());
        { of_messages }.all(|it| it["publishedAt"].is_string())
    });
    drop((api_process, worker));
}

#[test]
fn commands_say_what_the_database_of_attempts_is_for() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let api = "api,execution";
    let (serving, api) = serve_calls(&mut module_on_files(&broker, &home, api));
    let submitted = api.ask(
        "POST",
        CALLS,
        Some(&call("https://example.com/", clock().now())),
    );
    assert_eq!(submitted.status, 404, "{submitted:?}");
    let detail = submitted.json()["detail"].clone();
    assert!(detail.as_str().unwrap().contains("module orchestration"));
    assert_eq!(api.get("/readyz")["status"], "ready");
    let run_with = |line: &str| {
        let mut command = broker.command(&home, line);
        command
            .env("MODULES", "execution")
            .env_remove("TIMER_DB_PATH")
            .env("EXECUTION_DB_PATH", home.path("execution.db"));
        run(&mut command)
    };
    let id = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
    for line in [
        "list --tenant demo".to_owned(),
        format!("get --tenant demo --id {id}"),
        format!("cancel --tenant demo --id {id}"),
        "schedule --tenant demo --in 5s".to_owned(),
    ] {
        let words = ["attempts of service calls, and no timers", "--db"];
        assert_refused(&line, &run_with(&line), 3, &words);
    }
    let line = format!("trace --correlation {id}");
    assert_refused(
        &line,
        &run_with(&line),
        3,
        &["the database of orchestration"],
    );
    let none = run_with("dead-letters");
    assert_eq!(none.stdout, "{\"items\":[]}\n", "{none:?}");
    let migrated = run_with("migrate --status");
    assert!(migrated.stdout.contains("execution-only"), "{migrated:?}");
    let checked = run_with("check");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(
        checked.stdout.contains("execution-only tables"),
        "{checked:?}"
    );
    let copied = run_with("backup copy.db");
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(copied.stdout.contains("execution-only"), "{copied:?}");
    drop(serving);
}
