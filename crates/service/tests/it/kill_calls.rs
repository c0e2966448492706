//! Kills the service in the middle of making calls, again and again, and asks the target what it got.
//!
//! `cargo xtask torture --calls --rounds N` runs this for as long as one likes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{Api, calls_command, serve_calls};
use crate::kill::Random;
use crate::running::{Home, Running};
use crate::target::Target;

const ROUNDS: usize = 8;
const TENANTS: [&str; 3] = ["t0", "t1", "t2"];
const SUBMITTERS: u64 = 4;

/// What was acknowledged: its tenant, and when it is due.
type Acknowledged = BTreeMap<String, (String, Timestamp)>;

struct Torture {
    home: Home,
    target: Target,
    clock: SystemClock,
    /// Where the service listens at the moment.
    api: Arc<Mutex<Option<Api>>>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    is_over: Arc<AtomicBool>,
    numbers: Arc<AtomicU64>,
}

impl Torture {
    fn new() -> Self {
        Self {
            home: Home::new(),
            target: Target::start(),
            clock: SystemClock::start().unwrap(),
            api: Arc::default(),
            acknowledged: Arc::default(),
            is_over: Arc::default(),
            numbers: Arc::default(),
        }
    }

    fn serve(&self) -> Running {
        let mut command = calls_command(&self.home);
        let (serving, api) = serve_calls(command.env("EXECUTION_TIMEOUT", "5000"));
        *self.api.lock().unwrap() = Some(api);
        serving
    }

    /// A program that submits, and sends again, under the same key, what was not acknowledged.
    fn submitter(&self, seed: u64) -> std::thread::JoinHandle<()> {
        let (api, acknowledged) = (Arc::clone(&self.api), Arc::clone(&self.acknowledged));
        let (is_over, numbers) = (Arc::clone(&self.is_over), Arc::clone(&self.numbers));
        let (clock, base) = (self.clock.clone(), self.target.url(""));
        std::thread::spawn(move || {
            let mut random = Random(seed);
            while !is_over.load(Ordering::SeqCst) {
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                let tenant = TENANTS[usize::try_from(random.below(3)).unwrap()];
                let due_at = clock
                    .now()
                    .saturating_add(Duration::from_millis(random.below(1_500)));
                let path = match random.below(4) {
                    0 => format!("/slow/{}/{number}", random.below(300)),
                    1 => format!("/status/500?{number}"),
                    _ => format!("/ok/{number}"),
                };
                let call = json!({
                    "name": format!("call {number}"), "dueAt": due_at, "idempotencyKey": format!("k{number}"),
                    "requestSpec": {"method": "POST", "url": format!("{base}{path}"), "body": number.to_string()},
                });
                let id = loop {
                    let now = *api.lock().unwrap();
                    let route = format!("/api/tenants/{tenant}/service-calls");
                    let answer = now.and_then(|api| api.try_ask("POST", &route, Some(&call)));
                    match answer {
                        Some(answer) if answer.status == 202 => {
                            break answer.json()["serviceCallId"].as_str().unwrap().to_owned();
                        }
                        Some(answer) if answer.status != 503 => panic!("{answer:?}"),
                        _ => std::thread::park_timeout(Duration::from_millis(20)),
                    }
                };
                acknowledged
                    .lock()
                    .unwrap()
                    .insert(id, (tenant.to_owned(), due_at));
            }
        })
    }

    fn call(&self, tenant: &str, id: &str) -> Value {
        let api = self.api.lock().unwrap().unwrap();
        api.get(&format!("/api/tenants/{tenant}/service-calls/{id}"))
    }

    /// Waits until no call is on its way any more.
    fn settle(&self) -> BTreeMap<String, Value> {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let give_up = self.clock.now().saturating_add(Duration::from_mins(2));
        acknowledged
            .into_iter()
            .map(|(id, (tenant, _))| {
                loop {
                    let call = self.call(&tenant, &id);
                    if call["outcome"].is_object() {
                        break (id, call);
                    }
                    assert!(self.clock.now() < give_up, "it has no end: {call}");
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            })
            .collect()
    }

    /// Each call was requested at most once, none before its time, and each success exactly once.
    fn check(&self, calls: &BTreeMap<String, Value>) -> BTreeMap<String, usize> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let mut requests: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for request in self.target.seen() {
            // A request that was cut off by a kill has come all the same.
            requests.entry(request.path).or_default().push(request.at);
        }
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for (id, call) in calls {
            let url = call["requestSpec"]["url"].as_str().unwrap();
            let path = url.strip_prefix(&self.target.url("")).unwrap();
            let seen = requests.get(path).cloned().unwrap_or_default();
            let due_at = acknowledged[id].1;
            assert!(
                seen.len() <= 1,
                "it was requested {} times: {call}",
                seen.len()
            );
            assert!(
                seen.iter().all(|at| *at >= due_at),
                "it was early: {call} {seen:?}"
            );
            let status = call["status"].as_str().unwrap();
            if status == "Succeeded" {
                assert_eq!(seen.len(), 1, "it succeeded without a request: {call}");
            }
            let kind = call["outcome"]["errorMeta"]["kind"].as_str().unwrap_or("");
            *outcomes.entry(format!("{status} {kind}")).or_default() += 1;
        }
        outcomes
    }
}

fn rounds() -> usize {
    let asked = std::env::var("PUNCTUAL_KILL_ROUNDS").ok();
    asked.map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

#[test]
fn killed_at_any_moment_no_call_is_made_twice_or_early_and_each_has_one_end() {
    let torture = Torture::new();
    let seed = torture.clock.now().as_millis().unsigned_abs();
    let submitters: Vec<_> = (0..SUBMITTERS)
        .map(|n| torture.submitter(seed + n))
        .collect();
    let mut random = Random(seed);
    let mut stops = 0;
    for round in 0..rounds() {
        let mut serving = torture.serve();
        std::thread::park_timeout(Duration::from_millis(300 + random.below(1_500)));
        // Every fifth time it is asked to stop in good order.
        if round % 5 == 4 {
            serving.signal(Signal::TERM);
            assert_eq!(serving.end().code, Some(0));
            stops += 1;
        } else {
            serving.kill();
        }
    }
    let _serving = torture.serve();
    torture.is_over.store(true, Ordering::SeqCst);
    for submitter in submitters {
        submitter.join().unwrap();
    }
    let calls = torture.settle();
    let outcomes = torture.check(&calls);
    println!(
        "{} calls, {} kills, {stops} stops: {outcomes:?}",
        calls.len(),
        rounds() - stops
    );
    assert!(calls.len() > 50, "there was no load: {}", calls.len());
    assert!(
        outcomes.keys().any(|key| key.starts_with("Succeeded")),
        "{outcomes:?}"
    );
    assert!(outcomes.contains_key("Failed HttpStatus"), "{outcomes:?}");
}
