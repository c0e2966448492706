//! Targets on loopback that do as a test says, and the attempts that are made at them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use punctual_adapters_http::{HyperHttpClient, Resolve, Roots};
use punctual_domain::service_call::{Headers, Method, RequestBody, RequestSpec};
use punctual_domain::{CorrelationId, EnvelopeId, TenantId, TimerKey};
use punctual_ports::HttpAttempt;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uuid::Uuid;

/// What has to be allowed so that the targets here can be reached.
pub(crate) const LOOPBACK: &str = "127.0.0.0/8,::1/128";

pub(crate) fn client(allowed: &str) -> HyperHttpClient {
    HyperHttpClient::new(allowed.parse().unwrap(), Roots::none()).unwrap()
}

pub(crate) fn attempt(method: Method, url: &str) -> HttpAttempt {
    HttpAttempt {
        execution_id: EnvelopeId::from_uuid(Uuid::from_u128(0xe)),
        key: TimerKey::named(TenantId::default(), "call"),
        correlation_id: CorrelationId::from_uuid(Uuid::from_u128(0xc)),
        request: RequestSpec {
            method,
            url: url.parse().unwrap(),
            headers: Headers::default(),
            body: None,
        },
    }
}

pub(crate) fn get(url: &str) -> HttpAttempt {
    attempt(Method::Get, url)
}

pub(crate) fn post(url: &str, body: &str) -> HttpAttempt {
    let mut attempt = attempt(Method::Post, url);
    attempt.request.body = Some(RequestBody::new(body).unwrap());
    attempt
}

/// A resolver that answers from a function.
pub(crate) struct Answers<F>(pub(crate) F);

impl<F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync> Resolve for Answers<F> {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host, port)
    }
}

/// A client that asks this function for addresses.
pub(crate) fn client_with<F>(allowed: &str, answers: F) -> HyperHttpClient
where
    F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
{
    client(allowed).with_resolver(Arc::new(Answers(answers)), HyperHttpClient::LOOKUPS)
}

/// A listener that does the same with every connection, and remembers who connected.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    seen: watch::Receiver<Vec<u16>>,
}

impl Target {
    /// One on 127.0.0.1.
    pub(crate) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(TcpStream) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(crate) fn on<F, Fut>(listener: TcpListener, script: F) -> Self
    where
        F: Fn(TcpStream) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (see, seen) = watch::channel(Vec::new());
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (socket, peer) = listener.accept().await.unwrap();
                see.send_modify(|seen| seen.push(peer.port()));
                tokio::spawn(script(socket));
            }
        });
        Self { address, seen }
    }

    /// A target that answers each request with these bytes and closes.
    pub(crate) async fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |mut socket| async move {
            read_request(&mut socket).await;
            write(&mut socket, answer).await;
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many connections there were. A last one of our own comes after all that were made before.
    pub(crate) async fn connections(&self) -> usize {
        let own = TcpStream::connect(("127.0.0.1", self.address.port()))
            .await
            .unwrap();
        let own = own.local_addr().unwrap().port();
        let mut seen = self.seen.clone();
        let seen = seen.wait_for(|seen| seen.contains(&own)).await.unwrap();
        seen.iter().position(|peer| *peer == own).unwrap()
    }
}

/// Writes all of it, or as much as the other side takes.
pub(crate) async fn write(socket: &mut TcpStream, bytes: &[u8]) {
    let _ = tokio::io::AsyncWriteExt::write_all(socket, bytes).await;
}

/// Reads one request with its body, or as much as comes.
pub(crate) async fn read_request<S: tokio::io::AsyncRead + Unpin>(socket: &mut S) -> String {
    let mut request = read_head(socket).await;
    let length = request
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    if socket.read_exact(&mut body).await.is_ok() {
        request.push_str(std::str::from_utf8(&body).unwrap());
    }
    request
}

/// Reads a request up to the empty line, and nothing of what comes after it.
pub(crate) async fn read_head<S: tokio::io::AsyncRead + Unpin>(socket: &mut S) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte.into()),
            Err(_) => break,
        }
    }
    head
}
