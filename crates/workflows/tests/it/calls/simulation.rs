//! Random lives of a service of calls: messages are lost, repeated and late, ports fail and are slow,
//! and the process ends at any call of any port. Whatever happens, every accepted call that was not
//! deleted has one end, and its request was made at most once, never early, and not after its end. So it
//! is with two instances on one store, each of which does all of it, and of which one ends at a time.
//!
//! A scenario is made by its seed alone. A failing one prints its seed; to run just that:
//! `PUNCTUAL_SEED=123 cargo test -p punctual-workflows --all-features calls::simulation`. To run more
//! of them than the usual number in each test, set `PUNCTUAL_SEEDS`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select_all;
use punctual_adapters_memory::faults::Faults;
use punctual_domain::service_call::{CallStatus, ErrorKind, Submission};
use punctual_domain::{EnvelopeId, Message, TimerKey, Timestamp};
use punctual_ports::{
    ClockPort, ExecutionLogPort, ExecutionState, OutboxPort, ServiceCallPersistencePort,
    SubmitOutcome,
};
use punctual_workflows::calls::{CallSettings, DeleteCallOutcome};

use super::chaos::{ALL, Chaos, NONE, fault};
use super::http::{Behaviour, OK};
use super::wire::Fate;
use super::world::{Outside, Process, call_to};
use crate::simulation::random::Random;
use crate::world::key_of;

/// How many scenarios each of the nine tests runs unless it is told otherwise.
const USUAL: u64 = 150;
const ACTIONS: u32 = 40;
const NAMES: u64 = 12;
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// Small limits, so that a few calls reach them.
const SETTINGS: CallSettings = CallSettings {
    timeout: Duration::from_secs(10),
    polling_interval: Duration::from_secs(5),
    attempts: 4,
    attempts_per_tenant: 3,
    attempts_per_host: 2,
    lease: Duration::from_secs(8),
    drain: Duration::from_secs(25),
    keep: Duration::from_hours(24 * 365),
};

/// What has happened on purpose, for the proof that it has.
#[derive(Debug, Default)]
struct Happened {
    faults: u64,
    crashes: u64,
    lost: u64,
    repeated: u64,
    late: u64,
    suspended: u64,
    succeeded: u64,
    failed: u64,
    deleted: u64,
    /// Accepted when they were due already.
    at_once: u64,
}

struct Scenario {
    random: Random,
    chaos: Chaos,
    outside: Outside,
    /// The instances, each with its own handle of the store.
    instances: Vec<(Outside, Process)>,
    happened: Happened,
    accepted: BTreeMap<TimerKey, Submission>,
    /// The deleted, with the number of their requests at that time.
    deleted: BTreeMap<TimerKey, usize>,
    /// Those of which nobody knows, because the answer was an error.
    unsure: BTreeSet<TimerKey>,
}

impl Scenario {
    async fn new(seed: u64, instances: usize, chaos: Chaos) -> Self {
        let mut random = Random::new(seed);
        let outside = Outside::new();
        let fates = Mutex::new(random.fork());
        outside.wire.decides(move |_| {
            let mut random = fates.lock().unwrap();
            if random.once_in(chaos.lost) {
                Fate::Delivered(0)
            } else if random.once_in(chaos.late) {
                Fate::Delayed
            } else if random.once_in(chaos.repeated) {
                Fate::Delivered(usize::try_from(random.below(4) + 2).unwrap())
            } else {
                Fate::Delivered(1)
            }
        });
        let targets = Mutex::new(random.fork());
        outside.http.decides(move |_| {
            let mut random = targets.lock().unwrap();
            if !random.once_in(chaos.bad_targets) {
                return Behaviour::Answer(200, Duration::from_millis(random.below(3_000)));
            }
            match random.below(5) {
                0 => Behaviour::Hang,
                1 => Behaviour::Answer(503, Duration::from_millis(random.below(9_000))),
                2 => Behaviour::Fail(ErrorKind::ConnectFailed),
                3 => Behaviour::Panic,
                _ => Behaviour::Answer(200, Duration::from_millis(random.below(12_000))),
            }
        });
        let mut scenario = Self {
            random,
            chaos,
            outside,
            instances: Vec::new(),
            happened: Happened::default(),
            accepted: BTreeMap::new(),
            deleted: BTreeMap::new(),
            unsure: BTreeSet::new(),
        };
        for n in 0..instances {
            let outside = match n {
                0 => scenario.outside.clone(),
                _ => scenario.outside.another_instance(),
            };
            let process = scenario.start(&outside).await;
            scenario.instances.push((outside, process));
        }
        scenario
    }

    async fn start(&mut self, outside: &Outside) -> Process {
        let faults = Faults::new(Arc::new(self.outside.clock.clone()));
        let (mut decisions, chaos) = (self.random.fork(), self.chaos);
        faults.decide(move |_| fault(chaos, &mut decisions));
        Process::start(outside, SETTINGS, faults).await
    }

    /// The process that a caller gets to.
    fn process(&mut self) -> &Process {
        let count = u64::try_from(self.instances.len()).unwrap();
        let chosen = if count == 1 {
            0
        } else {
            self.random.below(count)
        };
        &self.instances[usize::try_from(chosen).unwrap()].1
    }

    /// Does something while time passes as it must; `None` if the process ends on the way.
    async fn attempt<T>(&mut self, action: impl Future<Output = T>) -> Option<T> {
        let clock = self.outside.clock.clone();
        let faults: Vec<Faults> = self
            .instances
            .iter()
            .map(|(_, it)| it.faults.clone())
            .collect();
        let crashed = select_all(faults.iter().map(|faults| Box::pin(faults.crashed())));
        let time_passes = async {
            loop {
                clock.advance(Duration::from_secs(5)).await;
                tokio::task::yield_now().await;
            }
        };
        let done = tokio::select! {
            biased;
            done = action => Some(done),
            _ = crashed => None,
            () = time_passes => None,
        };
        for (n, faults) in faults.iter().enumerate() {
            if faults.has_crashed() {
                self.restart(n).await;
            }
        }
        done
    }

    async fn restart(&mut self, n: usize) {
        self.happened.crashes += 1;
        let (mut outside, ended) = self.instances.remove(n);
        self.happened.faults += ended.faults.fired().len() as u64;
        drop(ended);
        if self.instances.is_empty() {
            outside.store.crash_and_reopen();
        } else {
            // What it had claimed is its own until the leases end.
            outside = outside.another_instance();
        }
        let process = self.start(&outside).await;
        self.instances.insert(n, (outside, process));
    }

    async fn act(&mut self) {
        match self.random.below(20) {
            0..5 => self.submit().await,
            5..9 => self.delete().await,
            9 => self.deliver_late().await,
            10 if self.chaos.suspensions => self.suspend(),
            _ => {
                let by = Duration::from_millis(self.random.below(15_000));
                let clock = self.outside.clock.clone();
                self.attempt(async move { clock.advance(by).await }).await;
            }
        }
    }

    /// As SIGSTOP does: time passes that nobody here sees.
    fn suspend(&mut self) {
        let by = Duration::from_millis(self.random.below(200_000));
        let clock = &self.outside.clock;
        clock.set_wall(clock.now().saturating_add(by));
        self.happened.suspended += 1;
    }

    fn name(&mut self) -> (TimerKey, &'static str, String) {
        let n = self.random.below(NAMES);
        let tenant = TENANTS[usize::try_from(n).unwrap() % TENANTS.len()];
        // Two tenants have calls of the same names, and so the other's ids under their own.
        let name = format!("call-{}", n / 2);
        (key_of(tenant, &name), tenant, name)
    }

    async fn submit(&mut self) {
        let (key, tenant, name) = self.name();
        let host = ["x.example", "y.example"][usize::try_from(self.random.below(2)).unwrap()];
        let due_in = Duration::from_millis(self.random.below(90_000));
        let now = self.outside.clock.now();
        // One in four is due when it is submitted.
        let due_at = now.saturating_add(due_in);
        let due_at = due_at.saturating_sub(Duration::from_secs(23));
        let fresh = call_to(tenant, host, &name, due_at);
        // The same again, if there was one: or else another under the same id is a conflict.
        let known = self.accepted.get(&key).cloned();
        let submission = known.filter(|_| self.random.once_in(2)).unwrap_or(fresh);
        let (submit, asked) = (self.process().submit.clone(), submission.clone());
        let answer = self
            .attempt(async move { submit.submit(asked, None).await })
            .await;
        match answer {
            Some(Ok(SubmitOutcome::Accepted(_))) => {
                self.happened.at_once += u64::from(submission.due_at <= now);
                let before = self.accepted.insert(key.clone(), submission);
                assert!(before.is_none(), "{key} was accepted twice");
            }
            Some(Ok(SubmitOutcome::Repeated(_))) => {
                self.accepted.insert(key, submission);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                self.unsure.insert(key);
            }
        }
    }

    async fn delete(&mut self) {
        let (key, ..) = self.name();
        let (submit, asked) = (self.process().submit.clone(), key.clone());
        let answer = self
            .attempt(async move { submit.delete(asked, None).await })
            .await;
        match answer {
            Some(Ok(DeleteCallOutcome::Deleted)) => {
                let seen = self.outside.http.count(&key);
                self.deleted.insert(key, seen);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                self.unsure.insert(key);
            }
        }
    }

    /// Delivers delayed messages in another order, and delays some of them further.
    async fn deliver_late(&mut self) {
        let mut held = self.outside.wire.take_delayed();
        self.happened.late += held.len() as u64;
        let mut places = self.random.fork();
        held.sort_by_cached_key(|_| places.next());
        let wire = Arc::clone(&self.outside.wire);
        self.attempt(async move { _ = wire.deliver(held).await })
            .await;
    }

    /// The faults end, and everything has to come to its end.
    async fn settle(&mut self) {
        self.chaos = NONE;
        for (_, process) in &self.instances {
            process.faults.clear();
        }
        self.deliver_late().await;
        self.outside.wire.is_good();
        self.outside.http.does(OK);
        // Longer than the longest redispatch interval, and than a message is parked.
        for _ in 0..40 {
            // A crash that was decided on before may still come.
            let clock = self.outside.clock.clone();
            let by = Duration::from_mins(5);
            self.attempt(async move { clock.advance(by).await }).await;
            if self.is_quiet().await {
                break;
            }
        }
        for passed in self.outside.wire.passed() {
            match passed.fate {
                Fate::Delivered(0) => self.happened.lost += 1,
                Fate::Delivered(1) | Fate::Delayed | Fate::Refused => {}
                Fate::Delivered(_) => self.happened.repeated += 1,
            }
        }
        for (_, ended) in self.instances.drain(..) {
            self.happened.faults += ended.faults.fired().len() as u64;
        }
    }

    async fn is_quiet(&self) -> bool {
        let open = self.outside.store.find_stuck(Timestamp::MAX, 1).await;
        let waiting = OutboxPort::count(&self.outside.store, 1).await;
        open.unwrap().calls.is_empty() && waiting.unwrap() == 0
    }

    /// The messages that told the end of each call; a repetition is the same message.
    fn ends(&self) -> BTreeMap<TimerKey, BTreeSet<EnvelopeId>> {
        let mut ends: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for passed in self.outside.wire.passed() {
            let key = match &passed.envelope.message {
                Message::ServiceCallSucceeded(event) => event.key(),
                Message::ServiceCallFailed(event) => event.key(),
                _ => continue,
            };
            ends.entry(key).or_default().insert(passed.envelope.id);
        }
        ends
    }

    async fn check(&mut self, instances: usize) -> Result<(), String> {
        self.check_requests(instances).await?;
        let ends = self.ends();
        let keys: BTreeSet<TimerKey> = self.accepted.keys().chain(&self.unsure).cloned().collect();
        for key in keys {
            let found = self.outside.store.find(vec![key.clone()]).await.unwrap();
            let status = found[0].as_ref().map(|stored| stored.call.status());
            let told = ends.get(&key).map_or(0, BTreeSet::len);
            match status {
                None if self.deleted.contains_key(&key) || self.unsure.contains(&key) => {
                    self.happened.deleted += 1;
                }
                None => return Err(format!("{key} was accepted and is lost")),
                Some(CallStatus::Succeeded) => self.happened.succeeded += 1,
                Some(CallStatus::Failed) => self.happened.failed += 1,
                Some(open) => return Err(format!("{key} is {open} for ever")),
            }
            if told != usize::from(status.is_some()) {
                return Err(format!("{key} is {status:?}, and {told} ends were told"));
            }
            let requests = self.outside.http.count(&key);
            if status == Some(CallStatus::Succeeded) && requests != 1 {
                return Err(format!("{key} has succeeded with {requests} requests"));
            }
            if let Some(seen) = self.deleted.get(&key)
                && (requests > *seen || status.is_some())
            {
                return Err(format!(
                    "{key} was deleted, is {status:?} and was requested"
                ));
            }
        }
        let (store, lease) = (&self.outside.store, SETTINGS.lease);
        let open = store.take_over(BTreeSet::new(), Timestamp::MAX, lease, 10);
        let open = open.await.unwrap();
        if !open.is_empty() {
            return Err(format!("attempts without an end: {open:?}"));
        }
        Ok(())
    }

    /// No attempt twice, no call twice, none early, none of a call that nobody submitted, and each as
    /// its own tenant asked for it.
    async fn check_requests(&self, instances: usize) -> Result<(), String> {
        let (mut attempts, mut calls) = (BTreeSet::new(), BTreeSet::new());
        for request in self.outside.http.requests() {
            let (key, attempt) = (&request.attempt.key, &request.attempt);
            if !attempts.insert(attempt.execution_id) || !calls.insert(key.clone()) {
                return Err(format!("{key} was requested twice"));
            }
            let found = self.outside.store.find(vec![key.clone()]).await.unwrap();
            let Some(stored) = &found[0] else {
                return Err(format!("{key} was requested and is gone"));
            };
            let details = stored.call.details();
            if request.at < details.due_at {
                return Err(format!("{key} was requested at {}, early", request.at));
            }
            let entries = self.outside.store.entries(key.clone(), 1).await.unwrap();
            if let ExecutionState::Finished { finished_at, .. } = entries[0].state
                && finished_at < request.at
            {
                return Err(format!(
                    "{key} was requested after its end at {finished_at}"
                ));
            }
            let of_others = !self.accepted.contains_key(key) && !self.unsure.contains(key);
            if of_others || attempt.request.redacted() != details.request.redacted() {
                return Err(format!("{key}: not the request that was asked for"));
            }
        }
        for name in ["tenant a", "tenant b", "tenant c"] {
            // A process that has ended leaves no request under way.
            let most = SETTINGS.attempts_per_tenant * instances;
            if self.outside.http.most(name) > most {
                return Err(format!("too many requests at once of {name}"));
            }
        }
        Ok(())
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(first_seed: u64, chaos: Chaos) -> Happened {
    run_instances(1, first_seed, chaos)
}

fn run_instances(instances: usize, first_seed: u64, chaos: Chaos) -> Happened {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let seeds = match from_environment("PUNCTUAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => first_seed..first_seed + from_environment("PUNCTUAL_SEEDS").unwrap_or(USUAL),
    };
    let mut all = Happened::default();
    for seed in seeds {
        let (checked, happened) = runtime.block_on(async {
            let mut scenario = Scenario::new(seed, instances, chaos).await;
            for _ in 0..ACTIONS {
                scenario.act().await;
            }
            scenario.settle().await;
            let checked = scenario.check(instances).await;
            (checked, scenario.happened)
        });
        if let Err(violation) = checked {
            panic!("{instances} instances, {chaos:?}, PUNCTUAL_SEED={seed}: {violation}");
        }
        all.faults += happened.faults;
        all.crashes += happened.crashes;
        all.lost += happened.lost;
        all.repeated += happened.repeated;
        all.late += happened.late;
        all.suspended += happened.suspended;
        all.succeeded += happened.succeeded;
        all.failed += happened.failed;
        all.deleted += happened.deleted;
        all.at_once += happened.at_once;
    }
    all
}

/// That faults really happen, and yet calls are made, is part of the test.
fn is_enough(counts: &[u64], happened: &Happened) {
    if from_environment("PUNCTUAL_SEED").is_none() {
        assert!(
            counts.iter().all(|count| *count >= USUAL / 4),
            "{happened:?}"
        );
    }
}

#[test]
fn without_faults_every_call_succeeds_or_is_deleted_although_the_process_is_suspended() {
    let it = run(0, NONE);
    assert_eq!((it.faults, it.failed), (0, 0));
    is_enough(&[it.succeeded, it.deleted, it.suspended, it.at_once], &it);
}

#[test]
fn with_messages_lost_repeated_and_late_every_call_has_one_end() {
    let chaos = Chaos {
        lost: 6,
        repeated: 4,
        late: 6,
        bad_targets: 4,
        ..NONE
    };
    let it = run(1_000_000, chaos);
    is_enough(
        &[it.lost, it.repeated, it.late, it.succeeded, it.failed],
        &it,
    );
}

#[test]
fn with_failing_and_slow_ports_every_call_has_one_end() {
    let chaos = Chaos {
        failures: 8,
        delays: 25,
        bad_targets: 4,
        ..NONE
    };
    let it = run(2_000_000, chaos);
    is_enough(&[it.faults, it.succeeded, it.failed], &it);
}

#[test]
fn with_crashes_at_any_port_call_every_call_has_one_end() {
    let chaos = Chaos {
        crashes: 40,
        bad_targets: 6,
        ..NONE
    };
    let it = run(3_000_000, chaos);
    is_enough(&[it.crashes, it.succeeded, it.failed], &it);
}

#[test]
fn with_everything_at_once_every_call_has_one_end() {
    let it = run(4_000_000, ALL);
    let counts = [it.faults, it.crashes, it.lost, it.repeated, it.late];
    is_enough(&counts, &it);
    is_enough(&[it.succeeded, it.failed, it.at_once], &it);
}

#[test]
fn of_two_instances_without_faults_neither_disturbs_the_other() {
    let chaos = Chaos {
        suspensions: false,
        ..NONE
    };
    let it = run_instances(2, 5_000_000, chaos);
    assert_eq!((it.faults, it.failed), (0, 0));
    is_enough(&[it.succeeded, it.deleted, it.at_once], &it);
}

#[test]
fn with_two_instances_and_slow_ports_no_stale_owner_sends_or_ends_anything_twice() {
    let chaos = Chaos {
        failures: 20,
        delays: 10,
        bad_targets: 4,
        ..NONE
    };
    let it = run_instances(2, 6_000_000, chaos);
    is_enough(&[it.faults, it.succeeded, it.failed], &it);
}

#[test]
fn with_two_instances_of_which_either_ends_at_any_port_call_every_call_has_one_end() {
    let chaos = Chaos {
        crashes: 40,
        bad_targets: 6,
        ..NONE
    };
    let it = run_instances(2, 7_000_000, chaos);
    is_enough(&[it.crashes, it.succeeded, it.failed], &it);
}

#[test]
fn with_two_instances_and_everything_at_once_every_call_has_one_end() {
    let it = run_instances(2, 8_000_000, ALL);
    let counts = [it.faults, it.crashes, it.lost, it.repeated, it.late];
    is_enough(&counts, &it);
    is_enough(&[it.succeeded, it.failed, it.at_once], &it);
}
