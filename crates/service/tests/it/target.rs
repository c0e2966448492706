//! A target of calls on this machine, which writes down what it gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) at: Timestamp,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A small HTTP server: `/status/N` answers N, `/slow/MS` after a while, `/echo` what it got,
/// anything else 200.
pub(crate) struct Target {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        let clock = SystemClock::start().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, clock) = (Arc::clone(&shared), clock.clone());
                std::thread::spawn(move || answer(stream, &shared, &clock));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, seen: &Mutex<Vec<Request>>, clock: &SystemClock) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let at = clock.now();
    let mut parts = line.split(' ');
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = Request {
        at,
        method,
        path: path.clone(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let echo = format!("{request:?}");
    seen.lock().unwrap().push(request);
    let (mut status, mut text) = (200, "hello");
    if let Some(wanted) = path.strip_prefix("/status/") {
        status = wanted.split('?').next()?.parse().ok()?;
    } else if let Some(pause) = path.strip_prefix("/slow/") {
        let millis = pause.split(['/', '?']).next()?.parse().ok()?;
        // A thread of its own waits here, for nobody but the one who asked.
        std::thread::park_timeout(Duration::from_millis(millis));
    } else if path.starts_with("/echo") {
        text = &echo;
    }
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nX-Seen: yes\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .ok()
}
