//! The target of the calls: a small HTTP server of this process, which reports each request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::Failure;
use crate::engine::Event;

/// The statuses of its responses.
pub(crate) const GOOD: u16 = 200;
pub(crate) const BAD: u16 = 500;
/// Every so many-th call gets the bad one.
const BAD_EVERY: usize = 10;
/// What belongs before the number of a call.
const PATH: &str = "/calls/";
/// Maximum number of bytes of a request, which is a few lines.
const MAX_HEAD: usize = 16 * 1024;

/// The status of the response to a call.
pub(crate) const fn status(n: usize) -> u16 {
    if n % BAD_EVERY == BAD_EVERY - 1 {
        BAD
    } else {
        GOOD
    }
}

/// Where a call goes.
pub(crate) fn url(address: SocketAddr, n: u32) -> String {
    format!("http://{address}{PATH}{n}")
}

/// A listener on a free port of this machine.
pub(crate) async fn listen() -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|error| {
        Failure::Refused(format!("the target cannot listen on this machine: {error}"))
    })?;
    Ok((listener, address))
}

/// Responds until it is dropped.
pub(crate) async fn serve(listener: TcpListener, events: mpsc::Sender<Event>, clock: SystemClock) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let (events, clock) = (events.clone(), clock.clone());
                connections.spawn(async move {
                    // A client that leaves before the response has been counted all the same.
                    let _ = respond(stream, &events, &clock).await;
                });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn respond(
    mut stream: TcpStream,
    events: &mpsc::Sender<Event>,
    clock: &SystemClock,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 || head.len() > MAX_HEAD {
            return Ok(());
        }
    }
    let (n, at) = (number(&head), clock.now());
    let (recorded, is_recorded) = oneshot::channel();
    // If the receiver is closed, the demo is over.
    let _ = events.send(Event::Requested { n, at, recorded }).await;
    let _ = is_recorded.await;
    let status = n.map_or(404, |n| status(n as usize));
    let response =
        format!("HTTP/1.1 {status} Demo\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Which call a request is of.
fn number(head: &[u8]) -> Option<u32> {
    let head = String::from_utf8_lossy(head);
    let path = head.split(' ').nth(1)?;
    path.strip_prefix(PATH)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_call_gets_a_bad_response() {
        let bad: Vec<usize> = (0..30).filter(|n| status(*n) == BAD).collect();
        assert_eq!(bad, [9, 19, 29]);
    }

    #[test]
    fn a_request_names_its_call() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(url(address, 7), "http://127.0.0.1:80/calls/7");
        assert_eq!(number(b"GET /calls/7 HTTP/1.1\r\n\r\n"), Some(7));
        for line in ["GET / HTTP/1.1", "GET /calls/x HTTP/1.1", ""] {
            assert_eq!(number(format!("{line}\r\n\r\n").as_bytes()), None);
        }
    }
}
