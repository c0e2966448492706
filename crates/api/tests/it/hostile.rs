//! Clients that mean harm: what they hold is theirs alone, and everybody else is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::Method;
use futures_util::future::join_all;
use punctual_ports::ClockPort;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::serving::{Server, exchange, until, with};
use crate::world::{World, call, request, submission, with_body};

const LONGEST: usize = 2 * 1_024 * 1_024;

/// The head of a submission with a body of this length.
fn head(tenant: &str, token: &str, length: usize) -> String {
    format!(
        "POST /api/tenants/{tenant}/service-calls HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Submits a call as a tenant who means no harm.
async fn submit(server: &Server, tenant: &str, token: &str) -> String {
    let body = submission().to_string();
    let request = format!("{}{body}", head(tenant, token, body.len()));
    exchange(&mut server.connect().await, request.as_bytes()).await
}

async fn begin(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Lets the server read what was sent to it, without any time passing.
async fn settle(server: &Server) {
    for _ in 0..3 {
        let answer = server.get("/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn bodies_that_never_come_take_no_room_from_anybody() {
    let world = World::new().with_tokens();
    let server = Server::start(&world).await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(
            begin(
                &server,
                format!("{}{{", head("a", "of-a", LONGEST)).as_bytes(),
            )
            .await,
        );
    }
    settle(&server).await;
    for (tenant, token) in [("b", "of-b"), ("a", "of-a")] {
        let answer = submit(&server, tenant, token).await;
        assert!(answer.starts_with("HTTP/1.1 202"), "{tenant}: {answer}");
    }
}

#[tokio::test]
async fn bodies_of_one_tenant_leave_room_for_the_others() {
    let world = with(|settings| {
        settings.body = 64 * 1_024;
        settings.all_bodies = 256 * 1_024;
    })
    .with_tokens();
    let server = Server::start(&world).await;
    // All but their last byte arrives.
    let almost = [head("a", "of-a", 64 * 1_024), " ".repeat(64 * 1_024 - 1)].concat();
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(begin(&server, almost.as_bytes()).await);
    }
    settle(&server).await;
    let answer = submit(&server, "b", "of-b").await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let answer = submit(&server, "a", "of-a").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("this tenant"), "{answer}");
    drop(open);
    for _ in 0..1_000 {
        if submit(&server, "a", "of-a")
            .await
            .starts_with("HTTP/1.1 202")
        {
            return;
        }
    }
    panic!("what they held was not given back");
}

#[tokio::test]
async fn a_body_that_trickles_is_refused_long_before_the_request_times_out() {
    let world = World::new().with_tokens();
    let server = Server::start(&world).await;
    for first in [1, LONGEST - 1] {
        let sent = [head("a", "of-a", LONGEST), " ".repeat(first)].concat();
        let began = world.clock.monotonic();
        let mut stream = begin(&server, sent.as_bytes()).await;
        let mut answer = String::new();
        let refused = until(
            &world.clock,
            Duration::from_millis(100),
            stream.read_to_string(&mut answer),
        );
        refused.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        let took = world.clock.monotonic().saturating_sub(began);
        assert!(took < Duration::from_secs(15), "{first}: {took:?}");
    }
}

#[tokio::test]
async fn anonymous_connections_do_not_evict_those_with_a_token() {
    let world = with(|settings| settings.connections = 32).with_tokens();
    let server = Server::start(&world).await;
    let body = submission().to_string();
    let begun = head("a", "of-a", body.len());
    let mut known = begin(&server, begun.as_bytes()).await;
    settle(&server).await;
    let mut anonymous = Vec::new();
    for number in 0..200 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.ok();
        anonymous.push(stream);
        if number % 20 == 0 {
            settle(&server).await;
        }
    }
    let answer = exchange(&mut known, body.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

#[tokio::test]
async fn connections_with_a_token_leave_slots_for_anonymous_ones() {
    let world = with(|settings| settings.connections = 32).with_tokens();
    let server = Server::start(&world).await;
    let mut open = Vec::new();
    for number in 0..200 {
        let mut stream = server.connect().await;
        stream
            .write_all(head("a", "of-a", 100).as_bytes())
            .await
            .ok();
        open.push(stream);
        if number % 20 == 0 {
            settle(&server).await;
        }
    }
    settle(&server).await;
}

#[tokio::test]
async fn health_is_answered_while_every_connection_waits_for_readiness() {
    let mut world = with(|settings| settings.connections = 8);
    world.parts.readiness = Arc::new(|| Box::pin(std::future::pending()));
    let server = Server::start(&world).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.ok();
        open.push(stream);
        tokio::task::yield_now().await;
    }
    // The clock stands still but for a moment: nothing ends because its time is over.
    let moment = Duration::from_nanos(1);
    let answer = until(&world.clock, moment, server.get("/healthz")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn readiness_and_metrics_are_found_once_for_all_who_ask_at_once() {
    let mut world = World::new();
    let computed = Arc::new(AtomicUsize::new(0));
    let (checked, rendered) = (Arc::clone(&computed), Arc::clone(&computed));
    let clock: Arc<dyn ClockPort> = Arc::new(world.clock.clone());
    world.parts.readiness = Arc::new(move || {
        checked.fetch_add(1, Ordering::Relaxed);
        let clock = Arc::clone(&clock);
        Box::pin(async move {
            clock.sleep_for(Duration::from_secs(1)).await;
            Vec::new()
        })
    });
    world.parts.metrics = Arc::new(move || {
        rendered.fetch_add(1, Ordering::Relaxed);
        "# none\n".to_owned()
    });
    let router = world.router();
    let all = |path: &'static str| {
        let many = (0..50).map(|_| call(&router, request(Method::GET, path)));
        join_all(many.collect::<Vec<_>>())
    };
    for (path, found) in [("/readyz", 1), ("/metrics", 2)] {
        for reply in until(&world.clock, Duration::from_millis(100), all(path)).await {
            reply.expect(200);
        }
        assert_eq!(computed.load(Ordering::Relaxed), found, "{path}");
    }
    // What was found is good for a moment only.
    world.clock.advance(Duration::from_secs(1)).await;
    until(&world.clock, Duration::from_millis(100), all("/metrics")).await;
    assert_eq!(computed.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_body_still_reaches_its_client() {
    let world = with(|settings| {
        settings.body = 4 * 1_024 * 1_024;
        settings.all_bodies = 4 * 1_024 * 1_024;
    });
    let body = json!({ "timers": " ".repeat(3 * 1_024 * 1_024) }).to_string();
    let server = Server::start(&world).await;
    let almost = [
        head("a", "of-a", 4 * 1_024 * 1_024),
        " ".repeat(2 * 1_024 * 1_024),
    ]
    .concat();
    let _held = begin(&server, almost.as_bytes()).await;
    settle(&server).await;
    let request = format!("{}{body}", head("a", "of-a", body.len()));
    let answer = exchange(&mut server.connect().await, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let reply = world
        .call(with_body(
            Method::POST,
            "/api/tenants/b/service-calls",
            "{}",
        ))
        .await;
    reply.expect(422);
}
