//! What goes over the wire: these bytes, once.

use std::sync::{Arc, Mutex};

use punctual_domain::service_call::{Headers, Method};
use punctual_ports::{HttpAttempt, HttpClientPort};

use crate::fixture::{LOOPBACK, Target, attempt, client, post, read_request, write};

/// What the target got, all connections together.
async fn sent(make: impl FnOnce(&str) -> HttpAttempt) -> String {
    let got = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&got);
    let target = Target::start(move |mut socket| {
        let keep = Arc::clone(&keep);
        async move {
            let request = read_request(&mut socket).await;
            keep.lock().unwrap().push(request);
            write(
                &mut socket,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            )
            .await;
        }
    })
    .await;
    let response = client(LOOPBACK).attempt(make(&target.url(""))).await;
    assert_eq!(response.unwrap().status, 200);
    assert_eq!(target.connections().await, 1);
    let got = got.lock().unwrap().concat();
    got.replace(&target.address.to_string(), "TARGET")
}

#[tokio::test]
async fn the_whole_request_is_sent_as_it_is_and_once() {
    let request = sent(|base| {
        let mut attempt = post(&format!("{base}/a//b%20c?d=e&f"), "a body\r\n");
        let mine = [("X-Mine", "v 1"), ("Content-Type", "text/plain")];
        let mine = mine.map(|(name, value)| (name.to_owned(), value.to_owned()));
        attempt.request.headers = Headers::new(mine.to_vec()).unwrap();
        attempt
    });
    let expected = [
        "POST /a//b%20c?d=e&f HTTP/1.1",
        "host: TARGET",
        concat!("user-agent: punctual/", env!("CARGO_PKG_VERSION")),
        "accept: */*",
        "x-mine: v 1",
        "content-type: text/plain",
        "idempotency-key: 00000000-0000-0000-0000-00000000000e",
        "x-correlation-id: 00000000-0000-0000-0000-00000000000c",
        "traceparent: 00-0000000000000000000000000000000c-000000000000000e-01",
        "content-length: 8",
        "connection: close",
        "",
        "a body\r\n",
    ];
    assert_eq!(request.await, expected.join("\r\n"));
}

#[tokio::test]
async fn what_the_caller_sets_is_not_set_again() {
    let request = sent(|base| {
        let mut attempt = attempt(Method::Get, base);
        let mine = [("User-Agent", "mine/1"), ("ACCEPT", "text/html")];
        let mine = mine.map(|(name, value)| (name.to_owned(), value.to_owned()));
        attempt.request.headers = Headers::new(mine.to_vec()).unwrap();
        attempt
    });
    let request = request.await;
    assert!(request.starts_with("GET / HTTP/1.1\r\n"), "{request}");
    for (name, line) in [
        ("user-agent:", "user-agent: mine/1\r\n"),
        ("accept:", "accept: text/html\r\n"),
    ] {
        assert_eq!(request.matches(name).count(), 1, "{request}");
        assert!(request.contains(line), "{request}");
    }
    assert!(!request.contains("accept-encoding"), "{request}");
}

#[tokio::test]
async fn each_method_says_how_long_its_body_is_if_it_may_have_one() {
    for (method, without_body) in [
        (Method::Get, None),
        (Method::Delete, None),
        (Method::Post, Some("content-length: 0\r\n")),
        (Method::Put, Some("content-length: 0\r\n")),
        (Method::Patch, Some("content-length: 0\r\n")),
    ] {
        let request = sent(|base| attempt(method, base)).await;
        assert!(request.starts_with(method.as_str()), "{request}");
        assert_eq!(
            request.matches("content-length").count(),
            without_body.iter().count()
        );
        assert!(
            request.contains(without_body.unwrap_or_default()),
            "{request}"
        );
        for (body, length) in [
            ("", "content-length: 0\r\n"),
            ("xyz", "content-length: 3\r\n"),
        ] {
            let request = sent(|base| {
                let mut attempt = post(base, body);
                attempt.request.method = method;
                attempt
            });
            let request = request.await;
            assert!(
                request.contains(length) && request.ends_with(body),
                "{request}"
            );
            assert_eq!(request.matches("content-length").count(), 1, "{request}");
            assert!(!request.contains("transfer-encoding"), "{request}");
        }
    }
}

#[tokio::test]
async fn a_body_of_the_greatest_length_arrives_whole() {
    let body = "b".repeat(256 * 1_024);
    let request = sent(|base| post(base, &body)).await;
    assert!(request.ends_with(&body));
}

#[tokio::test]
async fn a_target_that_hangs_up_after_accepting_gets_no_second_connection() {
    for is_reset in [false, true] {
        let target = Target::start(move |socket| async move {
            if is_reset {
                socket.set_zero_linger().unwrap();
            }
        })
        .await;
        let failure = client(LOOPBACK).attempt(post(&target.url("/"), "x")).await;
        assert_eq!(failure.unwrap_err().kind.as_str(), "ConnectionLost");
        assert_eq!(target.connections().await, 1);
    }
}

#[tokio::test]
async fn attempts_share_no_connection() {
    let target = Target::start(|mut socket| async move {
        // Whatever it says, it would take more requests.
        while !read_request(&mut socket).await.is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n";
            write(&mut socket, answer).await;
        }
    })
    .await;
    let client = client(LOOPBACK);
    for _ in 0..3 {
        assert_eq!(
            client
                .attempt(post(&target.url("/"), "x"))
                .await
                .unwrap()
                .status,
            200
        );
    }
    assert_eq!(target.connections().await, 3);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let failure = client(LOOPBACK)
        .attempt(post(&format!("http://127.0.0.1:{port}/p?q"), "x"))
        .await;
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind.as_str(), "ConnectFailed");
    assert_eq!(
        failure.message,
        format!("no connection to 127.0.0.1 at port {port} could be made: connection refused")
    );
}
