//! A disk that fills up again and again under a service with calls on their way: what was accepted is
//! made, once, and the service lives.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::json;

use crate::api_client::{Api, serve_calls};
use crate::running::{Home, PATIENCE};
use crate::target::Target;
use crate::writable::{Filler, WITHIN, on_small_disk, ready_within};

const CALLS: &str = "/api/tenants/demo/service-calls";

/// What two programs that submit have seen.
struct Load<'a> {
    api: Api,
    target: &'a Target,
    is_over: AtomicBool,
    accepted: Mutex<BTreeSet<String>>,
    refused: AtomicUsize,
}

impl Load<'_> {
    /// Submits one call after the other, each under its key until it is accepted or all is over.
    fn keep_submitting(&self, first: usize) {
        for n in (first..).step_by(2) {
            let path = format!("/{n}");
            let body = json!({"name": "a", "dueAt": "2026-01-01T00:00:00Z", "idempotencyKey": path,
                "requestSpec": {"method": "POST", "url": self.target.url(&path), "body": "x".repeat(10_000)}});
            loop {
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let status = self.api.ask("POST", CALLS, Some(&body)).status;
                std::thread::park_timeout(Duration::from_millis(10));
                match status {
                    202 => break,
                    503 => self.refused.fetch_add(1, Ordering::SeqCst),
                    other => panic!("{other}"),
                };
            }
            self.accepted.lock().unwrap().insert(path);
        }
    }

    fn accepted(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }

    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let clock = SystemClock::start().unwrap();
        let begun = clock.monotonic();
        while !condition() {
            let waited = clock.monotonic().saturating_sub(begun);
            let (accepted, seen) = (self.accepted(), self.target.seen().len());
            assert!(
                waited < PATIENCE,
                "no {what}: {accepted} accepted, {seen} made"
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Ends those who submit, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_disk_that_fills_up_under_load_loses_no_call_and_ends_no_service() {
    let (home, target) = (Home::new(), Target::start());
    let disk = home.path("disk");
    let Some(mut command) = on_small_disk(&home, &disk, 48) else {
        return;
    };
    let (serving, api) = serve_calls(&mut command);
    let filler = Filler::on(&disk, &serving);
    let load = Load {
        api,
        target: &target,
        is_over: AtomicBool::new(false),
        accepted: Mutex::default(),
        refused: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| {
        let over = Over(&load.is_over);
        for first in [0, 1] {
            let load = &load;
            scope.spawn(move || load.keep_submitting(first));
        }
        for _ in 0..4 {
            let made = target.seen().len();
            load.until("calls", || target.seen().len() > made + 20);
            filler.fill();
            let refused = load.refused.load(Ordering::SeqCst);
            load.until("refusal", || {
                load.refused.load(Ordering::SeqCst) > refused + 10
            });
            ready_within(api, 503, WITHIN);
            assert_eq!(api.ask("GET", "/healthz", None).status, 200);
            filler.remove();
            ready_within(api, 200, WITHIN);
        }
        drop(over);
    });
    // A submission whose answer was a refusal may not be there, and no other is missing.
    let unfinished = || {
        let of = |status: &str| api.get(&format!("{CALLS}?status={status}&limit=1"));
        ["Scheduled", "Running"]
            .map(of)
            .iter()
            .any(|page| page["items"] != json!([]))
    };
    load.until("end of all calls", || !unfinished());
    let failed = api.get(&format!("{CALLS}?status=Failed&limit=1"));
    assert_eq!(failed["items"], json!([]));
    let mut made: Vec<String> = target.seen().into_iter().map(|seen| seen.path).collect();
    made.sort_unstable();
    let all = made.len();
    made.dedup();
    assert_eq!(made.len(), all, "none is made twice");
    let made: BTreeSet<String> = made.into_iter().collect();
    let accepted = load.accepted.lock().unwrap();
    let lost: Vec<_> = accepted.difference(&made).collect();
    assert!(lost.is_empty(), "{lost:?}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0), "it did not break");
}
