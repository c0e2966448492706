//! Answers of every form, in one table: what is a response, and which failure is what is none.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::pin::pin;
use std::task::Poll;

use punctual_ports::{HttpClientPort, HttpResponse};

use crate::fixture::{LOOPBACK, Target, client, get, post, read_head, read_request, write};

/// What the target does after its answer.
#[derive(Debug, Clone, Copy)]
enum Then {
    Closes,
    Resets,
    /// It keeps the connection open and says nothing more.
    Waits,
}
use Then::{Closes, Resets, Waits};

async fn target(answer: Vec<u8>, then: Then) -> Target {
    Target::start(move |mut socket| {
        let answer = answer.clone();
        async move {
            read_request(&mut socket).await;
            write(&mut socket, &answer).await;
            match then {
                Closes => {}
                Resets => socket.set_zero_linger().unwrap(),
                Waits => drop(read_request(&mut socket).await),
            }
        }
    })
    .await
}

async fn answer(bytes: impl AsRef<[u8]>, then: Then) -> Result<HttpResponse, String> {
    let target = target(bytes.as_ref().to_vec(), then).await;
    let answered = client(LOOPBACK).attempt(get(&target.url("/"))).await;
    assert_eq!(target.connections().await, 1);
    answered.map_err(|failure| {
        assert!(failure.message.starts_with("127.0.0.1 "), "{failure:?}");
        failure.kind.to_string()
    })
}

#[tokio::test]
async fn a_whole_response_is_a_response_whatever_its_status() {
    let rows: &[(&str, Then, u16, &str)] = &[
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            Waits,
            200,
            "ok",
        ),
        (
            "HTTP/1.0 200 OK\r\n\r\nto the end",
            Closes,
            200,
            "to the end",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", Closes, 200, ""),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", Waits, 200, ""),
        ("HTTP/1.1 204 No Content\r\n\r\n", Waits, 204, ""),
        (
            "HTTP/1.1 204 No Content\r\ncontent-length: 9\r\n\r\n",
            Waits,
            204,
            "",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
            Waits,
            304,
            "",
        ),
        (
            "HTTP/1.1 404 X\r\ncontent-length: 4\r\n\r\ngone",
            Waits,
            404,
            "gone",
        ),
        (
            "HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
            Waits,
            500,
            "",
        ),
        (
            "HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n",
            Waits,
            999,
            "",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            Waits,
            101,
            "",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\nother protocol",
            Closes,
            101,
            "",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 C\r\ncontent-length: 1\r\n\r\nx",
            Waits,
            201,
            "x",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;e=f\r\nc\r\n0\r\nx: y\r\n\r\n",
            Waits,
            200,
            "abc",
        ),
        // Only the first of two answers counts.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 500 X\r\ncontent-length: 1\r\n\r\nb",
            Waits,
            200,
            "a",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na",
            Waits,
            200,
            "a",
        ),
    ];
    for (bytes, then, status, body) in rows {
        let response = answer(bytes, *then).await.unwrap();
        assert_eq!(
            (response.status, response.body),
            (*status, body.as_bytes().to_vec()),
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn what_is_no_whole_response_is_a_failure_of_its_kind() {
    let (lost, bad) = ("ConnectionLost", "BadResponse");
    let rows: &[(&str, Then, &str)] = &[
        ("", Closes, lost),
        ("", Resets, lost),
        ("HTTP/1.1 200 OK\r\nconten", Closes, lost),
        ("HTTP/1.1 200 OK\r\nconten", Resets, lost),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            Closes,
            lost,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            Resets,
            lost,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhow long?", Resets, lost),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
            Closes,
            lost,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            Closes,
            lost,
        ),
        ("HTTP/1.1 100 Continue\r\n\r\n", Closes, lost),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            Waits,
            bad,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabX\r\n",
            Waits,
            bad,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            Waits,
            bad,
        ),
        (
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Waits,
            bad,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
            Waits,
            bad,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Waits, bad),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            Waits,
            bad,
        ),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Waits, bad),
        ("HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n", Waits, bad),
        ("HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n", Waits, bad),
        ("HTTP/1.1 20 OK\r\n\r\n", Waits, bad),
        ("HTTP/1.1 099 X\r\ncontent-length: 0\r\n\r\n", Waits, bad),
        ("HTTP/2.0 200 OK\r\n\r\n", Waits, bad),
        // As HTTP/0.9 had it.
        ("<html>hello</html>", Waits, bad),
        ("220 mail.example ESMTP\r\n", Waits, bad),
        ("\u{0}\u{1}\u{2}\u{3}garbage", Waits, bad),
    ];
    for (bytes, then, kind) in rows {
        assert_eq!(
            answer(bytes, *then).await.unwrap_err(),
            *kind,
            "{bytes:?} {then:?}"
        );
    }
}

#[tokio::test]
async fn headers_are_taken_up_to_their_limits() {
    let with = |headers: String| format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
    for (number, is_right) in [(99, true), (100, false)] {
        let answered = answer(with("a: b\r\n".repeat(number)), Waits).await;
        assert_eq!(
            answered.map(|r| r.headers.len()).ok(),
            is_right.then_some(100)
        );
    }
    let long = with(format!("a: {}\r\n", "b".repeat(32 * 1_024)));
    assert_eq!(
        answer(long, Waits).await.unwrap().headers[0].1.len(),
        32 * 1_024
    );
    let longer = with(format!("a: {}\r\n", "b".repeat(64 * 1_024)));
    assert_eq!(answer(longer, Waits).await.unwrap_err(), "BadResponse");
}

#[tokio::test]
async fn a_header_that_is_no_text_is_shown_as_far_as_it_is() {
    let bytes = b"HTTP/1.1 200 OK\r\nX-Name: J\xf6rg\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: 0\r\n\r\n";
    let headers = answer(bytes, Waits).await.unwrap().headers;
    let headers: Vec<_> = headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    let expected = [
        ("x-name", "J\u{fffd}rg"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("content-length", "0"),
    ];
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn a_compressed_body_is_taken_as_it_came() {
    // Ten bytes of gzip's own, and a body that would grow without end.
    let body = [
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".as_slice(),
        &[0xed; 1_000],
    ]
    .concat();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let response = answer([head.as_bytes(), &body].concat(), Waits)
        .await
        .unwrap();
    assert_eq!(response.body, body);
}

#[tokio::test]
async fn a_body_is_read_to_its_end_and_kept_up_to_a_limit() {
    let (kept, most) = (HttpResponse::KEPT, HttpResponse::LONGEST);
    let lost = || Err("ConnectionLost".to_owned());
    for (length, sent, read) in [
        (kept - 1, kept - 1, Ok((kept - 1, false))),
        (kept, kept, Ok((kept, false))),
        (kept + 1, kept + 1, Ok((kept, true))),
        (most, most, Ok((kept, true))),
        // Cut, whether what is kept of it came or not.
        (kept, kept - 1, lost()),
        (kept + 1, kept, lost()),
        (most, most - 1, lost()),
        (most + 1, most + 1, lost()),
    ] {
        let body = "b".repeat(sent);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let answered = answer(head + &body, Closes).await;
        let answered = answered.map(|r| (r.body.len(), r.truncated));
        assert_eq!(answered, read, "{length} {sent}");
        // Without a length, the end of the connection is the end of the body.
        let answered = answer(format!("HTTP/1.1 200 OK\r\n\r\n{body}"), Closes).await;
        assert_eq!(answered.is_ok(), sent <= most, "{sent}");
        // With chunks, the last one is.
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        for (end, is_whole) in [("0\r\n\r\n", sent <= most), ("", false)] {
            let answered = answer(format!("{head}{sent:x}\r\n{body}\r\n{end}"), Closes).await;
            assert_eq!(answered.is_ok(), is_whole, "{sent} {end:?}");
        }
    }
    // The greatest overhead that an honest target can have.
    let chunks = "1\r\nb\r\n".repeat(kept);
    let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    assert_eq!(answer(chunked, Closes).await.unwrap().body.len(), kept);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    for status in [300, 301, 302, 303, 307, 308] {
        let target = Target::start(move |mut socket| async move {
            let here = socket.local_addr().unwrap();
            read_request(&mut socket).await;
            let answer = format!("HTTP/1.1 {status} X\r\nlocation: http://{here}/\r\nrefresh: 0; url=/\r\ncontent-length: 0\r\n\r\n");
            write(&mut socket, answer.as_bytes()).await;
        })
        .await;
        let response = client(LOOPBACK)
            .attempt(get(&target.url("/")))
            .await
            .unwrap();
        assert_eq!(response.status, status);
        assert_eq!(target.connections().await, 1);
    }
}

#[tokio::test]
async fn an_answer_before_the_request_was_read_is_taken() {
    let target = Target::start(|mut socket| async move {
        read_head(&mut socket).await;
        write(
            &mut socket,
            b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig",
        )
        .await;
        // It is still there when the answer is read, and has read nothing of the body.
        socket.readable().await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let body = "b".repeat(256 * 1_024);
    let response = client(LOOPBACK)
        .attempt(post(&target.url("/"), &body))
        .await
        .unwrap();
    assert_eq!(
        (response.status, response.body.as_slice()),
        (413, b"big".as_slice())
    );
    assert_eq!(target.connections().await, 1);
}

/// What was there before the request went out cannot be its answer, and whoever says it gets nothing.
#[tokio::test]
async fn an_answer_before_the_question_is_none() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client(LOOPBACK);
    let mut attempt = pin!(client.attempt(get(&url)));
    // The connection is started, and polled again only when the target has responded.
    poll_fn(|cx| {
        assert!(attempt.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let (mut target, _) = listener.accept().unwrap();
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    target.write_all(answer).unwrap();
    let failure = attempt.await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "BadResponse");
    assert_eq!(
        failure.message,
        "127.0.0.1 sent something before it was asked"
    );
    let mut got = Vec::new();
    assert!(target.read_to_end(&mut got).is_err() && got.is_empty());
}

#[tokio::test]
async fn a_target_that_speaks_first_speaks_no_http() {
    let target = Target::start(|mut socket| async move {
        write(&mut socket, b"220 mail.example ESMTP\r\n").await;
        read_request(&mut socket).await;
    })
    .await;
    let failure = client(LOOPBACK)
        .attempt(get(&target.url("/")))
        .await
        .unwrap_err();
    assert_eq!(failure.kind.as_str(), "BadResponse");
    assert_eq!(target.connections().await, 1);
}
