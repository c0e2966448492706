//! Timers on their own through HTTP.

use axum::http::Method;
use punctual_domain::{ScheduleOrigin, TimerKey};
use punctual_ports::{ClockPort, FiredTimer, SaveTimer, TimerPersistencePort};
use serde_json::json;

use crate::world::{ID, OTHER_ID, World, submission, with_body};

const TIMER: &str = "/api/tenants/a/timers/0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
const BATCH: &str = "/api/tenants/a/timers:batch";

#[tokio::test]
async fn a_timer_is_created_moved_read_and_deleted() {
    let world = World::new();
    world.get(TIMER).await.expect(404);
    let text = r#"{"dueAt":"2026-12-24T18:00:00+01:00","data":{"n":12345678901234567890123}}"#;
    let made = world
        .call(with_body(Method::PUT, TIMER, text))
        .await
        .expect(201);
    assert_eq!(made.header("location"), TIMER);
    assert_eq!(made.json()["outcome"], "Created");
    let found = world.get(TIMER).await.expect(200);
    assert_eq!(found.json()["dueAt"], "2026-12-24T17:00:00.000Z");
    let said = String::from_utf8(found.body.to_vec()).unwrap();
    assert!(
        said.contains("12345678901234567890123"),
        "every digit: {said}"
    );
    let body = json!({ "dueAt": "2026-12-25T00:00:00Z" });
    let moved = world.send(Method::PUT, TIMER, &body).await.expect(200);
    assert_eq!(moved.json()["outcome"], "Rescheduled");
    world.delete(TIMER).await.expect(204);
    world.delete(TIMER).await.expect(404);
}

#[tokio::test]
async fn a_timer_that_has_fired_is_left_alone() {
    let world = World::new();
    let body = json!({ "dueAt": "2026-01-01T00:00:00Z" });
    world.send(Method::PUT, TIMER, &body).await.expect(201);
    let key = TimerKey::new("a".parse().unwrap(), ID.parse().unwrap());
    let timer = world.timers.find(key).await.unwrap().unwrap();
    let fired = FiredTimer {
        firing_id: timer.timer().firing_id(),
        reached_at: "2026-11-16T12:00:00Z".parse().unwrap(),
    };
    world.timers.mark_fired(vec![fired]).await.unwrap();
    world.send(Method::PUT, TIMER, &body).await.expect(409);
    world.delete(TIMER).await.expect(409);
    assert_eq!(
        world.get(TIMER).await.expect(200).json()["state"],
        "Reached"
    );
}

#[tokio::test]
async fn a_batch_has_a_result_for_each_in_order() {
    let world = World::new();
    let due = "2026-12-24T18:00:00Z";
    let body = json!({ "timers": [
        { "serviceCallId": ID, "dueAt": due },
        { "serviceCallId": OTHER_ID, "dueAt": due, "data": [1] },
        { "serviceCallId": ID, "dueAt": due, "data": null },
    ]});
    let reply = world
        .send(Method::POST, BATCH, &body)
        .await
        .expect(200)
        .json();
    let outcomes = reply["results"].as_array().unwrap();
    let outcomes: Vec<_> = outcomes
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["Created", "Created", "Rescheduled"]);
}

#[tokio::test]
async fn every_error_in_a_batch_is_reported_and_nothing_stored() {
    let world = World::new();
    let body = json!({ "timers": [
        { "serviceCallId": "x", "dueAt": "soon" },
        { "serviceCallId": ID, "dueAt": "2026-12-24T18:00:00Z" },
        7,
        { "serviceCallId": 7, "dueAt": null, "date": "x" },
        { "serviceCallId": ID, "dueAt": "2026-12-24T18:00:00Z", "data": "x".repeat(16_384) },
    ], "more": 1 });
    let path = "/api/tenants/a.b/timers:batch";
    let reply = world.send(Method::POST, path, &body).await.expect(422);
    assert_eq!(
        reply.pointers(),
        [
            "/path/tenantId",
            "/more",
            "/timers/0/serviceCallId",
            "/timers/0/dueAt",
            "/timers/2",
            "/timers/3/serviceCallId",
            "/timers/3/date",
            "/timers/3/dueAt",
            "/timers/4/data",
        ]
    );
    world.send(Method::POST, BATCH, &body).await.expect(422);
    world.get(TIMER).await.expect(404);
}

#[tokio::test]
async fn a_batch_has_one_to_a_thousand() {
    let world = World::new();
    for (number, status) in [(0, 422), (1, 200), (999, 200), (1_000, 200), (1_001, 422)] {
        let timers: Vec<_> = (0..number)
            .map(|_| json!({ "serviceCallId": ID, "dueAt": "2026-12-24T18:00:00Z" }))
            .collect();
        let body = json!({ "timers": timers });
        world.send(Method::POST, BATCH, &body).await.expect(status);
    }
}

#[tokio::test]
async fn where_timers_belong_to_calls_that_is_said() {
    let mut world = World::new();
    world.parts.timers = None;
    let body = json!({ "dueAt": "2026-12-24T18:00:00Z" });
    for reply in [
        world.get(TIMER).await,
        world.send(Method::PUT, TIMER, &body).await,
        world.delete(TIMER).await,
        world.send(Method::POST, BATCH, &body).await,
    ] {
        let said = reply.expect(404).json()["detail"].clone();
        assert!(said.as_str().unwrap().contains("service calls"), "{said}");
    }
    world.parts.calls = None;
    let reply = world.get("/api/tenants/a/service-calls").await.expect(404);
    assert!(
        reply.json()["detail"]
            .as_str()
            .unwrap()
            .contains("orchestration")
    );
}

#[tokio::test]
async fn without_calls_a_trace_has_timers() {
    let mut world = World::new();
    world.parts.calls = None;
    let body = json!({ "dueAt": "2026-12-24T18:00:00Z" });
    let made = world
        .send(Method::PUT, TIMER, &body)
        .await
        .expect(201)
        .json();
    let correlation = made["correlationId"].as_str().unwrap();
    let path = format!("/api/correlations/{correlation}");
    let trace = world.get(&path).await.expect(200).json();
    assert_eq!(trace["timers"][0]["serviceCallId"], ID);
    assert_eq!(trace["steps"][0]["what"], "ScheduleTimer");
    world
        .get(&format!("/api/correlations/{OTHER_ID}"))
        .await
        .expect(404);
}

#[tokio::test]
async fn a_timer_of_a_call_is_moved_and_deleted_with_its_call_alone() {
    let world = World::new();
    let due = json!({ "dueAt": "2026-12-24T18:00:00Z" });
    let mut call = submission();
    call["serviceCallId"] = json!(ID);
    let submitted = call.clone();
    let call = world.submit(&call).await.expect(202);
    // As its command does.
    let timer = SaveTimer {
        key: TimerKey::new("a".parse().unwrap(), ID.parse().unwrap()),
        correlation_id: OTHER_ID.parse().unwrap(),
        due_at: "2026-12-24T18:00:00Z".parse().unwrap(),
        data: None,
        origin: ScheduleOrigin::Direct,
    };
    let now = world.clock.now();
    world.timers.save(vec![timer], now).await.unwrap();
    world.submit(&submitted).await.expect(202);
    for reply in [
        world.delete(TIMER).await,
        world.send(Method::PUT, TIMER, &due).await,
    ] {
        let said = reply.expect(409).json()["detail"].clone();
        let said = said.as_str().unwrap();
        assert!(said.contains(call.header("location")), "{said}");
    }
    let batch = json!({ "timers": [
        { "serviceCallId": ID, "dueAt": "2027-12-24T18:00:00Z" },
        { "serviceCallId": OTHER_ID, "dueAt": "2026-12-24T18:00:00Z" },
    ]});
    let results = world
        .send(Method::POST, BATCH, &batch)
        .await
        .expect(200)
        .json();
    assert_eq!(results["results"][0]["outcome"], "Failed", "{results}");
    assert_eq!(results["results"][1]["outcome"], "Created", "{results}");
    assert!(
        results["results"][0]["detail"]
            .as_str()
            .unwrap()
            .contains("service call")
    );
    assert_eq!(
        world.get(TIMER).await.expect(200).json()["dueAt"],
        "2026-12-24T18:00:00.000Z"
    );
}

/// The call would move it, and whoever scheduled it would not hear of that.
#[tokio::test]
async fn the_id_of_a_timer_is_free_for_no_call() {
    let world = World::new();
    let due = json!({ "dueAt": "2026-12-24T18:00:00Z" });
    world.send(Method::PUT, TIMER, &due).await.expect(201);
    let mut call = submission();
    call["serviceCallId"] = json!(ID);
    let said = world.submit(&call).await.expect(409).json()["detail"].clone();
    let said = said.as_str().unwrap();
    assert!(
        said.contains("serviceCallId") && said.contains(TIMER),
        "{said}"
    );
    // Another tenant's is its own affair, and so is an id that is free again.
    world
        .send(Method::POST, "/api/tenants/b/service-calls", &call)
        .await
        .expect(202);
    world.delete(TIMER).await.expect(204);
    world.submit(&call).await.expect(202);
}

/// It would fire for nobody: a timer under the id of a deleted call has no owner.
#[tokio::test]
async fn the_id_of_a_deleted_call_is_free_for_no_timer() {
    let world = World::new();
    let mut call = submission();
    call["serviceCallId"] = json!(ID);
    let call = world.submit(&call).await.expect(202);
    world.delete(call.header("location")).await.expect(204);
    let due = json!({ "dueAt": "2026-12-24T18:00:00Z" });
    let said = world.send(Method::PUT, TIMER, &due).await.expect(409);
    let said = said.json()["detail"].clone();
    assert!(said.as_str().unwrap().contains("another id"), "{said}");
    let batch = json!({ "timers": [{ "serviceCallId": ID, "dueAt": "2026-12-24T18:00:00Z" }] });
    let said = world.send(Method::POST, BATCH, &batch).await.expect(200);
    assert_eq!(said.json()["results"][0]["outcome"], "Failed");
    world.get(TIMER).await.expect(404);
    world.delete(TIMER).await.expect(404);
}

#[tokio::test]
async fn a_trace_of_timers_goes_on_page_by_page() {
    let mut world = World::new();
    world.parts.calls = None;
    let timers: Vec<_> = (0..120)
        .map(|n| json!({ "serviceCallId": format!("0190a6e0-7a3b-7c11-9d2e-{n:012}"), "dueAt": "2026-12-24T18:00:00Z" }))
        .collect();
    let made = world
        .send(Method::POST, BATCH, &json!({ "timers": timers }))
        .await
        .expect(200);
    let correlation = made.header("x-correlation-id").to_owned();
    let mut path = format!("/api/correlations/{correlation}");
    let mut seen = 0;
    for expected in [50, 50, 20] {
        let trace = world.get(&path).await.expect(200).json();
        let here = trace["timers"].as_array().unwrap().len();
        assert_eq!(
            (here, trace["steps"].as_array().unwrap().len()),
            (expected, expected)
        );
        seen += here;
        path = match trace["nextCursor"].as_str() {
            Some(cursor) => format!("/api/correlations/{correlation}?cursor={cursor}"),
            None => break,
        };
    }
    assert_eq!(seen, 120);
}
