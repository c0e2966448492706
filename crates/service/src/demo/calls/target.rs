//! The target of the calls: a small HTTP server of this process, which tells of each request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::event::Event;

/// The two answers.
pub(super) const GOOD: u16 = 200;
pub(super) const BAD: u16 = 500;
/// Every so many-th call gets the bad one.
const BAD_EVERY: usize = 10;
/// What belongs before the number of a call.
const PATH: &str = "/calls/";
/// A request is a few lines.
const LONGEST_HEAD: usize = 16 * 1024;

/// What it answers to a call.
pub(super) const fn answer(n: usize) -> u16 {
    if n % BAD_EVERY == BAD_EVERY - 1 {
        BAD
    } else {
        GOOD
    }
}

/// A target that listens on a free port.
pub(super) struct Target {
    listener: TcpListener,
    address: SocketAddr,
}

impl Target {
    pub(super) async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where a call goes.
    pub(super) fn url(address: SocketAddr, n: usize) -> String {
        format!("http://{address}{PATH}{n}")
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is dropped.
    pub(super) async fn serve(self, events: mpsc::Sender<Event>, clock: SystemClock) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => if let Ok((stream, _)) = accepted {
                    let (events, clock) = (events.clone(), clock.clone());
                    connections.spawn(async move {
                        // Whoever goes away before the answer has been counted all the same.
                        let _ = answer_one(stream, &events, &clock).await;
                    });
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn answer_one(
    mut stream: TcpStream,
    events: &mpsc::Sender<Event>,
    clock: &SystemClock,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 || head.len() > LONGEST_HEAD {
            return Ok(());
        }
    }
    let at = clock.now();
    let n = number(&head);
    let (seen, has_been_seen) = oneshot::channel();
    // If nobody listens any more, the demo is over.
    let _ = events.send(Event::Requested { n, at, seen }).await;
    let _ = has_been_seen.await;
    let status = n.map_or(404, answer);
    let answer =
        format!("HTTP/1.1 {status} Demo\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Which call a request is of.
fn number(head: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head);
    let path = head.split(' ').nth(1)?;
    path.strip_prefix(PATH)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_call_gets_a_bad_answer() {
        let bad: Vec<usize> = (0..30).filter(|n| answer(*n) == BAD).collect();
        assert_eq!(bad, [9, 19, 29]);
    }

    #[test]
    fn a_request_names_its_call() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(Target::url(address, 7), "http://127.0.0.1:80/calls/7");
        assert_eq!(number(b"GET /calls/7 HTTP/1.1\r\n\r\n"), Some(7));
        for head in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"GET /calls/x HTTP/1.1\r\n\r\n",
            b"\r\n\r\n",
        ] {
            assert_eq!(number(head), None);
        }
    }
}
