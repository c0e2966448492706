//! Service calls through HTTP: accepted once, listed, redacted, deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::call::Start;
use punctual_domain::service_call::{ErrorKind, ErrorMeta, Outcome, ResponseMeta, ServiceCall};
use punctual_domain::{EnvelopeId, TimerKey};
use punctual_ports::{CallChange, ClockPort};
use serde_json::{Value, json};

use crate::world::{CALLS, ID, NOW, OTHER_ID, World, request, submission, with_body};

#[tokio::test]
async fn a_submission_is_answered_the_same_each_time() {
    let world = World::new();
    let mut body = submission();
    body["idempotencyKey"] = json!("once");
    let first = world.submit(&body).await.expect(202);
    let answer = first.json();
    assert_eq!(answer["tenantId"], "a");
    assert_eq!(answer["dueAt"], "2026-12-24T18:00:00.000Z");
    assert_eq!(answer["submittedAt"], NOW);
    assert_eq!(answer["correlationId"], first.header("x-correlation-id"));
    let location = format!("{CALLS}/{}", answer["serviceCallId"].as_str().unwrap());
    assert_eq!(first.header("location"), location);
    world.clock.advance(Duration::from_mins(1)).await;
    let again = world.submit(&body).await.expect(202);
    assert_eq!(again.body, first.body, "byte for byte");
    assert_eq!(again.header("location"), location);
    assert_ne!(
        again.header("x-correlation-id"),
        first.header("x-correlation-id")
    );
    let all = world.get(CALLS).await.expect(200).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn another_content_under_the_same_id_or_key_is_a_conflict_also_after_deletion() {
    let world = World::new();
    let mut body = submission();
    body["serviceCallId"] = json!(ID);
    body["idempotencyKey"] = json!("once");
    world.submit(&body).await.expect(202);
    for _ in 0..2 {
        let mut other = submission();
        other["name"] = json!("other");
        other["serviceCallId"] = json!(ID);
        let reply = world.submit(&other).await.expect(409).json();
        assert!(
            reply["detail"].as_str().unwrap().contains("the id"),
            "{reply}"
        );
        other["serviceCallId"] = Value::Null;
        other["idempotencyKey"] = json!("once");
        let reply = world.submit(&other).await.expect(409).json();
        let said = reply["detail"].as_str().unwrap();
        assert!(said.contains("key") && said.contains(ID), "{reply}");
        world.delete(&format!("{CALLS}/{ID}")).await;
    }
}

#[tokio::test]
async fn the_key_may_come_in_a_header() {
    let world = World::new();
    let post = |body: &Value, key: &str| {
        let mut req = with_body(Method::POST, CALLS, body.to_string());
        let value = key.parse().unwrap();
        req.headers_mut().insert("idempotency-key", value);
        req
    };
    let mut body = submission();
    let first = world.call(post(&body, "k")).await.expect(202);
    body["idempotencyKey"] = json!("k");
    let again = world.submit(&body).await.expect(202);
    assert_eq!(first.body, again.body);
    let both = world.call(post(&body, "k")).await.expect(202);
    assert_eq!(first.body, both.body);
    let differ = world.call(post(&body, "other")).await.expect(422);
    assert_eq!(differ.pointers(), ["/idempotencyKey"]);
    body["idempotencyKey"] = Value::Null;
    let too_long = world.call(post(&body, &"k".repeat(201))).await.expect(422);
    assert_eq!(too_long.pointers(), ["/header/Idempotency-Key"]);
    let mut twice = post(&body, "k");
    let value = "l".parse().unwrap();
    twice.headers_mut().append("idempotency-key", value);
    world.call(twice).await.expect(422);
}

#[tokio::test]
async fn the_correlation_id_of_the_request_is_the_calls() {
    let world = World::new();
    let mut req = with_body(Method::POST, CALLS, submission().to_string());
    let given = OTHER_ID.parse().unwrap();
    req.headers_mut().insert("x-correlation-id", given);
    let reply = world.call(req).await.expect(202);
    assert_eq!(reply.header("x-correlation-id"), OTHER_ID);
    assert_eq!(reply.json()["correlationId"], OTHER_ID);
    let mut req = request(Method::GET, CALLS);
    req.headers_mut()
        .insert("x-correlation-id", "order-7".parse().unwrap());
    let reply = world.call(req).await.expect(422);
    assert_eq!(reply.pointers(), ["/header/X-Correlation-Id"]);
}

/// Lets a call run to its outcome.
async fn finish(world: &World, key: &TimerKey, outcome: Outcome) {
    for end in [false, true] {
        let stored = world.ports.calls.find(vec![key.clone()]).await.unwrap();
        let stored = stored[0].clone().unwrap();
        let now = world.clock.now();
        let id = EnvelopeId::from_uuid(world.ports.ids.next_id());
        let call = match stored.call {
            ServiceCall::Scheduled(call) => {
                let start = Start {
                    reached_at: call.details.due_at,
                    now,
                    execution_id: id,
                    caused_by: id,
                    timeout: Duration::from_secs(30),
                };
                call.start(start).unwrap().call
            }
            ServiceCall::Running(call) if end => call.finish(outcome.clone(), now, id).call,
            other => other,
        };
        let (expected_version, outbox) = (stored.version, Vec::new());
        let change = CallChange {
            call,
            expected_version,
            outbox,
            listeners: Listeners::Anyone,
        };
        world.ports.calls.change(vec![change]).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_is_deleted_while_it_is_scheduled_and_not_later() {
    let world = World::new();
    let mut body = submission();
    body["serviceCallId"] = json!(ID);
    world.submit(&body).await.expect(202);
    let path = format!("{CALLS}/{ID}");
    let deleted = world.delete(&path).await.expect(204);
    assert!(deleted.body.is_empty());
    world.delete(&path).await.expect(404);
    world.get(&path).await.expect(404);

    body["serviceCallId"] = json!(OTHER_ID);
    world.submit(&body).await.expect(202);
    let key = TimerKey::new("a".parse().unwrap(), OTHER_ID.parse().unwrap());
    let error = ErrorMeta::new(ErrorKind::Timeout, "no answer");
    finish(&world, &key, Outcome::Failed(error)).await;
    let path = format!("{CALLS}/{OTHER_ID}");
    let refused = world.delete(&path).await.expect(409).json();
    assert!(refused["detail"].as_str().unwrap().contains("Failed"));
    let call = world.get(&path).await.expect(200).json();
    assert_eq!(call["outcome"]["errorMeta"]["kind"], "Timeout");
    assert_eq!(call["status"], "Failed");
    assert_eq!(call["finishedAt"], NOW);
}

#[tokio::test]
async fn no_secret_of_a_request_comes_back() {
    let world = World::new();
    let mut body = submission();
    body["serviceCallId"] = json!(ID);
    body["requestSpec"] = json!({
        "method": "POST",
        "url": "https://example.com/?api_key=canary-query&page=2",
        "headers": {
            "Authorization": "Bearer canary-header",
            "Cookie": "sid=canary-cookie",
            "X-Api-Key": "canary-key",
            "Accept": "text/plain",
        },
        "body": "{\"echo\":\"canary-header\"}",
    });
    let mut seen = vec![world.submit(&body).await.expect(202)];
    let path = format!("{CALLS}/{ID}");
    let key = TimerKey::new("a".parse().unwrap(), ID.parse().unwrap());
    for _ in 0..2 {
        let view = world.get(&path).await.expect(200);
        assert_eq!(
            view.json()["requestSpec"]["headers"]["Accept"],
            "text/plain"
        );
        let url = view.json()["requestSpec"]["url"].clone();
        assert!(url.as_str().unwrap().contains("page=2"), "{url}");
        let correlation = view.json()["correlationId"].as_str().unwrap().to_owned();
        seen.push(view);
        seen.push(world.get(CALLS).await.expect(200));
        let trace = world.get(&format!("/api/correlations/{correlation}")).await;
        seen.push(trace.expect(200));
        let response = ResponseMeta {
            status: 200,
            headers: Vec::new(),
            body_snippet: Some("ok".to_owned()),
            truncated: false,
            latency_ms: 7,
        };
        finish(&world, &key, Outcome::Succeeded(response)).await;
    }
    body["name"] = json!("other");
    seen.push(world.submit(&body).await.expect(409));
    body["requestSpec"]["headers"]["Cookie"] = json!("canary\r\nX: y");
    body["requestSpec"]["headers"]["X-Token"] = json!(["canary"]);
    seen.push(world.submit(&body).await.expect(422));
    for reply in seen {
        let text = format!(
            "{:?} {}",
            reply.headers,
            String::from_utf8_lossy(&reply.body)
        );
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn a_list_is_narrowed_by_everything_at_once() {
    let world = World::new();
    for (name, due, tags) in [
        ("x", "2026-12-01T00:00:00Z", json!(["red", "big"])),
        ("y", "2026-12-02T00:00:00Z", json!(["red"])),
        ("z", "2026-12-03T00:00:00Z", json!([])),
    ] {
        let mut body = submission();
        (body["name"], body["dueAt"], body["tags"]) = (json!(name), json!(due), tags);
        world.submit(&body).await.expect(202);
    }
    for (query, names) in [
        ("", vec!["z", "y", "x"]),
        ("?tag=red", vec!["y", "x"]),
        ("?tag=red&tag=big", vec!["x"]),
        ("?tag=blue", vec![]),
        ("?from=2026-12-02T00:00:00Z", vec!["z", "y"]),
        ("?to=2026-12-02T00:00:00Z", vec!["x"]),
        (
            "?from=2026-12-02T01:00:00%2B01:00&to=2026-12-03T00:00:00Z",
            vec!["y"],
        ),
        ("?status=Scheduled&limit=1", vec!["z"]),
        ("?status=Running", vec![]),
    ] {
        let page = world
            .get(&format!("{CALLS}{query}"))
            .await
            .expect(200)
            .json();
        let found: Vec<&str> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names, "{query}");
    }
    let other = world.get("/api/tenants/b/service-calls").await.expect(200);
    assert_eq!(other.json(), json!({ "items": [] }));
}

#[tokio::test]
async fn pages_stay_as_they_are_while_rows_come_and_go() {
    let world = World::new();
    let mut stays = BTreeSet::new();
    let mut goes = Vec::new();
    let submit = async |second: usize| {
        let mut body = submission();
        body["dueAt"] = json!(format!("2026-12-01T00:00:{:02}Z", second % 20));
        let reply = world.submit(&body).await.expect(202).json();
        reply["serviceCallId"].as_str().unwrap().to_owned()
    };
    for number in 0..40 {
        let id = submit(number).await;
        if number % 4 == 0 {
            goes.push(id);
        } else {
            stays.insert(id);
        }
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world
            .get(&format!("{CALLS}?limit=7{cursor}"))
            .await
            .expect(200)
            .json();
        let ids = page["items"].as_array().unwrap().iter();
        seen.extend(ids.map(|item| item["serviceCallId"].as_str().unwrap().to_owned()));
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
        if let Some(id) = goes.pop() {
            world.delete(&format!("{CALLS}/{id}")).await.expect(204);
        }
        submit(seen.len()).await;
    }
    for id in &stays {
        assert_eq!(seen.iter().filter(|other| *other == id).count(), 1, "{id}");
    }
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
}

#[tokio::test]
async fn what_was_deleted_cannot_be_submitted_again_and_that_is_said() {
    let world = World::new();
    for (field, value) in [("idempotencyKey", "k"), ("serviceCallId", ID)] {
        let mut body = submission();
        body[field] = json!(value);
        let accepted = world.submit(&body).await.expect(202);
        world.submit(&body).await.expect(202);
        world.delete(accepted.header("location")).await.expect(204);
        let said = world.submit(&body).await.expect(409).json()["detail"].clone();
        let said = said.as_str().unwrap();
        assert!(said.contains("deleted"), "{said}");
        let id = accepted.json()["serviceCallId"].clone();
        assert!(said.contains(id.as_str().unwrap()), "{said}");
    }
}

#[tokio::test]
async fn a_trace_goes_on_page_by_page_to_its_end() {
    let world = World::new();
    let correlation = "0190a6e0-7a3b-7c11-9d2e-000000000001";
    for number in 0..230 {
        let body = submission().to_string();
        let path = format!("/api/tenants/t{}/service-calls", number % 3);
        let mut req = with_body(Method::POST, &path, body);
        let headers = req.headers_mut();
        headers.insert("x-correlation-id", correlation.parse().unwrap());
        world.call(req).await.expect(202);
    }
    let (mut seen, mut steps, mut cursor) = (Vec::new(), 0, String::new());
    for page in 0.. {
        let path = format!("/api/correlations/{correlation}?limit=100{cursor}");
        let trace = world.get(&path).await.expect(200).json();
        let calls = trace["calls"].as_array().unwrap();
        assert_eq!(calls.len(), [100, 100, 30][page]);
        seen.extend(calls.iter().map(|call| call["serviceCallId"].to_string()));
        steps += trace["steps"].as_array().unwrap().len();
        match trace["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), steps), (230, 3 * 230));
    let usual = world.get(&format!("/api/correlations/{correlation}")).await;
    assert_eq!(
        usual.expect(200).json()["calls"].as_array().unwrap().len(),
        50
    );
}
