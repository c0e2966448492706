//! The two ends of a request, as cheap as they can be: a target that answers anything, and a client
//! that writes bytes it was given.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::Outcome;

/// The answer to everything.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Content-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n\
    {\"taken\": true}";

/// A message of this benchmark is shorter.
const LONGEST: usize = 16 * 1_024;

/// A server on a thread of its own that answers every request with 200 and closes the connection.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    answered: Arc<AtomicUsize>,
    /// The thread ends with it.
    _runtime: Runtime,
}

impl Target {
    pub(crate) fn start() -> Outcome<Self> {
        let threads = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .build();
        let runtime = threads?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let answered = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answered);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away is the client's business: it counts its answers.
                tokio::spawn(answer(stream, Arc::clone(&counter)));
            }
        });
        Ok(Self {
            address,
            answered,
            _runtime: runtime,
        })
    }

    /// How many requests were answered since the last time this was asked.
    pub(crate) fn answered(&self) -> usize {
        self.answered.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/reminders", self.address)
    }
}

async fn answer(mut stream: TcpStream, answered: Arc<AtomicUsize>) -> io::Result<()> {
    read_whole(&mut stream, &mut Vec::with_capacity(1_024)).await?;
    stream.write_all(ANSWER).await?;
    answered.fetch_add(1, Ordering::Relaxed);
    stream.shutdown().await
}

async fn read_whole(stream: &mut TcpStream, message: &mut Vec<u8>) -> io::Result<()> {
    while !is_whole(message) {
        if stream.read_buf(message).await? == 0 || message.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

/// Whether a message has all of its head, and of its body what the head says.
fn is_whole(message: &[u8]) -> bool {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n");
    end.is_some_and(|end| message.len() >= end + 4 + content_length(&message[..end]))
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let mut lines = head.split(|byte| *byte == b'\n');
    let found = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        let value = name.eq_ignore_ascii_case(NAME).then_some(value)?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    });
    found.unwrap_or(0)
}

/// One request on a connection that stays open, and its answer's first bytes.
pub(crate) async fn converse(
    stream: &mut TcpStream,
    request: &[u8],
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    stream.write_all(request).await?;
    answer.clear();
    read_whole(stream, answer).await
}

/// Sends requests on one thread, a connection for each.
pub(crate) struct Client {
    runtime: Runtime,
}

impl Client {
    pub(crate) fn new() -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        Ok(Self { runtime })
    }

    /// Sends all requests, a number of them at once, and reads every response to its end.
    pub(crate) fn send_all(
        &self,
        to: SocketAddr,
        requests: &[Rc<[u8]>],
        at_once: usize,
    ) -> Outcome<()> {
        let next = Rc::new(AtomicUsize::new(0));
        let requests: Rc<[Rc<[u8]>]> = requests.into();
        let sending = LocalSet::new();
        let lanes: Vec<_> = (0..at_once)
            .map(|_| {
                let (next, requests) = (Rc::clone(&next), Rc::clone(&requests));
                sending.spawn_local(async move {
                    let mut answer = Vec::with_capacity(1_024);
                    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut stream = TcpStream::connect(to).await?;
                        stream.write_all(request).await?;
                        answer.clear();
                        while stream.read_buf(&mut answer).await? > 0 {}
                        if !answer.starts_with(b"HTTP/1.1 200") {
                            return Err(io::ErrorKind::InvalidData.into());
                        }
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        sending.block_on(&self.runtime, async {
            for lane in lanes {
                lane.await??;
            }
            Outcome::Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_its_body_is() {
        let message = b"POST / HTTP/1.1\r\ncontent-LENGTH: 3\r\n\r\nabc";
        assert!(is_whole(message));
        assert!(!is_whole(&message[..message.len() - 1]));
        assert!(!is_whole(b"GET / HTTP/1.1\r\n"));
        assert!(is_whole(b"GET / HTTP/1.1\r\n\r\n"));
    }

    #[test]
    fn the_target_answers_and_counts_what_the_client_sends() {
        let (target, client) = (Target::start().unwrap(), Client::new().unwrap());
        let request: Rc<[u8]> = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
            .as_slice()
            .into();
        client
            .send_all(target.address, &vec![request; 10], 3)
            .unwrap();
        assert_eq!(target.answered(), 10);
        assert_eq!(target.answered(), 0);
    }
}
