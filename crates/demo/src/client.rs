//! A client of the service: submits calls and reads their outcomes, though the service may die at any
//! time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use crate::Failure;
use crate::engine::Event;
use crate::ledger::Outcome;
use crate::plan::Plan;
use crate::target;

/// Pause before the next request, if no response came or there was no outcome yet.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum time until a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One of several clients that share the calls.
pub(crate) struct Client {
    pub(crate) plan: Plan,
    /// Where the calls go.
    pub(crate) target: SocketAddr,
    /// Where the service listens, if it lives.
    pub(crate) api: watch::Receiver<Option<SocketAddr>>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) clock: SystemClock,
}

impl Client {
    /// Submits every `step`-th call from `first` on, each a moment before it is due, and reads how
    /// they ended. Ends early if the receiver is closed or the service refuses.
    pub(crate) async fn run(self, first: u32, step: usize) {
        // Whatever ended it early is reported already.
        let _ = self.submit_and_follow(first, step).await;
    }

    async fn submit_and_follow(&self, first: u32, step: usize) -> Option<()> {
        let mut accepted = Vec::new();
        for n in (first..self.plan.count).step_by(step) {
            self.clock.sleep_until(self.plan.submit_at(n)).await;
            accepted.push((n, self.submit(n).await?));
        }
        for (n, path) in accepted {
            self.clock.sleep_until(self.plan.due_at(n)).await;
            self.follow(n, &path).await?;
        }
        Some(())
    }

    /// Submits a call and returns its path.
    async fn submit(&self, n: u32) -> Option<String> {
        let path = format!("/api/tenants/{}/service-calls", self.plan.tenant(n));
        let submission = json!({
            "name": format!("call {n}"),
            "dueAt": self.plan.due_at(n),
            // By this the service knows a submission that comes again.
            "idempotencyKey": format!("demo-{n}"),
            "requestSpec": {"method": "GET", "url": target::url(self.target, n)},
        });
        let body = self.request("POST", &path, Some(&submission), 202).await?;
        let Some(id) = body["serviceCallId"].as_str() else {
            return self
                .fail(format!("it accepted call {n} without an id: {body}"))
                .await;
        };
        self.send(Event::Acknowledged(n..n + 1)).await?;
        Some(format!("{path}/{id}"))
    }

    /// Reads the call until it has its outcome.
    async fn follow(&self, n: u32, path: &str) -> Option<()> {
        loop {
            let body = self.request("GET", path, None, 200).await?;
            let status = body["status"].as_str().unwrap_or_default();
            let kind = body["outcome"]["errorMeta"]["kind"].as_str();
            if let Some(outcome) = Outcome::parse(status, kind) {
                return self.send(Event::Completed { n, outcome }).await;
            }
            self.clock.sleep_for(PAUSE).await;
        }
    }

    /// Sends a request, as often as it takes, and returns the body of the response with the status
    /// `expected`.
    async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        expected: u16,
    ) -> Option<Value> {
        let mut is_repeated = false;
        loop {
            // While it is dead, nothing is sent: that would count as often as one likes.
            let mut api = self.api.clone();
            let api = (*api.wait_for(Option::is_some).await.ok()?)?;
            if is_repeated && body.is_some() {
                self.send(Event::Resubmitted).await?;
            }
            is_repeated = true;
            let response = tokio::select! {
                response = exchange(api, method, path, body) => response.ok(),
                () = self.clock.sleep_for(TIMEOUT) => None,
            };
            match response.and_then(|bytes| parse(&bytes)) {
                Some((status, body)) if status == expected => return Some(body),
                // It was killed, is about to end, or has not started.
                None | Some((503, _)) => self.clock.sleep_for(PAUSE).await,
                Some((status, body)) => {
                    let what = format!("it responds {status} to {method} {path}: {body}");
                    return self.fail(what).await;
                }
            }
        }
    }

    async fn send(&self, event: Event) -> Option<()> {
        self.events.send(event).await.ok()
    }

    async fn fail<T>(&self, what: String) -> Option<T> {
        let what = format!("the service does not do as it should: {what}");
        self.send(Event::Failed(Failure::Failed(what))).await;
        None
    }
}

async fn exchange(
    api: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(api).await?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let content = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n{content}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(response)
}

/// The status and body of a response that came whole: what was cut off is no JSON.
fn parse(response: &[u8]) -> Option<(u16, Value)> {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

#[cfg(test)]
mod tests {
    use punctual_domain::Timestamp;
    use tokio::net::TcpListener;

    use super::*;
    use crate::args::tests::args;

    /// A client of one call that has long been due, against a service that gives these responses to
    /// its requests, or none. Returns the requests and the events.
    async fn run(responses: &[Option<(u16, Value)>]) -> (Vec<String>, Vec<String>) {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, mut receiver) = mpsc::channel(10);
        let address = service.local_addr().unwrap();
        let api = watch::Sender::new(Some(address));
        let client = Client {
            plan: Plan::new(&args("--calls 1"), Timestamp::MIN).unwrap(),
            target: address,
            api: api.subscribe(),
            events: sender,
            clock: SystemClock::start().unwrap(),
        };
        let running = tokio::spawn(client.run(0, 1));
        let mut requests = Vec::new();
        for response in responses {
            let (mut stream, _) = service.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            let length = stream.read(&mut request).await.unwrap();
            requests.push(String::from_utf8(request[..length].to_vec()).unwrap());
            if let Some((status, body)) = response {
                let response = format!("HTTP/1.1 {status} X\r\n\r\n{body}");
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
        running.await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(format!("{event:?}"));
        }
        (requests, events)
    }

    #[tokio::test]
    async fn what_got_no_response_is_submitted_again_and_followed_to_its_end() {
        let (requests, events) = run(&[
            None,
            Some((503, json!({}))),
            Some((202, json!({"serviceCallId": "x"}))),
            Some((200, json!({"status": "Running"}))),
            None,
            Some((200, json!({"status": "Succeeded"}))),
        ])
        .await;
        assert_eq!(requests[0], requests[2]);
        let key = r#""idempotencyKey":"demo-0""#;
        assert!(requests[2].contains(key), "{}", requests[2]);
        let path = "GET /api/tenants/demo-1/service-calls/x ";
        assert!(requests[5].starts_with(path), "{}", requests[5]);
        let completed = "Completed { n: 0, outcome: Succeeded }";
        let again = "Resubmitted";
        assert_eq!(events, [again, again, "Acknowledged(0..1)", completed]);
    }

    #[tokio::test]
    async fn a_refusal_is_reported_and_ends_it() {
        let (_, events) = run(&[Some((409, json!({"title": "no"})))]).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].contains("409") && events[0].contains("Failed"),
            "{events:?}"
        );
    }

    #[test]
    fn a_response_counts_only_if_it_came_whole() {
        let whole = "HTTP/1.1 202 Accepted\r\nX: y\r\n\r\n{\"a\":1}";
        assert_eq!(parse(whole.as_bytes()), Some((202, json!({"a": 1}))));
        for length in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..length]), None, "{length}");
        }
    }
}
