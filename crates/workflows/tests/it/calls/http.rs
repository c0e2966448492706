//! The outside world of calls: notes every request that it gets, and answers as it is told.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use punctual_adapters_memory::FakeClock;
use punctual_domain::service_call::ErrorKind;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{ClockPort, HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};

/// What the target does with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behaviour {
    /// Answers with this status after a while.
    Answer(u16, Duration),
    /// Never answers.
    Hang,
    /// Cannot be reached.
    Fail(ErrorKind),
    /// Our own client breaks.
    Panic,
}

pub(crate) const OK: Behaviour = Behaviour::Answer(200, Duration::ZERO);

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub attempt: HttpAttempt,
    pub at: Timestamp,
}

type Script = Arc<dyn Fn(&HttpAttempt) -> Behaviour + Send + Sync>;

pub(crate) struct FakeHttp {
    clock: FakeClock,
    script: Mutex<Script>,
    requests: Mutex<Vec<Request>>,
    under_way: Arc<Mutex<UnderWay>>,
}

/// How many requests are under way, and were at most: altogether, and by tenant and by host.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay {
    now: BTreeMap<String, usize>,
    most: BTreeMap<String, usize>,
}

/// A request under way, until it is answered or dropped.
struct Counted {
    under_way: Arc<Mutex<UnderWay>>,
    names: [String; 3],
}

impl Counted {
    fn new(under_way: &Arc<Mutex<UnderWay>>, attempt: &HttpAttempt) -> Self {
        let tenant = format!("tenant {}", attempt.key.tenant_id);
        let host = format!("host {}", attempt.request.url.host());
        let names = ["all".to_owned(), tenant, host];
        let mut counts = under_way.lock().unwrap();
        for name in &names {
            let now = counts.now.entry(name.clone()).or_default();
            *now += 1;
            let now = *now;
            let most = counts.most.entry(name.clone()).or_default();
            *most = now.max(*most);
        }
        Self {
            under_way: Arc::clone(under_way),
            names,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.under_way.lock().unwrap();
        for name in &self.names {
            *counts.now.get_mut(name).unwrap() -= 1;
        }
    }
}

impl FakeHttp {
    pub(crate) fn new(clock: &FakeClock) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            script: Mutex::new(Arc::new(|_| OK)),
            requests: Mutex::default(),
            under_way: Arc::default(),
        })
    }

    /// From now on every request is treated like this.
    pub(crate) fn does(&self, behaviour: Behaviour) {
        self.decides(move |_| behaviour);
    }

    pub(crate) fn decides(
        &self,
        script: impl Fn(&HttpAttempt) -> Behaviour + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, key: &TimerKey) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|it| it.attempt.key == *key).count()
    }

    /// The most that were under way at once of `all`, `tenant …` or `host …`.
    pub(crate) fn most(&self, name: &str) -> usize {
        let counts = self.under_way.lock().unwrap();
        counts.most.get(name).copied().unwrap_or_default()
    }

    fn reply(&self, behaviour: Behaviour) -> BoxFuture<'static, Result<HttpResponse, HttpFailure>> {
        let clock = self.clock.clone();
        Box::pin(async move {
            match behaviour {
                Behaviour::Answer(status, after) => {
                    clock.sleep_for(after).await;
                    Ok(HttpResponse {
                        status,
                        headers: vec![("X-Kind".to_owned(), "fake".to_owned())],
                        body: b"hello".to_vec(),
                        truncated: false,
                    })
                }
                Behaviour::Hang => pending().await,
                Behaviour::Fail(kind) => Err(HttpFailure {
                    kind,
                    message: "no luck".to_owned(),
                }),
                Behaviour::Panic => panic!("the client has a bug"),
            }
        })
    }
}

#[async_trait]
impl HttpClientPort for FakeHttp {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        let _counted = Counted::new(&self.under_way, &attempt);
        let behaviour = (self.script.lock().unwrap().clone())(&attempt);
        let at = self.clock.now();
        self.requests.lock().unwrap().push(Request { attempt, at });
        self.reply(behaviour).await
    }
}
