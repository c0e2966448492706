//! A broker that goes away under load, comes back with an older store, or loses a stream.
//!
//! `PUNCTUAL_OUTAGE_SECONDS` makes the outage as long as one likes.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use punctual_domain::TimerKey;
use punctual_test_servers::NatsServer;
use rustix::process::Signal;
use serde_json::json;

use crate::broker::Broker;
use crate::broker_traffic::{LONG_PATIENCE, Traffic, keys};
use crate::running::{Home, Running, instant};

/// How long the broker is away in an ordinary run.
const OUTAGE: Duration = Duration::from_secs(5);
/// By how much the service may grow meanwhile.
const GROWTH_KIB: u64 = 16 * 1_024;
/// How late a timer may be once all is well again.
const PUNCTUAL_WITHIN: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(1);

/// A broker, the service on it, and another program beside.
struct Scene {
    home: Home,
    server: NatsServer,
    broker: Broker,
    traffic: Traffic,
    /// `None` only between two runs.
    serving: Option<Running>,
}

impl Scene {
    /// `None` where there is no broker to be had.
    fn set() -> Option<Self> {
        let (home, server) = (Home::new(), NatsServer::start()?);
        let broker = Broker::at(&server.url());
        let mut scene = Self {
            traffic: Traffic::at(&broker),
            home,
            server,
            broker,
            serving: None,
        };
        scene.serve();
        Some(scene)
    }

    fn serve(&mut self) {
        let mut serving = Running::start(&mut self.broker.command(&self.home, "serve"));
        serving.wait_until_ready();
        self.serving = Some(serving);
    }

    fn stop(&mut self) {
        let serving = self.serving.take().unwrap();
        serving.signal(Signal::TERM);
        let ended = serving.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    fn kill(&mut self) {
        self.serving.as_mut().unwrap().kill();
        self.serving = None;
    }

    /// What the service holds in memory.
    fn resident_kib(&self) -> u64 {
        let id = self.serving.as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        line.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Schedules past the broker, in the service's own file.
    fn schedule_in_the_file(&self, keys: &[TimerKey], within: Duration) {
        let mut command = self.home.command("schedule --batch -");
        let mut feeder = Running::start(command.stdin(Stdio::piped()));
        let mut stdin = feeder.take_stdin();
        let due_at = self.traffic.now().saturating_add(within);
        for key in keys {
            self.traffic.book().ledger.asked(key, due_at);
            let (tenant, call) = (&key.tenant_id, key.service_call_id);
            let line = json!({"tenantId": tenant, "serviceCallId": call, "dueAt": due_at});
            writeln!(stdin, "{line}").unwrap();
        }
        drop(stdin);
        let ended = feeder.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stdout.lines().count(), keys.len());
        for key in keys {
            self.traffic.book().ledger.acknowledged(key, due_at);
        }
    }

    /// Waits until all of these are marked in the database.
    fn until_marked(&self, keys: &[TimerKey]) {
        self.traffic.wait_for("they are marked", || {
            keys.iter().all(|key| self.is_marked(key))
        });
    }

    fn is_marked(&self, key: &TimerKey) -> bool {
        let (tenant, id) = (&key.tenant_id, key.service_call_id);
        let timer = self.home.json(&format!("get --tenant {tenant} --id {id}"));
        timer["state"] == "Reached" && instant(&timer["reachedAt"]) >= instant(&timer["dueAt"])
    }

    /// Sends timers until all of a handful come in time.
    fn until_punctual(&self) -> Duration {
        let begun = self.traffic.now();
        for n in 0.. {
            let some = keys(&format!("punctual-{n}"), 20);
            self.traffic.fire(&some, SOON);
            let book = self.traffic.book();
            let theirs = book.seen.iter().filter(|it| some.contains(&it.event.key()));
            let late = theirs.map(|it| it.received_at.since(it.event.due_at)).max();
            let waited = self.traffic.now().since(begun);
            if late.unwrap() < PUNCTUAL_WITHIN {
                return waited;
            }
            assert!(waited < LONG_PATIENCE, "still late by {late:?}");
        }
        unreachable!("the numbers do not end")
    }

    /// How often each of these has come so far.
    fn counts(&self, keys: &[TimerKey]) -> Vec<usize> {
        let book = self.traffic.book();
        keys.iter().map(|key| book.count(key)).collect()
    }

    /// Waits until each of these has come again since it was counted.
    fn until_again(&self, keys: &[TimerKey], before: &[usize]) {
        self.traffic.until("they come again", |book| {
            let mut pairs = keys.iter().zip(before);
            pairs.all(|(key, before)| book.count(key) > *before)
        });
    }

    /// Lets everything arrive, and asks the ledger.
    fn finish(mut self) {
        self.traffic.until_all_is_done();
        self.stop();
        println!("{}", self.traffic.report());
        self.traffic.book().ledger.assert_all_is_well();
    }
}

#[test]
fn the_broker_stopped_under_load_and_started_again_loses_nothing() {
    let outage = std::env::var("PUNCTUAL_OUTAGE_SECONDS").ok();
    let outage = outage.map_or(OUTAGE, |text| {
        Duration::from_secs(text.parse().expect("a number of seconds"))
    });
    let Some(mut scene) = Scene::set() else {
        return;
    };
    scene.traffic.fire(&keys("before", 1_000), SOON);
    scene.schedule_in_the_file(&keys("file-before", 1_000), Duration::ZERO);
    scene
        .traffic
        .until("the file's have come", |book| book.ledger.owed() == 0);
    let before = scene.resident_kib();
    // In the middle of commands and of events.
    scene.traffic.send(keys("through", 1_000), SOON * 3);
    scene.traffic.until("some are acknowledged", |book| {
        book.acknowledged >= 1_200 && book.ledger.owed() > 0
    });
    scene.server.stop();
    let begun = scene.traffic.now();
    let (mut most, mut beats) = (0, 0);
    while scene.traffic.now().since(begun) < outage {
        scene.schedule_in_the_file(&keys(&format!("file-{beats}"), 100), SOON / 2);
        scene.traffic.pass(Duration::from_millis(200));
        most = most.max(scene.resident_kib());
        beats += 1;
    }
    assert!(
        scene.traffic.book().ledger.overdue() > 0,
        "nothing can leave"
    );
    scene.server.restart();
    scene.traffic.send(keys("after", 200), SOON);
    scene.traffic.until_all_is_done();
    let recovery = scene.until_punctual();
    println!(
        "{outage:?} without the broker: {before} KiB before, at most {most} KiB meanwhile, \
         {beats} batches in the file, punctual again {recovery:?} after the last arrived"
    );
    assert!(most < before + GROWTH_KIB, "{before} KiB, then {most} KiB");
    scene.finish();
}

/// What becomes of the service while the broker's store is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    IsStoppedAndStarted,
    IsKilledAndStarted,
}

/// Puts the broker back to what it was after the first timers, when the second had fired.
fn put_the_broker_back(fate: Fate) {
    let Some(mut scene) = Scene::set() else {
        return;
    };
    let [first, second, third] = ["first", "second", "third"].map(|name| keys(name, 30));
    scene.traffic.fire(&first, SOON);
    let copy = scene.home.path("copy");
    scene.server.stop();
    scene.server.copy_store_to(&copy);
    scene.server.restart();
    scene.traffic.fire(&second, SOON);
    scene.until_marked(&second);
    if fate == Fate::IsKilledAndStarted {
        scene.kill();
    }
    scene.server.kill();
    if fate == Fate::IsStoppedAndStarted {
        scene.stop();
    }
    let before = scene.counts(&second);
    scene.server.replace_store_from(&copy);
    scene.server.restart();
    if fate != Fate::Runs {
        scene.serve();
    }
    scene.until_again(&second, &before);
    scene.traffic.fire(&third, SOON);
    scene.until_marked(&third);
    scene.finish();
}

#[test]
fn what_a_broker_lost_with_an_older_copy_arrives_again() {
    put_the_broker_back(Fate::Runs);
}

#[test]
fn what_a_broker_lost_with_an_older_copy_arrives_again_from_the_next_run() {
    put_the_broker_back(Fate::IsStoppedAndStarted);
}

#[test]
fn what_a_broker_lost_with_an_older_copy_arrives_again_though_the_service_was_killed_too() {
    put_the_broker_back(Fate::IsKilledAndStarted);
}

#[test]
fn the_events_stream_deleted_in_mid_run_is_made_anew_and_recent_events_come_again() {
    let Some(scene) = Scene::set() else {
        return;
    };
    let (first, second) = (keys("first", 30), keys("second", 200));
    scene.traffic.fire(&first, SOON);
    scene.until_marked(&first);
    scene.traffic.send(second.clone(), SOON * 2);
    scene
        .traffic
        .until("some of the second have come", |book| book.seen.len() > 60);
    let before = scene.counts(&first);
    scene
        .broker
        .remove_stream(&scene.broker.stream_name("EVENTS"));
    scene.until_again(&first, &before);
    scene.traffic.fire(&keys("third", 30), SOON);
    scene.finish();
}

#[test]
fn what_the_first_moments_published_arrives_again_from_an_empty_broker() {
    let Some(mut scene) = Scene::set() else {
        return;
    };
    let (first, second) = (keys("first", 2), keys("second", 30));
    scene.traffic.fire(&first, Duration::ZERO);
    scene.until_marked(&first);
    scene.kill();
    scene.server.kill();
    let before = scene.counts(&first);
    let empty = scene.home.path("empty");
    std::fs::create_dir(&empty).unwrap();
    scene.server.replace_store_from(&empty);
    scene.server.restart();
    scene.serve();
    scene.traffic.fire(&second, SOON);
    scene.until_again(&first, &before);
    scene.finish();
}
