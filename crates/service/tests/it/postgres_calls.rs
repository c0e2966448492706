//! Service calls on PostgreSQL: by one instance, and by several that are equal.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_ports::ClockPort;
use punctual_test_servers::psql;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, CALLS, FINISHED, call, clock, due_in, serve_calls};
use crate::postgres::Database;
use crate::running::{Ended, Home, PATIENCE, Running, run};
use crate::shapes::every_module;
use crate::target::Target;

fn serve(database: &Database) -> (Running, Api) {
    serve_calls(&mut every_module(database))
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
    let id = api.submit(&body);
    assert_eq!(
        api.submit(&call(&target.url("/now"), clock().now())).len(),
        36
    );
    api.wait_for(&id, &["Running"]);
    let made = api.wait_for(&id, FINISHED);
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
fn of_three_instances_one_takes_a_call_and_another_reads_it() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    let (_one, one) = serve(&database);
    let (_two, two) = serve(&database);
    let (_three, three) = serve(&database);
    let calls: Vec<String> = (0..60)
        .map(|n| {
            let after = Duration::from_millis(n % 3 * 400);
            let body = call(&target.url(&format!("/made/{n}")), due_in(after));
            [one, two, three][usize::try_from(n % 3).unwrap()].submit(&body)
        })
        .collect();
    for (n, id) in calls.iter().enumerate() {
        let made = [two, three, one][n % 3].wait_for(id, FINISHED);
        assert_eq!(made["status"], "Succeeded", "{made}");
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for seen in target.seen() {
        *times.entry(seen.path).or_default() += 1;
    }
    assert_eq!(times.len(), 60, "{times:?}");
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
    let slow = api.submit(&slow);
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
            api.submit(&call(&url, due_in(Duration::from_millis(500))))
        })
        .collect();
    dying.kill();
    for id in &later {
        let made = three.wait_long_for(id, FINISHED, Duration::from_mins(2));
        assert_eq!(made["status"], "Succeeded", "{made}");
    }
    let cut = two.wait_long_for(&slow, FINISHED, Duration::from_mins(2));
    assert_eq!(cut["outcome"]["errorMeta"]["kind"], "Interrupted", "{cut}");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for seen in target.seen() {
        *times.entry(seen.path).or_default() += 1;
    }
    assert_eq!(times.len(), 21, "{times:?}");
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

#[test]
fn whoever_lives_is_listed_with_version_and_modules() {
    let Some(database) = Database::shared() else {
        return;
    };
    let (one, api) = serve(&database);
    let (two, other) = serve(&database);
    let process = |running: &Running| format!(":{}", running.id());
    let listed = |api: Api, wanted: &[String]| {
        let clock = clock();
        let give_up = clock.now().saturating_add(PATIENCE);
        loop {
            let page = api.get("/api/instances");
            let instances = page["instances"].as_array().unwrap();
            let is_listed = |process: &String| {
                let mut names = instances.iter().map(|it| it["name"].as_str().unwrap());
                names.any(|name| name.ends_with(process))
            };
            if instances.len() == wanted.len() && wanted.iter().all(is_listed) {
                return page;
            }
            assert!(clock.now() < give_up, "{page}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    };
    let both = [process(&one), process(&two)];
    let page = listed(api, &both);
    listed(other, &both);
    let first = &page["instances"][0];
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"), "{page}");
    assert_eq!(first["modules"], "api,orchestration,timer,execution");
    assert_eq!(
        first["claimed"],
        json!({"timers": 0, "attempts": 0, "messages": 0})
    );
    two.signal(Signal::TERM);
    assert_eq!(two.end().code, Some(0));
    listed(api, &both[..1]);
    let mut command = database.command("instances --output table");
    let table = run(command.env_remove("MODULES"));
    assert!(table.stdout.contains(&both[0]), "{table:?}");
    let on_a_file = Home::new();
    let file = on_a_file.serve();
    refused(&on_a_file.run("instances"), "which one process serves");
    drop(file);
}

/// What it had taken on is finished, and the rest is the others' at once: not when a lease of 30 s ends.
#[test]
fn an_instance_that_is_stopped_in_good_order_leaves_nothing_behind() {
    let Some(database) = Database::shared() else {
        return;
    };
    let target = Target::start();
    let (_staying, other) = serve(&database);
    for round in 0..4 {
        let (stopped, api) = serve(&database);
        let due = due_in(Duration::from_millis(300));
        let ids: Vec<String> = (0..40)
            .map(|n| {
                api.submit(&call(
                    &target.url(&format!("/slow/{}/{round}", n * 20)),
                    due,
                ))
            })
            .collect();
        other.wait_for(&ids[39], &["Running"]);
        stopped.signal(Signal::TERM);
        assert_eq!(stopped.end().code, Some(0));
        for id in &ids {
            let made = other.wait_long_for(id, FINISHED, Duration::from_secs(10));
            assert_eq!(made["status"], "Succeeded", "{made}");
        }
    }
    assert_eq!(target.seen().len(), 160);
}
