//! Calls that were accepted and what came of them, written down by those who submit and by the target.
//!
//! It holds the service to this: each accepted call has one outcome, was requested at most once and not before
//! its due time, and exactly once if it succeeded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde_json::{Value, json};

use crate::api_client::{Answer, Api, clock};
use crate::kill::Random;
use crate::target::Target;

const TENANTS: [&str; 3] = ["t0", "t1", "t2"];
const PAUSE: Duration = Duration::from_millis(20);
/// After this long, another instance is asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// An accepted call.
#[derive(Debug, Clone)]
struct Accepted {
    tenant: &'static str,
    due_at: Timestamp,
    /// When we knew that it was.
    at: Timestamp,
}

/// The book. Clones are the same.
#[derive(Clone)]
pub(crate) struct CallLedger {
    target: Arc<Target>,
    clock: SystemClock,
    /// Where the service listens at the moment; in several places, if it is several instances.
    apis: Arc<Mutex<Vec<Api>>>,
    accepted: Arc<Mutex<BTreeMap<String, Accepted>>>,
    is_over: Arc<AtomicBool>,
    /// Number of calls that were begun, and of those that may be.
    numbers: Arc<AtomicU64>,
    allowed: Arc<AtomicU64>,
    /// Within how long calls are due.
    spread: Duration,
}

impl CallLedger {
    pub(crate) fn new(spread: Duration) -> Self {
        Self {
            target: Arc::new(Target::start()),
            clock: clock(),
            apis: Arc::default(),
            accepted: Arc::default(),
            is_over: Arc::default(),
            numbers: Arc::default(),
            allowed: Arc::new(AtomicU64::new(u64::MAX)),
            spread,
        }
    }

    pub(crate) fn listens_at(&self, apis: Vec<Api>) {
        *self.apis.lock().unwrap() = apis;
    }

    /// At most this number of calls may be submitted by now.
    pub(crate) fn allow(&self, count: u64) {
        self.allowed.store(count, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> usize {
        self.accepted().len()
    }

    fn accepted(&self) -> MutexGuard<'_, BTreeMap<String, Accepted>> {
        self.accepted.lock().unwrap()
    }

    /// Programs that submit, and send again, under the same key, what was not acknowledged.
    pub(crate) fn start_submitters(&self, count: u64, seed: u64) -> Vec<JoinHandle<()>> {
        let start = |n| {
            let (ledger, mut random) = (self.clone(), Random(seed + n));
            std::thread::spawn(move || {
                while !ledger.is_over.load(Ordering::SeqCst) {
                    if ledger.numbers.load(Ordering::SeqCst) < ledger.allowed.load(Ordering::SeqCst)
                    {
                        ledger.submit(&mut random);
                    } else {
                        std::thread::park_timeout(PAUSE);
                    }
                }
            })
        };
        (0..count).map(start).collect()
    }

    /// Ends them when each has what it has begun.
    pub(crate) fn end_submitters(&self, submitters: Vec<JoinHandle<()>>) {
        self.is_over.store(true, Ordering::SeqCst);
        for submitter in submitters {
            submitter.join().unwrap();
        }
    }

    fn submit(&self, random: &mut Random) {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        let tenant = TENANTS[usize::try_from(random.below(3)).unwrap()];
        let spread = u64::try_from(self.spread.as_millis()).unwrap();
        let after = Duration::from_millis(random.below(spread));
        let due_at = self.clock.now().saturating_add(after);
        let path = match random.below(4) {
            0 => format!("/slow/{}/{number}", random.below(300)),
            1 => format!("/status/500?{number}"),
            _ => format!("/ok/{number}"),
        };
        let call = json!({
            "name": format!("call {number}"), "dueAt": due_at, "idempotencyKey": format!("k{number}"),
            "requestSpec": {"method": "POST", "url": self.target.url(&path), "body": number.to_string()},
        });
        let route = format!("/api/tenants/{tenant}/service-calls");
        let mut turn = random.below(64);
        let id = loop {
            match self.ask(turn, "POST", &route, Some(&call)) {
                Some(answer) if answer.status == 202 => {
                    break answer.json()["serviceCallId"].as_str().unwrap().to_owned();
                }
                Some(answer) if answer.status != 503 => panic!("{answer:?}"),
                _ => std::thread::park_timeout(PAUSE),
            }
            turn += 1;
        };
        let at = self.clock.now();
        self.accepted().insert(id, Accepted { tenant, due_at, at });
    }

    /// Asks the one whose turn it is; `None` if it does not answer.
    fn ask(&self, turn: u64, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        let api = {
            let apis = self.apis.lock().unwrap();
            let turn = usize::try_from(turn).unwrap().checked_rem(apis.len())?;
            apis[turn]
        };
        api.try_ask_within(ANSWER_WITHIN, method, path, body)
    }

    /// Waits until every call has an outcome.
    pub(crate) fn settle(&self) -> BTreeMap<String, Value> {
        let accepted = self.accepted().clone();
        let give_up = self.clock.now().saturating_add(Duration::from_mins(3));
        let mut turn = 0;
        accepted
            .into_iter()
            .map(|(id, call)| {
                let path = format!("/api/tenants/{}/service-calls/{id}", call.tenant);
                loop {
                    turn += 1;
                    let answer = self.ask(turn, "GET", &path, None);
                    if let Some(answer) = &answer
                        && answer.status == 200
                        && answer.json()["outcome"].is_object()
                    {
                        break (id, answer.json());
                    }
                    assert!(self.clock.now() < give_up, "it has no outcome: {answer:?}");
                    std::thread::park_timeout(PAUSE);
                }
            })
            .collect()
    }

    /// Holds the outcomes against what the target got, and counts them. How late requests were comes with it:
    /// after the call was due and known to be accepted, in milliseconds: the median, the 99th percentile and the
    /// latest.
    pub(crate) fn check(
        &self,
        calls: &BTreeMap<String, Value>,
    ) -> (BTreeMap<String, usize>, [i64; 3]) {
        let accepted = self.accepted();
        let mut requests: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for request in self.target.seen() {
            // A request that was cut off by a kill has come all the same.
            requests.entry(request.path).or_default().push(request.at);
        }
        let (mut outcomes, mut late) = (BTreeMap::<String, usize>::new(), Vec::new());
        for (id, call) in calls {
            let url = call["requestSpec"]["url"].as_str().unwrap();
            let path = url.strip_prefix(&self.target.url("")).unwrap();
            let seen = requests.get(path).cloned().unwrap_or_default();
            let Accepted { due_at, at, .. } = accepted[id];
            assert!(
                seen.len() <= 1,
                "it was requested {} times: {call}",
                seen.len()
            );
            for request in &seen {
                assert!(*request >= due_at, "it was early: {call} {seen:?}");
                late.push(request.as_millis() - due_at.max(at).as_millis());
            }
            let status = call["status"].as_str().unwrap();
            if status == "Succeeded" {
                assert_eq!(seen.len(), 1, "it succeeded without a request: {call}");
            }
            let kind = call["outcome"]["errorMeta"]["kind"].as_str().unwrap_or("");
            *outcomes.entry(format!("{status} {kind}")).or_default() += 1;
        }
        assert!(outcomes.contains_key("Succeeded "), "{outcomes:?}");
        assert!(outcomes.contains_key("Failed HttpStatus"), "{outcomes:?}");
        late.sort_unstable();
        let at = |hundredth: usize| late[(late.len() - 1) * hundredth / 100].max(0);
        (outcomes, [at(50), at(99), at(100)])
    }
}
