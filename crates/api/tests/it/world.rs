//! An API over adapters in memory, and the requests of its tests.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{FakeClock, MemoryCallStore, MemoryTimerStore, SequentialIds};
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_api::{
    ApiParts, ApiSettings, CallsApi, ReadinessCheck, TimersApi, Tokens, hash_token, router,
};
use punctual_ports::{CallStores, ClaimedWork, ClockPort, IdPort, Instance};
use punctual_workflows::calls::{CallPorts, CallSettings, ReadCalls, SubmitCalls};
use punctual_workflows::{ScheduleTimers, TimerPorts};
use serde_json::{Value, json};

pub(crate) const ID: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
pub(crate) const OTHER_ID: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8f";
pub(crate) const NOW: &str = "2026-11-16T12:00:00.000Z";

/// An API, and what stands behind it.
pub(crate) struct World {
    pub(crate) parts: ApiParts,
    pub(crate) clock: FakeClock,
    pub(crate) ports: CallPorts,
    /// The timers on their own.
    pub(crate) timers: MemoryTimerStore,
    pub(crate) faults: Faults,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = FakeClock::new(NOW.parse().unwrap());
        Self::on(Arc::new(clock.clone()), clock)
    }

    /// With a clock for deadlines, and one for whoever wants to move it.
    pub(crate) fn on(deadlines: Arc<dyn ClockPort>, clock: FakeClock) -> Self {
        let faults = Faults::new(Arc::clone(&deadlines));
        let ids: Arc<dyn IdPort> = Arc::new(SequentialIds::new());
        let bus = InProcessBus::new(Handlers::Inline);
        let store = Arc::new(MemoryCallStore::new());
        let ports = CallPorts::new(
            Arc::new(clock.clone()),
            Arc::clone(&ids),
            Arc::new(bus.clone()),
            CallStores::new(Faulty::new(Arc::clone(&store), &faults)),
            Arc::new(store.timers()),
        );
        let timers = MemoryTimerStore::new();
        let timer_ports = TimerPorts::new(
            clock.clone(),
            SequentialIds::new(),
            Faulty::new(Arc::new(timers.clone()), &faults),
            bus,
        );
        let calls = CallsApi {
            submit: SubmitCalls::new(&ports, CallSettings::default()),
            read: ReadCalls::new(&ports),
        };
        let api = ApiParts {
            calls: Some(calls),
            timers: Some(TimersApi {
                schedule: ScheduleTimers::new(&timer_ports),
                timers: timer_ports.persistence,
            }),
            tokens: Tokens::none(),
            readiness: Arc::new(|| {
                Box::pin(async {
                    let (name, problem) = ("database", None);
                    vec![ReadinessCheck { name, problem }]
                })
            }),
            instances: Arc::new(|| Box::pin(async { Ok(vec![instance()]) })),
            metrics: Arc::new(|| "# no metrics\n".to_owned()),
            ids,
            clock: deadlines,
            settings: ApiSettings::default(),
        };
        Self {
            parts: api,
            clock,
            ports,
            timers,
            faults,
        }
    }

    /// With tokens `of-a`, `of-b` and `of-all`.
    pub(crate) fn with_tokens(mut self) -> Self {
        let lines = [("a", "of-a"), ("b", "of-b"), ("*", "of-all")]
            .map(|(tenant, token)| format!("{tenant}:{}\n", hash_token(token)));
        self.parts.tokens = Tokens::parse(&lines.concat()).unwrap();
        self
    }

    pub(crate) fn router(&self) -> Router {
        router(self.parts.clone())
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Reply {
        call(&self.router(), request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call(request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.call(request(Method::DELETE, path)).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Reply {
        self.call(with_body(method, path, body.to_string())).await
    }

    pub(crate) async fn submit(&self, body: &Value) -> Reply {
        self.send(Method::POST, CALLS, body).await
    }
}

pub(crate) const CALLS: &str = "/api/tenants/a/service-calls";

/// The instance that the world is.
fn instance() -> Instance {
    let now = NOW.parse().unwrap();
    Instance {
        id: ID.parse().unwrap(),
        name: "here 7".to_owned(),
        version: "1.2.3".to_owned(),
        modules: "api,timer".to_owned(),
        started_at: now,
        heartbeat_at: now,
        clock_offset_millis: -12,
        claimed: Some(ClaimedWork {
            timers: 3,
            attempts: 2,
            messages: 1,
        }),
    }
}

/// A submission with nothing wrong.
pub(crate) fn submission() -> Value {
    json!({
        "name": "remind Ada",
        "dueAt": "2026-12-24T18:00:00Z",
        "requestSpec": { "method": "GET", "url": "http://example.com/" },
    })
}

pub(crate) fn request(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(Body::empty()).unwrap()
}

pub(crate) fn with_body(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request(method, path);
    *request.body_mut() = body.into();
    let json = "application/json".parse().unwrap();
    request.headers_mut().insert("content-type", json);
    request
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) async fn call(router: &Router, request: Request<Body>) -> Reply {
    let service = TowerToHyperService::new(router.clone());
    let response = service.call(request).await.unwrap();
    let (head, body) = response.into_parts();
    Reply {
        status: head.status,
        headers: head.headers,
        body: to_bytes(body, usize::MAX).await.unwrap(),
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The answer has this status, and is a problem if it is an error.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        let said = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.status.as_u16(), status, "{said}");
        assert_eq!(self.header("x-correlation-id").len(), 36, "{said}");
        assert_eq!(self.header("x-content-type-options"), "nosniff");
        assert_eq!(self.header("cache-control"), "no-store");
        if status >= 400 && said.contains("urn:punctual") {
            assert_eq!(self.header("content-type"), "application/problem+json");
            let problem = self.json();
            assert_eq!(problem["status"], status, "{said}");
            let id = self.header("x-correlation-id");
            assert_eq!(problem["correlationId"], id, "{said}");
            assert!(problem["detail"].as_str().unwrap().len() > 10, "{said}");
        }
        self
    }

    /// The pointers of what is wrong.
    pub(crate) fn pointers(&self) -> Vec<String> {
        let problem = self.json();
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let pointer = |error: &Value| error["pointer"].as_str().unwrap().to_owned();
        errors.iter().map(pointer).collect()
    }

    /// The body without what differs from request to request.
    pub(crate) fn without_correlation(&self) -> String {
        let text = String::from_utf8(self.body.to_vec()).unwrap();
        text.replace(self.header("x-correlation-id"), "")
    }
}
