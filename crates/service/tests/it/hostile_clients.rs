//! Clients that mean harm: calls are made in time beside them, and health is answered.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::running::{Home, PATIENCE};
use crate::target::Target;

/// Hostile clients, until they are dropped.
struct Hostile {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Connections that ask on and on and take no answer, and bodies that never come.
    fn start(to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(64);
        let slow = "POST /api/tenants/slow/service-calls HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\nContent-Length: 2000000\r\n\r\n{";
        let threads = [(ask, 500, true), (slow.to_owned(), 40, false)].map(|(says, count, on)| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut open: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
                while !stop.load(Ordering::Relaxed) {
                    for place in &mut open {
                        go_on(place, to, &says, on);
                    }
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            })
        });
        Self {
            stop,
            threads: threads.into(),
        }
    }
}

/// Says more on a connection, or opens it anew.
fn go_on(place: &mut Option<TcpStream>, to: SocketAddr, says: &str, on: bool) {
    let Some(stream) = place else {
        let opened = TcpStream::connect_timeout(&to, Duration::from_secs(1));
        *place = opened.ok().filter(|stream| {
            let mut stream: &TcpStream = stream;
            stream.set_nonblocking(true).is_ok() && stream.write(says.as_bytes()).is_ok()
        });
        return;
    };
    let sent = if on {
        stream.write(says.as_bytes())
    } else {
        stream.peek(&mut [0; 1])
    };
    let lives = match sent {
        Ok(bytes) => bytes > 0 && on,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    if !lives {
        *place = None;
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

const CALLS: u32 = 40;

/// Submits calls that are due one after the other, and says when each was made.
fn submit_calls(api: Api, target: &Target, clock: &SystemClock) -> Vec<Timestamp> {
    let first = clock.now().saturating_add(Duration::from_secs(2));
    (0..CALLS)
        .map(|number| {
            let due_at = first.saturating_add(Duration::from_millis(100) * number);
            let url = target.url(&format!("/made/{number}"));
            let call = json!({
                "name": "on time", "dueAt": due_at,
                "requestSpec": { "method": "GET", "url": url },
            });
            let answer = api.ask("POST", "/api/tenants/good/service-calls", Some(&call));
            assert_eq!(answer.status, 202, "{answer:?}");
            due_at
        })
        .collect()
}

#[test]
fn calls_are_made_in_time_and_health_is_answered_beside_hostile_clients() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let clock = SystemClock::start().unwrap();
    let hostile = Hostile::start(api.0);
    std::thread::park_timeout(Duration::from_secs(1));
    let mut slowest = Duration::ZERO;
    let mut healthy = || {
        let began = clock.monotonic();
        let said: Value = api.get("/healthz");
        assert_eq!(said["status"], "ok");
        slowest = slowest.max(clock.monotonic().saturating_sub(began));
    };
    healthy();
    let due = submit_calls(api, &target, &clock);
    let give_up = clock.now().saturating_add(PATIENCE * 3);
    while target.seen().len() < due.len() {
        healthy();
        assert!(clock.now() < give_up, "{} were made", target.seen().len());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    drop(hostile);
    let latest = target.seen().into_iter().map(|seen| {
        let number: usize = seen.path.rsplit('/').next().unwrap().parse().unwrap();
        seen.at.since(due[number])
    });
    let latest = latest.max().unwrap();
    eprintln!("the latest call was {latest:?} late, health took {slowest:?} at most");
    assert!(latest < Duration::from_secs(2), "{latest:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
