//! Service calls with a broker between the modules: submitted there or over HTTP, told of there.

use std::time::Duration;

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::service_call::IdempotencyKey;
use punctual_domain::{EnvelopeId, ServiceCallId, TenantId};
use punctual_ports::{ClockPort, IdPort};
use serde_json::{Value, json};

use crate::api_client::{Api, serve_calls};
use crate::broker::Broker;
use crate::running::{Home, PATIENCE, Running};
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

fn serve(broker: &Broker, home: &Home) -> (Running, Api) {
    let mut command = broker.command(home, "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    serve_calls(&mut command)
}

#[test]
fn calls_go_their_way_through_a_broker() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve(&broker, &home);
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

#[test]
fn commands_of_another_program_without_an_id_are_one_call_however_often_they_come() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve(&broker, &home);
    let now = SystemClock::start().unwrap().now();
    let envelope_id = UuidIds.next_id();
    let command = |key: Option<&str>| {
        let path = key.unwrap_or("none");
        let envelope_id = if key.is_some() {
            UuidIds.next_id()
        } else {
            envelope_id
        };
        json!({
            "id": envelope_id.to_string(), "type": "SubmitServiceCall", "tenantId": "demo",
            "timestampMs": now.as_millis(),
            "payload": {"tenantId": "demo", "name": "n", "dueAt": now, "idempotencyKey": key,
                "requestSpec": {"method": "GET", "url": target.url(&format!("/{path}"))}},
        })
    };
    // Without an id for the broker, which would take the repetitions away.
    for subject in [
        "api.commands",
        "api.commands.demo",
        "orchestration.commands.demo",
    ] {
        for key in [None, Some("key")] {
            broker.publish(subject, command(key).to_string().as_bytes());
        }
    }
    let tenant = TenantId::new("demo").unwrap();
    let key = IdempotencyKey::new("key").unwrap();
    let drawn = [
        ServiceCallId::drawn_from_message(&tenant, EnvelopeId::from_uuid(envelope_id)),
        ServiceCallId::drawn_from_key(&tenant, &key),
    ];
    for id in drawn {
        let call = wait_for_the_end(api, &id.to_string());
        assert_eq!(call["status"], "Succeeded", "{call}");
    }
    broker.wait_until_empty("COMMANDS");
    let mut paths: Vec<String> = target.seen().into_iter().map(|seen| seen.path).collect();
    paths.sort();
    assert_eq!(paths, ["/key", "/none"]);
}
