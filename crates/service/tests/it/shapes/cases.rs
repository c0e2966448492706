//! What a caller sees, whatever runs where.

use std::time::Duration;

use serde_json::{Value, json};

use super::Shape;
use crate::api_client::{CALLS, FINISHED, call, due_in};
use crate::target::{Request, Target};

fn seen_at(target: &Target, path: &str) -> Vec<Request> {
    let seen = target.seen().into_iter();
    seen.filter(|it| it.path == path).collect()
}

pub(super) fn a_call_is_made_once_and_not_before_it_is_due(shape: &Shape) {
    let target = Target::start();
    let due_at = due_in(Duration::from_millis(800));
    let mut later = call(&target.url("/later"), due_at);
    later["requestSpec"]["method"] = json!("POST");
    later["requestSpec"]["headers"] = json!({"Authorization": "Bearer canary"});
    later["requestSpec"]["body"] = json!("{\"say\":\"hello\"}");
    let later = shape.api(0).submit(&later);
    let overdue = shape
        .api(1)
        .submit(&call(&target.url("/overdue"), due_in(Duration::ZERO)));
    assert_eq!(shape.api(2).call(&later)["status"], "Scheduled");
    for (turn, id) in [&later, &overdue].into_iter().enumerate() {
        let made = shape.api(turn).wait_for(id, FINISHED);
        assert_eq!(made["status"], "Succeeded", "{made}");
        assert_eq!(made["outcome"]["responseMeta"]["status"], 200, "{made}");
        assert!(
            made["startedAt"].is_string() && made["finishedAt"].is_string(),
            "{made}"
        );
    }
    assert_eq!(seen_at(&target, "/overdue").len(), 1);
    let [request] = seen_at(&target, "/later").try_into().unwrap();
    assert!(request.at >= due_at);
    assert_eq!(request.method, "POST");
    assert_eq!(request.body, "{\"say\":\"hello\"}");
    assert_eq!(request.header("authorization"), Some("Bearer canary"));
    assert!(request.header("idempotency-key").is_some());
    let correlation = shape.api(1).call(&later)["correlationId"].clone();
    assert_eq!(request.header("x-correlation-id"), correlation.as_str());
}

pub(super) fn a_call_that_fails_says_why(shape: &Shape) {
    let target = Target::start();
    let now = due_in(Duration::ZERO);
    let refused = shape.api(0).submit(&call(&target.url("/status/404"), now));
    // Nobody listens on the first port of all.
    let nobody = shape.api(1).submit(&call("http://127.0.0.1:1/", now));
    let refused = shape.api(1).wait_for(&refused, FINISHED);
    assert_eq!(
        refused["outcome"]["errorMeta"]["kind"], "HttpStatus",
        "{refused}"
    );
    assert_eq!(refused["outcome"]["errorMeta"]["details"]["status"], 404);
    let nobody = shape.api(2).wait_for(&nobody, FINISHED);
    assert_eq!(nobody["status"], "Failed", "{nobody}");
    assert_eq!(
        nobody["outcome"]["errorMeta"]["kind"], "ConnectFailed",
        "{nobody}"
    );
    assert_eq!(target.seen().len(), 1);
}

pub(super) fn a_deleted_call_is_never_made(shape: &Shape) {
    let target = Target::start();
    let gone = call(&target.url("/gone"), due_in(Duration::from_millis(700)));
    let gone = shape.api(0).submit(&gone);
    let path = format!("{CALLS}/{gone}");
    let deleted = shape.api(1).ask("DELETE", &path, None);
    assert_eq!(deleted.status, 204, "{deleted:?}");
    let after = call(&target.url("/after"), due_in(Duration::from_millis(900)));
    let after = shape.api(2).submit(&after);
    for turn in 0..3 {
        assert_eq!(shape.api(turn).ask("GET", &path, None).status, 404);
        assert_eq!(shape.api(turn).ask("DELETE", &path, None).status, 404);
    }
    shape.api(0).wait_for(&after, FINISHED);
    assert_eq!(seen_at(&target, "/gone").len(), 0);
    // What was made stays.
    let path = format!("{CALLS}/{after}");
    assert_eq!(shape.api(1).ask("DELETE", &path, None).status, 409);
    assert_eq!(seen_at(&target, "/after").len(), 1);
}

pub(super) fn a_request_is_traced_from_its_submission_to_its_outcome(shape: &Shape) {
    let target = Target::start();
    let soon = due_in(Duration::from_millis(300));
    let id = shape.api(0).submit(&call(&target.url("/traced"), soon));
    let made = shape.api(1).wait_for(&id, FINISHED);
    let correlation = made["correlationId"].as_str().unwrap();
    let trace = shape
        .api(2)
        .get(&format!("/api/correlations/{correlation}"));
    let steps = trace["steps"].as_array().unwrap().iter();
    let steps: Vec<&str> = steps.map(|step| step["what"].as_str().unwrap()).collect();
    // What modules of other processes did is in their own traces.
    let of_orchestration = [
        "ServiceCallSubmitted",
        "ScheduleTimer",
        "ServiceCallScheduled",
        "ServiceCallRunning",
        "StartExecution",
        "ServiceCallSucceeded",
    ];
    let found = steps.iter().filter(|it| of_orchestration.contains(it));
    let found: Vec<&str> = found.copied().collect();
    assert_eq!(found, of_orchestration, "{trace}");
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|it| it["serviceCallId"].as_str().unwrap().to_owned())
        .collect()
}

pub(super) fn calls_are_found_by_tags_and_status(shape: &Shape) {
    let target = Target::start();
    let mut tagged = call(&target.url("/tagged"), due_in(Duration::from_millis(200)));
    tagged["tags"] = json!(["greeting", "first"]);
    let made = shape.api(0).submit(&tagged);
    tagged["dueAt"] = json!(due_in(Duration::from_hours(1)));
    tagged["tags"] = json!(["greeting"]);
    let waiting = shape.api(1).submit(&tagged);
    shape.api(2).wait_for(&made, FINISHED);
    for (turn, (query, wanted)) in [
        ("tag=greeting", vec![&waiting, &made]),
        ("tag=greeting&tag=first", vec![&made]),
        ("tag=greeting&status=Scheduled", vec![&waiting]),
        ("status=Succeeded", vec![&made]),
        ("tag=other", vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let page = shape.api(turn).get(&format!("{CALLS}?{query}"));
        assert_eq!(ids(&page).iter().collect::<Vec<_>>(), wanted, "{query}");
    }
}

pub(super) fn tenants_do_not_see_each_other(shape: &Shape) {
    let target = Target::start();
    let of_others = "/api/tenants/others/service-calls";
    let id = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
    let mut ours = call(&target.url("/ours"), due_in(Duration::from_millis(500)));
    ours["serviceCallId"] = json!(id);
    assert_eq!(shape.api(0).submit(&ours), id);
    let path = format!("{of_others}/{id}");
    assert_eq!(shape.api(1).ask("GET", &path, None).status, 404);
    assert_eq!(shape.api(1).ask("DELETE", &path, None).status, 404);
    assert_eq!(ids(&shape.api(2).get(of_others)), Vec::<String>::new());
    // The same id is another call of another tenant, and its end is its own.
    let mut theirs = call(&target.url("/theirs"), due_in(Duration::from_hours(1)));
    theirs["serviceCallId"] = json!(id);
    let answer = shape.api(0).ask("POST", of_others, Some(&theirs));
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(shape.api(1).ask("DELETE", &path, None).status, 204);
    assert_eq!(shape.api(2).wait_for(id, FINISHED)["status"], "Succeeded");
    assert_eq!(target.seen().len(), 1);
}

pub(super) fn a_repeated_submission_is_the_same_call(shape: &Shape) {
    let target = Target::start();
    let body = call(&target.url("/once"), due_in(Duration::from_millis(400)));
    let submit = |turn: usize, body: &Value| {
        let key = [("Idempotency-Key", "order-1")];
        let answer = shape
            .api(turn)
            .try_send("POST", CALLS, &key, Some(&body.to_string()));
        answer.unwrap()
    };
    let first = submit(0, &body);
    assert_eq!(first.status, 202, "{first:?}");
    let id = first.json()["serviceCallId"].as_str().unwrap().to_owned();
    for turn in 1..4 {
        let again = submit(turn, &body);
        assert_eq!(again.json()["serviceCallId"], id, "{again:?}");
    }
    let mut other = body.clone();
    other["name"] = json!("something else");
    let refused = submit(2, &other);
    assert_eq!(refused.status, 409, "{refused:?}");
    shape.api(1).wait_for(&id, FINISHED);
    // Also when it has been made.
    assert_eq!(submit(2, &body).json()["serviceCallId"], id);
    assert_eq!(seen_at(&target, "/once").len(), 1);
}
