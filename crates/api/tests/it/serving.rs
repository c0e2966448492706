//! Real connections: slow, half-open, many, and at the end.

use std::net::SocketAddr;
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_memory::faults::Fault;
use punctual_api::{ApiSettings, Served, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{CALLS, World, submission};

/// A server on a port of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Served>,
}

impl Server {
    pub(crate) async fn start(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let parts = world.parts.clone();
        let shutdown = async move {
            stopped.await.ok();
        };
        let serving = serve(
            listener,
            world.router(),
            parts.settings,
            parts.clock,
            shutdown,
        );
        Self {
            address,
            stop,
            ended: tokio::spawn(serving),
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        exchange(&mut self.connect().await, request.as_bytes()).await
    }
}

/// Sends, and reads all that comes until the other side closes.
pub(crate) async fn exchange(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn post(length: usize) -> String {
    format!(
        "POST {CALLS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n"
    )
}

/// Lets time pass, in steps, until something has happened.
pub(crate) async fn until<T>(
    clock: &FakeClock,
    step: Duration,
    happens: impl Future<Output = T>,
) -> T {
    let passing = async {
        for _ in 0..100_000 {
            clock.advance(step).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        value = happens => value,
        () = passing => panic!("it has not happened"),
    }
}

pub(crate) fn with(change: impl FnOnce(&mut ApiSettings)) -> World {
    let mut world = World::new();
    change(&mut world.parts.settings);
    world
}

#[tokio::test]
async fn any_number_of_half_open_connections_leaves_health_alone() {
    let world = with(|settings| settings.connections = 64);
    let server = Server::start(&world).await;
    let mut open = Vec::new();
    for number in 0..2_000 {
        let mut stream = server.connect().await;
        // Some say nothing, some begin, some announce a body and keep it. The server may have cut
        // them off by then.
        let begun = match number % 3 {
            0 => String::new(),
            1 => "GET /healthz HTTP/1.1\r\nX-Slow:".to_owned(),
            _ => format!("{}\r\n{{", post(100)),
        };
        stream.write_all(begun.as_bytes()).await.ok();
        open.push(stream);
        if number % 100 == 0 {
            let answer = server.get("/healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{number}: {answer}");
        }
    }
    let answer = server.get("/healthz").await;
    assert!(answer.contains("{\"status\":\"ok\"}"), "{answer}");
    let answer = server.get(CALLS).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn health_is_answered_while_all_slots_are_taken() {
    let world = with(|settings| {
        settings.connections = 8;
        settings.requests = 4;
    });
    let long = Duration::from_hours(1);
    world.faults.decide(move |_| Some(Fault::DelayBefore(long)));
    let server = Server::start(&world).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        let request = format!("GET {CALLS} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok();
        open.push(stream);
        let answer = server.get("/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn a_request_that_drips_is_given_up() {
    let world = World::new();
    let server = Server::start(&world).await;
    for begun in ["", "GET /healthz HTTP/1.1\r\nX-Slow:"] {
        let mut stream = server.connect().await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let step = Duration::from_secs(11);
        let read = stream.read_to_end(&mut answer);
        until(&world.clock, step, read).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }
    let mut stream = server.connect().await;
    let request = format!("{}\r\n{{", post(100));
    let pending = exchange(&mut stream, request.as_bytes());
    let answer = until(&world.clock, Duration::from_secs(31), pending).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let mut world = with(|settings| settings.drain = Duration::from_hours(24 * 365));
    let much = "x".repeat(64 * 1_024 * 1_024);
    world.parts.metrics = std::sync::Arc::new(move || much.clone());
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    server.stop.send(()).unwrap();
    let ended = until(&world.clock, Duration::from_secs(11), server.ended).await;
    // Without the limit the drain would have been waited for to its end.
    assert_eq!(ended.unwrap(), Served { cut_off: 0 });
}

#[tokio::test]
async fn one_connection_serves_several_requests() {
    let world = World::new();
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let keep = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = exchange(&mut stream, format!("{keep}{keep}{last}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_over_the_wire() {
    let world = World::new();
    let server = Server::start(&world).await;
    let long = 3 * 1_024 * 1_024;
    let request = format!("{}\r\n{}", post(long), "x".repeat(long));
    let answer = exchange(&mut server.connect().await, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A client that waits for 100 Continue need not send.
    let request = format!("{}Expect: 100-continue\r\n\r\n", post(long));
    let answer = exchange(&mut server.connect().await, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let body = submission().to_string();
    let request = format!("{}Expect: 100-continue\r\n\r\n{body}", post(body.len()));
    let answer = exchange(&mut server.connect().await, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
    assert!(answer.contains("HTTP/1.1 202"), "{answer}");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let world = World::new();
    let server = Server::start(&world).await;
    let long = "x".repeat(300_000);
    let request = format!("GET /healthz HTTP/1.1\r\nConnection: close\r\nX: {long}\r\n\r\n");
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

/// A server with a request under way that ends after so long.
async fn with_a_slow_request(long: Duration) -> (World, Server, TcpStream) {
    let world = with(|settings| settings.request_timeout = Duration::from_hours(2));
    let begun = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = std::sync::Arc::clone(&begun);
    world.faults.decide(move |_| {
        notify.notify_one();
        Some(Fault::DelayBefore(long))
    });
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let request = format!("GET {CALLS} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    begun.notified().await;
    (world, server, stream)
}

#[tokio::test]
async fn what_is_under_way_is_answered_before_the_end() {
    let (world, server, mut stream) = with_a_slow_request(Duration::from_secs(5)).await;
    let mut idle = server.connect().await;
    server.stop.send(()).unwrap();
    let ended = until(&world.clock, Duration::from_secs(1), server.ended).await;
    assert_eq!(ended.unwrap(), Served { cut_off: 0 });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0, "closed");
    TcpStream::connect(server.address).await.unwrap_err();
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_after_the_drain() {
    let (world, server, mut stream) = with_a_slow_request(Duration::from_hours(1)).await;
    server.stop.send(()).unwrap();
    let ended = until(&world.clock, Duration::from_secs(1), server.ended).await;
    assert_eq!(ended.unwrap(), Served { cut_off: 1 });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    assert!(answer.is_empty());
}
