//! Targets that send without end: only so much is taken from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_ports::{HttpClientPort, HttpFailure, HttpResponse};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::fixture::{LOOPBACK, Target, client, get, read_request};

/// What comes of a target that says `first` and then `again` until nobody listens, and how many bytes it
/// got rid of. The buffers of the operating system take some of them.
async fn flood(first: &str, again: &str) -> (Result<HttpResponse, HttpFailure>, usize) {
    let (first, again) = (first.to_owned(), again.repeat(1 + 16_384 / again.len()));
    let (taken, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, end) = (Arc::clone(&taken), Arc::clone(&ended));
    let target = Target::start(move |mut socket| {
        let (first, again) = (first.clone(), again.clone());
        let (count, end) = (Arc::clone(&count), Arc::clone(&end));
        async move {
            read_request(&mut socket).await;
            let mut next = first.as_bytes();
            while let Ok(written) = socket.write(next).await {
                count.fetch_add(written, Ordering::Relaxed);
                next = &next[written..];
                if next.is_empty() {
                    next = again.as_bytes();
                }
            }
            end.notify_one();
        }
    })
    .await;
    let answered = client(LOOPBACK).attempt(get(&target.url("/"))).await;
    ended.notified().await;
    assert_eq!(target.connections().await, 1);
    (answered, taken.load(Ordering::Relaxed))
}

/// Ours is a mebibyte; the rest is what the two sockets hold.
const BOUND: usize = 16 << 20;

#[tokio::test]
async fn a_body_without_end_is_no_whole_answer() {
    for (head, again) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n",
            "b",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", "b"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "8\r\nendless!\r\n",
        ),
    ] {
        let (answered, taken) = flood(head, again).await;
        let failure = answered.unwrap_err();
        assert_eq!(failure.kind.as_str(), "ConnectionLost", "{head:?}");
        assert!(failure.message.contains("16 MiB"), "{failure:?}");
        assert!(taken < 2 * HttpResponse::LONGEST + BOUND, "{taken}");
    }
}

#[tokio::test]
async fn what_never_becomes_an_answer_ends() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (first, again) in [
        // Headers, a header, a status line, interim answers.
        ("HTTP/1.1 200 OK\r\n", "a: b\r\n"),
        ("HTTP/1.1 200 OK\r\na: ", "b"),
        ("HTTP/1.1 200 ", "b"),
        (
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
        ),
        ("HTTP/1.1 103 E\r\n", "a: b\r\n\r\nHTTP/1.1 103 E\r\n"),
        ("\r\n", "\r\n"),
        // The length of a chunk, what may stand behind it, the headers after the last.
        (chunked, "0"),
        (&format!("{chunked}1;"), "e"),
        (&format!("{chunked}0\r\n"), "a: b\r\n"),
        (&format!("{chunked}0\r\na: "), "b"),
    ] {
        let (answered, taken) = flood(first, again).await;
        assert_eq!(
            answered.unwrap_err().kind.as_str(),
            "BadResponse",
            "{first:?} {again:?}"
        );
        assert!(taken < BOUND, "{taken}");
    }
}
