//! Kills the service in the middle of firing, again and again, and asks the ledger what was lost.
//!
//! `cargo xtask torture --rounds N` runs this for as long as one likes.

use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use punctual_domain::{TenantId, TimerEntry, TimerKey, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::ledger::Ledger;
use crate::running::{Home, PATIENCE, Running, firing};

const ROUNDS: usize = 20;
const TENANTS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];
/// How many timers are fed in one round.
const LOAD: u64 = 300;
/// When timers are due that will be cancelled: a cancellation from another process is refused when
/// that is within about ten seconds. Long runs last longer than this and see that none fires.
const CANCELLABLE: Duration = Duration::from_secs(30);

/// A small generator: what it draws need not be good, only different.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A process that schedules what it is told, and acknowledges it.
struct Feeder {
    process: Running,
    /// `None` once it has been told everything.
    stdin: Option<ChildStdin>,
}

impl Feeder {
    fn start(home: &Home) -> Self {
        let mut process = Running::start(home.command("schedule --batch -").stdin(Stdio::piped()));
        let stdin = Some(process.take_stdin());
        Self { process, stdin }
    }
}

struct Torture {
    home: Home,
    ledger: Ledger,
    random: Random,
    feeder: Feeder,
    /// Timers that may be moved, and those that may be cancelled.
    movable: Vec<TimerKey>,
    cancellable: Vec<TimerKey>,
    names: u64,
    /// Makes lines so long that a pipe takes fewer than are in flight.
    padding: String,
    kills: usize,
    kills_while_firing: usize,
    feeder_kills: usize,
    stops: usize,
    cancels: usize,
}

impl Torture {
    fn new() -> Self {
        let (home, ledger) = (Home::new(), Ledger::new());
        let seed = ledger.now().as_millis().unsigned_abs();
        Self {
            feeder: Feeder::start(&home),
            home,
            ledger,
            random: Random(seed),
            movable: Vec::new(),
            cancellable: Vec::new(),
            names: 0,
            padding: "x".repeat(2_000),
            kills: 0,
            kills_while_firing: 0,
            feeder_kills: 0,
            stops: 0,
            cancels: 0,
        }
    }

    /// A due time that no other schedule of the timer has: past, or within the next moments.
    fn due_at(&mut self) -> Timestamp {
        let now = self.ledger.now();
        let millis = Duration::from_millis;
        if self.random.below(2) == 0 {
            now.saturating_sub(millis(1_000 + self.random.below(3_600_000)))
        } else {
            now.saturating_add(millis(self.random.below(1_500)))
        }
    }

    fn new_key(&mut self) -> TimerKey {
        self.names += 1;
        let tenant = usize::try_from(self.random.below(5)).unwrap();
        let tenant = TenantId::new(TENANTS[tenant]).unwrap();
        TimerKey::named(tenant, &self.names.to_string())
    }

    /// Asks for one round's timers: new ones, moved ones, and some that will be cancelled.
    fn feed(&mut self) {
        for n in 0..LOAD {
            let is_move = self.random.below(10) == 0 && !self.movable.is_empty();
            let (key, due_at) = if is_move {
                let at = self.random.below(self.movable.len() as u64);
                // Once moved, not again: the due times of one timer have to differ.
                let key = self.movable.swap_remove(usize::try_from(at).unwrap());
                let later = self
                    .ledger
                    .now()
                    .saturating_add(Duration::from_millis(1_600));
                (key, later)
            } else if n == 0 {
                let key = self.new_key();
                self.cancellable.push(key.clone());
                (key, self.ledger.now().saturating_add(CANCELLABLE))
            } else {
                let (key, due_at) = (self.new_key(), self.due_at());
                self.movable.push(key.clone());
                (key, due_at)
            };
            self.ledger.asked(&key, due_at);
            let line = json!({
                "tenantId": key.tenant_id,
                "serviceCallId": key.service_call_id,
                "dueAt": due_at,
                "data": {"name": self.names, "padding": self.padding},
            });
            writeln!(self.feeder.stdin.as_mut().unwrap(), "{line}").unwrap();
        }
        let oldest = self.movable.len().saturating_sub(500);
        self.movable.drain(..oldest);
    }

    /// Reads a minimum number of acknowledgements, or all until the end, and then what is there.
    fn read_acknowledgements(&mut self, at_least: Option<u64>) {
        for n in 0.. {
            let waits = at_least.is_none_or(|count| n < count);
            let patience = if waits { PATIENCE } else { Duration::ZERO };
            let Ok(Some(line)) = self.feeder.process.line_within(patience) else {
                return;
            };
            let line: Value = serde_json::from_str(&line).unwrap();
            let entry = |field: &str| line[field].as_str().unwrap().to_owned();
            let tenant = TenantId::new(&entry("tenantId")).unwrap();
            let key = TimerKey::new(tenant, entry("serviceCallId").parse().unwrap());
            self.ledger
                .acknowledged(&key, entry("dueAt").parse().unwrap());
        }
    }

    /// Kills the feeder in the middle of a batch: only what it acknowledged counts.
    fn kill_feeder(&mut self) {
        self.feeder.process.kill();
        self.read_acknowledgements(None);
        self.feeder = Feeder::start(&self.home);
        self.feeder_kills += 1;
    }

    /// Cancels the last timer that waits for it, beside whoever serves.
    fn cancel(&mut self) {
        let Some(key) = self.cancellable.pop() else {
            return;
        };
        let (tenant, id) = (&key.tenant_id, key.service_call_id);
        let ended = self
            .home
            .run(&format!("cancel --tenant {tenant} --id {id}"));
        // Otherwise the feeder was killed before it was stored, or this machine is so slow that it
        // is due too soon, and then it fires.
        if ended.code == Some(0) {
            self.ledger.cancelled(&key);
            self.cancels += 1;
        }
    }

    /// Serves until a number of lines have come or the time is up, and then ends it.
    fn round(&mut self, n: usize) {
        self.feed();
        if n % 7 == 3 {
            self.kill_feeder();
        } else {
            // So that more is due than will have fired when it is killed.
            self.read_acknowledgements(Some(LOAD / 2));
        }
        self.ledger.run_begins();
        let mut serving = Running::start_unhurried(&mut self.home.command("serve"));
        let is_orderly = n % 5 == 4;
        // Mostly in the middle of firing; sometimes at any moment, as while it opens the file.
        let (lines, limit) = if self.random.below(5) == 0 {
            (u64::MAX, Duration::from_millis(self.random.below(60)))
        } else {
            let most = self.ledger.overdue() as u64 / 2;
            (1 + self.random.below(most.max(1)), PATIENCE / 20)
        };
        let before = self.ledger.firings;
        self.read_firings(&serving, lines, limit);
        // Nobody reads meanwhile: its lines fill the pipe, and it hangs with timers in flight.
        self.cancel();
        if is_orderly {
            self.stop(serving);
        } else {
            serving.kill();
            self.read_firings(&serving, u64::MAX, PATIENCE);
            let was_firing = self.ledger.firings > before && self.ledger.overdue() > 0;
            self.kills += 1;
            self.kills_while_firing += usize::from(was_firing);
        }
        self.read_acknowledgements(Some(0));
    }

    /// Reads firings until `count` have come, none comes within `limit`, or the output ends.
    fn read_firings(&mut self, serving: &Running, count: u64, limit: Duration) {
        for _ in 0..count {
            match serving.line_within(limit) {
                Ok(Some(line)) => self.ledger.fired(&firing(&line)),
                Ok(None) | Err(()) => return,
            }
            self.read_acknowledgements(Some(0));
        }
    }

    /// Stops it in good order, after which nothing that it fired may come again.
    fn stop(&mut self, mut serving: Running) {
        serving.wait_until_ready();
        serving.signal(Signal::TERM);
        let ended = serving.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for line in ended.stdout.lines() {
            self.ledger.fired(&firing(line));
        }
        self.ledger.run_ended_in_good_order();
        self.stops += 1;
    }

    /// Compares the database with the ledger, while no process serves it.
    fn check_the_database(&mut self) {
        for tenant in TENANTS {
            let mut after = String::new();
            loop {
                let line = format!("list --tenant {tenant} --limit 1000 {after}");
                let page = self.home.json(&line);
                for item in page["items"].as_array().unwrap() {
                    let entry: TimerEntry = serde_json::from_value(item.clone()).unwrap();
                    self.ledger.stored(&entry);
                }
                match page["nextCursor"].as_str() {
                    Some(cursor) => after = format!("--after {cursor}"),
                    None => break,
                }
            }
        }
    }

    /// Lets everything fire that is still owed.
    fn finish(&mut self) {
        self.feeder.stdin = None;
        self.read_acknowledgements(None);
        self.ledger.run_begins();
        let serving = Running::start(&mut self.home.command("serve"));
        while self.ledger.owed() > 0 {
            match serving.line_within(CANCELLABLE + PATIENCE) {
                Ok(Some(line)) => self.ledger.fired(&firing(&line)),
                Ok(None) | Err(()) => break,
            }
        }
        self.stop(serving);
    }

    fn report(&self) -> String {
        let Self {
            ledger,
            kills,
            kills_while_firing,
            feeder_kills,
            stops,
            cancels,
            ..
        } = self;
        format!(
            "{kills} kills ({kills_while_firing} while firing), {feeder_kills} of the feeder, \
             {stops} orderly stops, {cancels} cancelled, {} acknowledged, {} firings, {} of them \
             repeated, {} owed",
            ledger.acknowledged,
            ledger.firings,
            ledger.duplicates,
            ledger.owed(),
        )
    }
}

#[test]
fn no_kill_at_any_instant_loses_a_timer_or_makes_it_early() {
    let rounds = std::env::var("PUNCTUAL_KILL_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let mut torture = Torture::new();
    let every = (rounds / 20).max(5);
    for n in 0..rounds {
        torture.round(n);
        if (n + 1) % every == 0 {
            torture.check_the_database();
            println!("round {}: {}", n + 1, torture.report());
        }
    }
    torture.finish();
    torture.check_the_database();
    println!("in the end: {}", torture.report());
    torture.ledger.assert_all_is_well();
    assert!(
        torture.kills_while_firing * 4 >= torture.kills,
        "too few of the kills hit while it was firing: {}",
        torture.report()
    );
}
