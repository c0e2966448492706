//! Service calls with a broker between the modules: submitted there or over HTTP, told of there.

use std::time::Duration;

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_ports::{ClockPort, IdPort};
use serde_json::{Value, json};

use crate::api_client::{Api, serve_calls};
use crate::broker::Broker;
use crate::running::{Home, PATIENCE};
use crate::target::Target;

const CALLS: &str = "/api/tenants/demo/service-calls";

fn wait_for_the_end(api: Api, id: &str) -> Value {
    let clock = SystemClock::start().unwrap();
    let give_up = clock.now().saturating_add(PATIENCE);
    loop {
        let answer = api.ask("GET", &format!("{CALLS}/{id}"), None);
        if answer.status == 200 && answer.json()["outcome"].is_object() {
            return answer.json();
        }
        assert!(clock.now() < give_up, "it has no end: {answer:?}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn calls_go_their_way_through_a_broker() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, target) = (Home::new(), Target::start());
    let mut command = broker.command(&home, "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    let (_serving, api) = serve_calls(&mut command);
    let now = SystemClock::start().unwrap().now();
    let submitted = json!({"name": "by http", "dueAt": now,
        "requestSpec": {"method": "GET", "url": target.url("/by-http")}});
    let answer = api.ask("POST", CALLS, Some(&submitted));
    assert_eq!(answer.status, 202, "{answer:?}");
    let by_http = answer.json()["serviceCallId"].as_str().unwrap().to_owned();

    let id = UuidIds.next_id().to_string();
    let command = json!({
        "id": UuidIds.next_id().to_string(), "type": "SubmitServiceCall", "tenantId": "demo",
        "timestampMs": now.as_millis(),
        "payload": {"tenantId": "demo", "serviceCallId": id, "name": "by command", "dueAt": now,
            "requestSpec": {"method": "GET", "url": target.url("/by-command")}},
    });
    // Sent three times, it is one call.
    for _ in 0..3 {
        broker.publish("orchestration.commands", command.to_string().as_bytes());
    }
    for id in [&by_http, &id] {
        let call = wait_for_the_end(api, id);
        assert_eq!(call["status"], "Succeeded", "{call}");
    }
    let mut paths: Vec<String> = target.seen().into_iter().map(|seen| seen.path).collect();
    paths.sort();
    assert_eq!(paths, ["/by-command", "/by-http"]);
}
