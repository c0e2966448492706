//! Speaking to the service over HTTP, as a program that somebody wrote in an afternoon would.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde_json::{Value, json};

use crate::running::{Home, PATIENCE, Running};

/// The calls of the tenant that most tests use.
pub(crate) const CALLS: &str = "/api/tenants/demo/service-calls";
/// The states of a call that has an outcome.
pub(crate) const FINISHED: &[&str] = &["Succeeded", "Failed"];

pub(crate) fn clock() -> SystemClock {
    SystemClock::start().unwrap()
}

pub(crate) fn due_in(after: Duration) -> Timestamp {
    clock().now().next().saturating_add(after)
}

/// A call to be submitted.
pub(crate) fn call(url: &str, due_at: Timestamp) -> Value {
    json!({"name": "greet", "dueAt": due_at, "requestSpec": {"method": "GET", "url": url}})
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A service that listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Api(pub(crate) SocketAddr);

impl Api {
    /// Asks, and gives `None` if nobody answers: the service may be dead at the moment.
    pub(crate) fn try_ask(self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        self.try_send(method, path, &[], body.map(Value::to_string).as_deref())
    }

    /// The same, and gives up sooner: one that is suspended takes the connection and says nothing.
    pub(crate) fn try_ask_within(
        self,
        patience: Duration,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let body = body.map(Value::to_string);
        self.send_within(patience, method, path, &[], body.as_deref())
    }

    pub(crate) fn try_send(
        self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Option<Answer> {
        self.send_within(PATIENCE, method, path, headers, body)
    }

    fn send_within(
        self,
        patience: Duration,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Option<Answer> {
        let mut stream = TcpStream::connect_timeout(&self.0, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.0
        );
        for (name, value) in headers {
            let _ = write!(request, "{name}: {value}\r\n");
        }
        if let Some(body) = body {
            let length = body.len();
            let _ = write!(
                request,
                "Content-Type: application/json\r\nContent-Length: {length}\r\n"
            );
        }
        request.push_str("\r\n");
        request.push_str(body.unwrap_or_default());
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        read(&answer)
    }

    pub(crate) fn ask(self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.try_ask(method, path, body);
        answer.unwrap_or_else(|| panic!("nobody answers {method} {path}"))
    }

    /// A body that has to come with a good status.
    pub(crate) fn get(self, path: &str) -> Value {
        let answer = self.ask("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Submits a call that has to be accepted, and returns its id.
    pub(crate) fn submit(self, body: &Value) -> String {
        let answer = self.ask("POST", CALLS, Some(body));
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["serviceCallId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn call(self, id: &str) -> Value {
        self.get(&format!("{CALLS}/{id}"))
    }

    /// Polls a call until it is in one of these states.
    pub(crate) fn wait_for(self, id: &str, states: &[&str]) -> Value {
        self.wait_long_for(id, states, PATIENCE)
    }

    pub(crate) fn wait_long_for(self, id: &str, states: &[&str], patience: Duration) -> Value {
        let clock = clock();
        let give_up = clock.now().saturating_add(patience);
        loop {
            let call = self.call(id);
            if states.contains(&call["status"].as_str().unwrap()) {
                return call;
            }
            assert!(clock.now() < give_up, "it stays as it is: {call}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// An answer that came whole.
fn read(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let answer = Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let length: usize = answer
        .header("content-length")
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    (body.len() >= length).then_some(answer)
}

/// The service with service calls, on a port of its own, which may reach this machine.
pub(crate) fn calls_command(home: &Home) -> std::process::Command {
    let mut command = home.command("serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    command
}

/// Starts it and waits until it listens.
pub(crate) fn serve_calls(command: &mut std::process::Command) -> (Running, Api) {
    let mut serving = Running::start(command);
    let line = serving.wait_until_it_says(" service calls: ");
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["api"].as_str().unwrap().trim_start_matches("http://");
    (serving, Api(address.parse().unwrap()))
}
