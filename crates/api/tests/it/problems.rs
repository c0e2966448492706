//! Problems: every error, and how it is reported.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use futures_util::{StreamExt, stream};
use punctual_adapters_memory::faults::Fault;
use punctual_api::{ApiSettings, ReadinessCheck, routes};
use punctual_ports::PortErrorKind;
use serde_json::json;

use crate::world::{CALLS, ID, World, call, request, submission, with_body};

#[tokio::test]
async fn every_bad_field_is_named_at_once() {
    let world = World::new();
    let body = json!({
        "name": "",
        "dueAt": "tomorrow",
        "requestSpec": {
            "method": "get",
            "url": "ftp://x",
            "headers": { "Host": "x", "X-A": "a\r\nB: c" },
            "body": 7,
        },
        "tags": ["", 7],
        "serviceCallId": "7",
        "idempotencyKey": "ä",
        "nam": "misspelt",
    });
    let mut req = with_body(
        Method::POST,
        "/api/tenants/a.b/service-calls?limit=1",
        body.to_string(),
    );
    let wrong = "x".parse().unwrap();
    req.headers_mut().insert("x-correlation-id", wrong);
    let reply = world.call(req).await.expect(422);
    assert_eq!(
        reply.pointers(),
        [
            "/header/X-Correlation-Id",
            "/query/limit",
            "/path/tenantId",
            "/nam",
            "/name",
            "/dueAt",
            "/requestSpec/method",
            "/requestSpec/url",
            "/requestSpec/headers/Host",
            "/requestSpec/headers/X-A",
            "/requestSpec/body",
            "/tags/0",
            "/tags/1",
            "/serviceCallId",
            "/idempotencyKey",
        ]
    );
}

#[tokio::test]
async fn every_bad_parameter_of_a_query_is_named_at_once() {
    let world = World::new();
    let query =
        "status=Done&tag=&from=x&to=2026-01-01T00:00:00+01:00&limit=0&cursor=&statu%2Fs=1&limit2=1";
    let reply = world.get(&format!("{CALLS}?{query}")).await.expect(422);
    let mut pointers = reply.pointers();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/query/cursor",
            "/query/from",
            "/query/limit",
            "/query/limit2",
            "/query/status",
            "/query/statu~1s",
            "/query/tag",
            "/query/to",
        ]
    );
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(said.contains("%2B"), "the hint about the zone: {said}");
    let twice = world
        .get(&format!("{CALLS}?limit=1&limit=2"))
        .await
        .expect(422);
    assert_eq!(twice.pointers(), ["/query/limit"]);
    let foreign = world
        .get(&format!("{CALLS}?cursor=nonsense"))
        .await
        .expect(422);
    assert_eq!(foreign.pointers(), ["/query/cursor"]);
}

#[tokio::test]
async fn malformed_json_is_reported_with_its_position() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (body, hint) in [
        ("", "line 1 column 0"),
        ("{", "line 1 column 1"),
        ("{\n\"name\": x}", "line 2 column 9"),
        ("{\"name\":\"\\ud800\"}", "line 1"),
        ("{} {}", "line 1 column 4"),
        (r#"{"dueAt":1,"dueAt":1}"#, "stands twice"),
        (deep.as_str(), "recursion limit"),
    ] {
        for (method, path) in [
            (Method::POST, CALLS.to_owned()),
            (Method::PUT, format!("/api/tenants/a/timers/{ID}")),
            (Method::POST, "/api/tenants/a/timers:batch".to_owned()),
        ] {
            let reply = world
                .call(with_body(method.clone(), &path, body.to_owned()))
                .await;
            if reply.status == 422 {
                // Where only an object of certain fields is read, no more than that is checked.
                assert_ne!(path, CALLS, "{body}");
                continue;
            }
            let said = reply.expect(400).json()["detail"].clone();
            assert!(said.as_str().unwrap().contains(hint), "{path} {said}");
        }
    }
    let bytes = vec![b'"', 0xff, b'"'];
    world
        .call(with_body(Method::POST, CALLS, bytes))
        .await
        .expect(400);
    for body in ["7", "[]", "null", "\"x\""] {
        world
            .call(with_body(Method::POST, CALLS, body))
            .await
            .expect(422);
    }
}

#[tokio::test]
async fn only_json_as_it_is_is_taken() {
    let world = World::new();
    for (name, value, status) in [
        ("content-type", "application/json", 202),
        ("content-type", "Application/JSON; charset=\"UTF-8\"", 202),
        ("content-type", "application/json; charset=latin1", 415),
        ("content-type", "text/plain", 415),
        ("content-type", "application/jsonp", 415),
        ("content-type", "", 415),
        ("content-encoding", "gzip", 415),
        ("content-encoding", "identity", 202),
    ] {
        let mut req = with_body(Method::POST, CALLS, submission().to_string());
        req.headers_mut().insert(name, value.parse().unwrap());
        world.call(req).await.expect(status);
    }
    let bare = Request::post(CALLS).body(Body::from(submission().to_string()));
    world.call(bare.unwrap()).await.expect(415);
}

#[tokio::test]
async fn an_unknown_address_and_an_unknown_method_differ() {
    let world = World::new();
    for path in [
        "/",
        "/api",
        "/api/tenants/a",
        "/healthz/",
        "//healthz",
        "/api/tenants//service-calls",
    ] {
        let reply = world.get(path).await;
        assert!(
            reply.status == 404 || reply.status == 422,
            "{path} {}",
            reply.status
        );
    }
    for route in routes() {
        let path = route
            .template
            .replace("{tenantId}", "a")
            .replace("{serviceCallId}", ID)
            .replace("{correlationId}", ID);
        for method in [
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
            Method::from_bytes(b"BREW").unwrap(),
        ] {
            let reply = world.call(request(method, &path)).await.expect(405);
            assert!(
                reply.header("allow").contains(route.method.as_str()),
                "{path}"
            );
        }
    }
    let reply = world.call(request(Method::PUT, CALLS)).await.expect(405);
    assert_eq!(reply.header("allow"), "POST, GET, HEAD");
    world.call(request(Method::HEAD, CALLS)).await.expect(200);
}

#[tokio::test]
async fn bad_ids_in_the_path_are_named() {
    let world = World::new();
    let reply = world
        .get("/api/tenants/a%20b/service-calls/7")
        .await
        .expect(422);
    assert_eq!(reply.pointers(), ["/path/tenantId", "/path/serviceCallId"]);
    let reply = world.get("/api/correlations/7").await.expect(422);
    assert_eq!(reply.pointers(), ["/path/correlationId"]);
    let reply = world
        .get("/api/tenants/%ff/service-calls")
        .await
        .expect(422);
    assert!(reply.pointers().contains(&"/path".to_owned()));
}

#[tokio::test]
async fn a_failing_store_is_reported_without_its_words() {
    for (kind, status) in [
        (PortErrorKind::Unavailable, 503),
        (PortErrorKind::Busy, 503),
        (PortErrorKind::Overloaded, 503),
        (PortErrorKind::StorageFull, 503),
        (PortErrorKind::Stopped, 503),
        (PortErrorKind::Broken, 500),
    ] {
        let world = World::new();
        world.faults.decide(move |_| Some(Fault::FailBefore(kind)));
        let timer = format!("/api/tenants/a/timers/{ID}");
        let due = json!({ "dueAt": "2026-12-24T18:00:00Z" });
        for reply in [
            world.submit(&submission()).await,
            world.get(CALLS).await,
            world.get(&format!("{CALLS}/{ID}")).await,
            world.delete(&format!("{CALLS}/{ID}")).await,
            world.get(&format!("/api/correlations/{ID}")).await,
            world.get(&timer).await,
            world.delete(&timer).await,
            world.send(Method::PUT, &timer, &due).await,
        ] {
            let reply = reply.expect(status);
            assert_eq!(
                reply.header("retry-after").is_empty(),
                status == 500,
                "{kind:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_panic_is_one_requests_problem() {
    let mut world = World::new();
    world.parts.metrics = std::sync::Arc::new(|| panic!("on purpose"));
    let reply = world.get("/metrics").await.expect(500);
    assert!(!String::from_utf8_lossy(&reply.body).contains("purpose"));
    world.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_given_up() {
    let world = World::new();
    let long = Duration::from_hours(1);
    world.faults.decide(move |_| Some(Fault::DelayBefore(long)));
    let body = submission();
    let pending = world.submit(&body);
    let later = world.clock.advance(Duration::from_secs(31));
    let (reply, ()) = tokio::join!(pending, later);
    let reply = reply.expect(503);
    assert_eq!(reply.header("retry-after"), "5");
    assert!(
        reply.json()["detail"]
            .as_str()
            .unwrap()
            .contains("not known")
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_given_up() {
    let world = World::new();
    let never = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let pending = world.call(with_body(Method::POST, CALLS, never));
    let later = world.clock.advance(Duration::from_secs(31));
    let (reply, ()) = tokio::join!(pending, later);
    assert_eq!(reply.expect(408).header("connection"), "close");
}

#[tokio::test]
async fn more_requests_than_there_may_be_are_refused_and_health_is_not() {
    let mut world = World::new();
    world.parts.settings = ApiSettings {
        requests: 1,
        ..ApiSettings::default()
    };
    let long = Duration::from_secs(20);
    world
        .faults
        .decide(move |call| (call.number == 1).then_some(Fault::DelayBefore(long)));
    let router = world.router();
    let slow = call(&router, request(Method::GET, CALLS));
    let others = async {
        let refused = call(&router, request(Method::GET, CALLS)).await.expect(503);
        assert_eq!(refused.header("retry-after"), "1");
        for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
            call(&router, request(Method::GET, path)).await.expect(200);
        }
        world.clock.advance(long).await;
    };
    let (slow, ()) = tokio::join!(slow, others);
    slow.expect(200);
    call(&router, request(Method::GET, CALLS)).await.expect(200);
}

#[tokio::test]
async fn bodies_that_do_not_fit_together_are_refused() {
    let mut world = World::new();
    world.parts.settings = ApiSettings {
        all_bodies: 0,
        ..ApiSettings::default()
    };
    let router = world.router();
    // All of it arrives but the last byte.
    let almost = Ok::<_, std::io::Error>(vec![b' '; ApiSettings::BODY - 1]);
    let never = stream::iter([almost]).chain(stream::pending());
    let slow = call(
        &router,
        with_body(Method::POST, CALLS, Body::from_stream(never)),
    );
    let others = async {
        let body = submission().to_string();
        call(
            &router,
            with_body(Method::POST, "/api/tenants/b/service-calls", body),
        )
        .await
        .expect(503);
        call(&router, request(Method::GET, CALLS)).await.expect(200);
        world.clock.advance(Duration::from_secs(31)).await;
    };
    let (slow, ()) = tokio::join!(slow, others);
    slow.expect(408);
    let body = submission().to_string();
    call(&router, with_body(Method::POST, CALLS, body))
        .await
        .expect(202);
}

#[tokio::test]
async fn readiness_says_what_is_wrong() {
    let mut world = World::new();
    let ready = world.get("/readyz").await.expect(200).json();
    assert_eq!(
        ready,
        json!({ "status": "ready", "checks": [{ "name": "database", "ok": true }] })
    );
    world.parts.readiness = std::sync::Arc::new(|| {
        Box::pin(async {
            let problem = Some("it has not ticked for 31 s".to_owned());
            vec![ReadinessCheck {
                name: "worker",
                problem,
            }]
        })
    });
    let not = world.get("/readyz").await.expect(503).json();
    assert_eq!(not["status"], "notReady");
    assert_eq!(not["checks"][0]["problem"], "it has not ticked for 31 s");
    assert_eq!(
        world.get("/healthz").await.expect(200).json(),
        json!({ "status": "ok" })
    );
    let metrics = world.get("/metrics").await.expect(200);
    assert!(
        metrics
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
}

#[tokio::test]
async fn what_is_counted_names_nobody() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let router = World::new().router();
    let run = async {
        for path in [
            CALLS.to_owned(),
            format!("{CALLS}/{ID}"),
            "/nowhere/canary".to_owned(),
        ] {
            call(&router, request(Method::GET, &path)).await;
        }
        let brew = Method::from_bytes(b"CANARY").unwrap();
        call(&router, request(brew, CALLS)).await;
    };
    let guard = metrics::set_default_local_recorder(&recorder);
    run.await;
    drop(guard);
    let mut counted = Vec::new();
    for (key, ..) in snapshots.snapshot().into_vec() {
        let labels: Vec<String> = key
            .key()
            .labels()
            .map(|l| format!("{}={}", l.key(), l.value()))
            .collect();
        counted.push(format!("{} {}", key.key().name(), labels.join(" ")));
    }
    counted.sort();
    let text = counted.join("\n");
    for part in [
        "http_requests_total route=/api/tenants/{tenantId}/service-calls method=GET status=2xx",
        "http_requests_total route=none method=GET status=4xx",
        "method=other status=4xx",
        "http_request_duration_seconds route=/api/tenants/{tenantId}/service-calls/{serviceCallId}",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(
        !text.to_lowercase().contains("canary") && !text.contains(ID),
        "{text}"
    );
}

#[tokio::test]
async fn what_comes_without_a_good_token_is_counted() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let router = World::new().with_tokens().router();
    let guard = metrics::set_default_local_recorder(&recorder);
    for token in ["", "Bearer nobodys", "Bearer of-a", "Bearer of-b"] {
        let mut req = request(Method::GET, CALLS);
        let headers = req.headers_mut();
        headers.insert("authorization", token.parse().unwrap());
        call(&router, req).await;
    }
    drop(guard);
    let counted = snapshots.snapshot().into_vec();
    let unauthorized = counted
        .iter()
        .find(|(key, ..)| key.key().name() == punctual_api::metric_names::UNAUTHORIZED);
    let (key, _, _, value) = unauthorized.unwrap();
    assert_eq!(key.key().labels().count(), 0);
    assert_eq!(*value, metrics_util::debugging::DebugValue::Counter(2));
}

#[tokio::test]
async fn what_the_store_cannot_carry_out_is_counted() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let world = World::new();
    let full = Fault::FailBefore(PortErrorKind::StorageFull);
    world.faults.decide(move |_| Some(full));
    let guard = metrics::set_default_local_recorder(&recorder);
    let router = world.router();
    for _ in 0..100 {
        call(&router, request(Method::GET, CALLS)).await;
    }
    drop(guard);
    let counted = snapshots.snapshot().into_vec();
    let refused = counted
        .iter()
        .find(|(key, ..)| key.key().name() == punctual_api::metric_names::NOT_CARRIED_OUT);
    let (key, _, _, value) = refused.unwrap();
    assert_eq!(key.key().labels().count(), 0);
    assert_eq!(*value, metrics_util::debugging::DebugValue::Counter(100));
}

#[tokio::test]
async fn two_hosts_are_refused_everywhere() {
    for world in [World::new(), World::new().with_tokens()] {
        for path in ["/healthz", CALLS, "/nowhere"] {
            let mut req = request(Method::GET, path);
            let headers = req.headers_mut();
            headers.append("host", "localhost".parse().unwrap());
            headers.append("host", "evil.example".parse().unwrap());
            let reply = world.call(req).await.expect(400);
            assert!(reply.json()["detail"].as_str().unwrap().contains("Host"));
            assert_eq!(reply.header("connection"), "close");
        }
    }
}

#[tokio::test]
async fn a_query_that_is_badly_encoded_is_refused_by_parameter() {
    let world = World::new();
    for (query, pointers) in [
        ("tag=100%", vec!["/query/tag"]),
        ("tag=%zz&limit=0", vec!["/query/tag", "/query/limit"]),
        ("tag=%2", vec!["/query/tag"]),
        ("tag=%ff%fe", vec!["/query/tag"]),
        ("%ff=1", vec!["/query/\u{fffd}"]),
        ("status=%c3", vec!["/query/status"]),
        ("tag=%25&tag=%c3%a4&tag=%ef%bf%bd&tag=a+b&&", vec![]),
    ] {
        let reply = world.get(&format!("{CALLS}?{query}")).await;
        let reply = reply.expect(if pointers.is_empty() { 200 } else { 422 });
        assert_eq!(reply.pointers(), pointers, "{query}");
    }
}

#[tokio::test]
async fn a_bad_cursor_is_reported_together_with_all_else() {
    let world = World::new();
    let query = "limit=0&cursor=nonsense&status=Lost";
    let reply = world.get(&format!("{CALLS}?{query}")).await.expect(422);
    assert_eq!(
        reply.pointers(),
        ["/query/status", "/query/limit", "/query/cursor"]
    );
    let path = format!("/api/correlations/x?{}", "limit=0&cursor=nonsense");
    let reply = world.get(&path).await.expect(422);
    assert_eq!(
        reply.pointers(),
        ["/path/correlationId", "/query/limit", "/query/cursor"]
    );
}
