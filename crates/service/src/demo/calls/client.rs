//! Submits calls and asks for their outcomes, as a program does whose service may die at any time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::books;
use super::event::Event;
use super::target::Target;
use crate::demo::plan::Plan;

/// Until we ask again, if nobody answered or there was no outcome yet.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One of several that share the calls.
pub(super) struct Client {
    pub(super) plan: Plan,
    /// Where the calls go.
    pub(super) target: SocketAddr,
    /// Where the service listens, if it lives.
    pub(super) api: watch::Receiver<Option<SocketAddr>>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) clock: SystemClock,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Value,
}

impl Client {
    /// Submits every `step`-th call from `first` on, each a moment before it is due, and asks how
    /// they ended. Ends early if nobody listens any more.
    pub(super) async fn run(self, first: u32, step: usize) {
        let mut accepted = Vec::new();
        for n in (first..self.plan.timers()).step_by(step) {
            self.clock.sleep_until(self.plan.asked_at(n)).await;
            match self.submit(n).await {
                Some(path) => accepted.push((n, path)),
                None => return,
            }
        }
        for (n, path) in accepted {
            self.clock.sleep_until(self.plan.due_at(n)).await;
            if !self.follow(n, &path).await {
                return;
            }
        }
    }

    /// Submits a call, as often as it takes, and returns its path.
    async fn submit(&self, n: u32) -> Option<String> {
        let tenant = self.plan.tenant(n);
        let path = format!("/api/tenants/{tenant}/service-calls");
        let submission = json!({
            "name": format!("call {n}"),
            "dueAt": self.plan.due_at(n),
            // By this the service knows a submission that comes again.
            "idempotencyKey": format!("demo-{n}"),
            "requestSpec": {"method": "GET", "url": Target::url(self.target, n as usize)},
        });
        let mut is_again = false;
        loop {
            // While it is dead, nobody is asked: that would count as often as one likes.
            let api = self.api().await?;
            if is_again {
                self.tell(Event::SentAgain).await?;
            }
            is_again = true;
            match self.ask(api, "POST", &path, Some(&submission)).await {
                Some(Answer { status: 202, body }) => {
                    let Some(id) = body["serviceCallId"].as_str() else {
                        let nonsense = format!("it accepted call {n} without an id: {body}");
                        return self.refused(nonsense).await;
                    };
                    self.tell(Event::Accepted { n: n as usize }).await?;
                    return Some(format!("{path}/{id}"));
                }
                // It is about to end, or has not begun.
                Some(Answer { status: 503, .. }) | None => self.clock.sleep_for(PAUSE).await,
                Some(Answer { status, body }) => {
                    let what = format!("it answers {status} to call {n}: {body}");
                    return self.refused(what).await;
                }
            }
        }
    }

    /// Asks until the call has its outcome. Returns whether to go on.
    async fn follow(&self, n: u32, path: &str) -> bool {
        loop {
            let Some(api) = self.api().await else {
                return false;
            };
            match self.ask(api, "GET", path, None).await {
                Some(Answer { status: 200, body }) => {
                    let status = body["status"].as_str().unwrap_or_default();
                    let kind = body["outcome"]["errorMeta"]["kind"].as_str();
                    if let Some(ending) = books::ending(status, kind) {
                        let n = n as usize;
                        return self.tell(Event::Ended { n, ending }).await.is_some();
                    }
                }
                Some(Answer { status: 503, .. }) | None => {}
                Some(Answer { status, body }) => {
                    let what = format!("it answers {status} to a look at call {n}: {body}");
                    self.refused(what).await;
                    return false;
                }
            }
            self.clock.sleep_for(PAUSE).await;
        }
    }

    /// Waits until the service lives; `None` if the demo is over.
    async fn api(&self) -> Option<SocketAddr> {
        let mut api = self.api.clone();
        let found = api.wait_for(Option::is_some).await;
        found.ok().and_then(|api| *api)
    }

    async fn tell(&self, event: Event) -> Option<()> {
        self.events.send(event).await.ok()
    }

    async fn refused(&self, what: String) -> Option<String> {
        self.tell(Event::Refused(what)).await;
        None
    }

    /// Asks, and gives `None` if no whole answer comes: the service may have been killed.
    async fn ask(
        &self,
        api: SocketAddr,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let asked = exchange(api, method, path, body);
        let answer = tokio::select! {
            answer = asked => answer.ok()?,
            () = self.clock.sleep_for(PATIENCE) => return None,
        };
        read(&answer)
    }
}

async fn exchange(
    api: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(api).await?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n");
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let kind = "Content-Type: application/json";
    let request = match length {
        0 => format!("{head}\r\n"),
        _ => format!("{head}{kind}\r\nContent-Length: {length}\r\n\r\n{body}"),
    };
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// An answer that came whole: what was cut off is no JSON.
fn read(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = serde_json::from_str(body).ok()?;
    Some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use punctual_domain::Timestamp;
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::Output;
    use crate::demo::args::DemoArgs;

    /// Reads one request, and answers it unless there is no answer. Returns the request.
    async fn answer_next(service: &TcpListener, answer: Option<(u16, Value)>) -> String {
        let (mut stream, _) = service.accept().await.unwrap();
        let mut request = vec![0; 4_096];
        let length = stream.read(&mut request).await.unwrap();
        if let Some((status, body)) = answer {
            let answer = format!("HTTP/1.1 {status} X\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        String::from_utf8(request[..length].to_vec()).unwrap()
    }

    /// One call that has long been due.
    fn plan() -> Plan {
        let args = DemoArgs {
            timers: 1,
            calls: Some(1),
            seconds: 1,
            tenants: 1,
            kill: false,
            keep: false,
            output: Output::Json,
        };
        Plan::new(&args, Timestamp::MIN).unwrap()
    }

    #[tokio::test]
    async fn what_got_no_answer_is_submitted_again_and_followed_to_its_end() {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, mut events) = mpsc::channel(10);
        let api = watch::Sender::new(Some(service.local_addr().unwrap()));
        let client = Client {
            plan: plan(),
            target: service.local_addr().unwrap(),
            api: api.subscribe(),
            events: sender,
            clock: SystemClock::start().unwrap(),
        };
        let running = tokio::spawn(client.run(0, 1));
        let lost = answer_next(&service, None).await;
        answer_next(&service, Some((503, json!({})))).await;
        let again = answer_next(&service, Some((202, json!({"serviceCallId": "x"})))).await;
        assert_eq!(lost, again);
        assert!(again.contains(r#""idempotencyKey":"demo-0""#), "{again}");
        answer_next(&service, Some((200, json!({"status": "Running"})))).await;
        answer_next(&service, None).await;
        let look = answer_next(&service, Some((200, json!({"status": "Succeeded"})))).await;
        let path = "GET /api/tenants/demo-1/service-calls/x ";
        assert!(look.starts_with(path), "{look}");
        running.await.unwrap();
        let mut told = Vec::new();
        while let Some(event) = events.recv().await {
            told.push(format!("{event:?}"));
        }
        let ended = "Ended { n: 0, ending: Succeeded }";
        let again = "SentAgain";
        assert_eq!(told, [again, again, "Accepted { n: 0 }", ended]);
    }

    #[tokio::test]
    async fn a_refusal_is_told_and_ends_it() {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, mut events) = mpsc::channel(10);
        let api = watch::Sender::new(Some(service.local_addr().unwrap()));
        let client = Client {
            plan: plan(),
            target: service.local_addr().unwrap(),
            api: api.subscribe(),
            events: sender,
            clock: SystemClock::start().unwrap(),
        };
        let running = tokio::spawn(client.run(0, 1));
        answer_next(&service, Some((409, json!({"title": "no"})))).await;
        running.await.unwrap();
        let told = format!("{:?}", events.recv().await);
        assert!(told.contains("409") && told.contains("Refused"), "{told}");
        assert!(events.recv().await.is_none());
    }

    #[test]
    fn an_answer_counts_only_if_it_came_whole() {
        let whole = "HTTP/1.1 202 Accepted\r\nX: y\r\n\r\n{\"a\":1}";
        let answer = Answer {
            status: 202,
            body: json!({"a": 1}),
        };
        assert_eq!(read(whole.as_bytes()), Some(answer));
        for length in 0..whole.len() {
            let part = &whole.as_bytes()[..length];
            assert_eq!(read(part), None, "{length}");
        }
    }
}
